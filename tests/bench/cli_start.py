"""How long `fleetctl --help` takes beside `python -c "import typer"`, interleaved: python tests/bench/cli_start.py [ROUNDS]."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

COMMANDS = {
    "fleetctl --help": [str(Path(sys.executable).with_name("fleetctl")), "--help"],
    "python -c 'import typer'": [sys.executable, "-c", "import typer"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


def timed(argv: list[str]) -> tuple[float, float]:
    """Return wall and CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print medians, and the ratio pair by pair."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for argv in COMMANDS.values():
        timed(argv)
    for _ in range(rounds):
        for name, argv in COMMANDS.items():
            runs[name].append(timed(argv))
    for name, found in runs.items():
        print(
            f"{name:26} wall {median(w for w, _ in found) * 1e3:6.1f} ms   CPU {median(c for _, c in found) * 1e3:6.1f} ms"
        )
    help_runs, typer_runs, _ = runs.values()
    pairs = [(h[1] / t[1]) for h, t in zip(help_runs, typer_runs, strict=True)]
    print(f"CPU ratio, --help over typer: median {median(pairs):.2f}, {min(pairs):.2f} to {max(pairs):.2f}")


if __name__ == "__main__":
    main()
