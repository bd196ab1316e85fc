"""What a running fleet costs while nobody asks: python tests/bench/idle_fleet.py FLEET [SECONDS].

The figures are the sums of its processes, found by the command line they were started with; the fleet must be up.
"""

from __future__ import annotations

import sys
import time

import psutil

from fleetctl.paths import state_dir


def ours(process: psutil.Process, fleet: str) -> bool:
    """Whether a process is the fleet's controller, gateway or one of its replicas, of this user's state directory."""
    try:
        argv, env = process.cmdline(), process.environ()
    except (psutil.Error, OSError):
        return False
    if env.get("FLEETCTL_FLEET") == fleet:
        return True
    is_service = any(module in argv for module in ("fleetctl.controller", "fleetctl.gateway")) and fleet in argv
    return is_service and str(state_dir()).startswith(env.get("XDG_STATE_HOME", ""))


def main() -> None:
    """Print one line a process, and the sums."""
    fleet = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    processes = [p for p in psutil.process_iter() if ours(p, fleet)]
    before = {p.pid: sum(p.cpu_times()[:2]) for p in processes}
    time.sleep(seconds)
    totals = [0.0, 0.0, 0.0]
    for process in processes:
        memory = process.memory_full_info()
        share = (sum(process.cpu_times()[:2]) - before[process.pid]) / seconds * 100
        row = (share, memory.rss / 1e6, memory.pss / 1e6)
        totals = [total + figure for total, figure in zip(totals, row, strict=True)]
        name = next((a for a in process.cmdline() if a.startswith("fleetctl.")), process.name())
        print(f"{process.pid:>8}  {name:22} CPU {row[0]:5.2f} %  RSS {row[1]:5.0f} MB  PSS {row[2]:5.0f} MB")
    print(
        f"{len(processes)} processes: CPU {totals[0]:.2f} % of a core, RSS {totals[1]:.0f} MB, PSS {totals[2]:.0f} MB"
    )


if __name__ == "__main__":
    main()
