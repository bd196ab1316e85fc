"""A fleet beside an engine that breaks every rule, for long: what do gateway and controller hold, and who is harmed?

    python -m tests.bench.evil_engine --minutes 5 --mebibytes 512 --seed 1

Everything lives in a private directory and is taken down at the end. The last lines are the growth of each process, what
the healthy lane's clients, the wrong keys and the evil lane's clients got, and bytes no face may show, face by face.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engines" / "acme"), str(ROOT / "tests" / "engines" / "evil")]

from fleetctl.clock import SYSTEM_CLOCK  # noqa: E402  # the tests' modules are found by the path above
from tests.e2e.evil_fleet import FORBIDDEN, Received, devils  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--mebibytes", type=int, default=512, help="what stands for: without end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=24, help="connections with wrong keys")
    given = parser.parse_args()
    os.environ.setdefault("EVIL_HOME", "/nonexistent")  # the server's module is read here for its list alone
    from evil_server import CHATS

    names = [*CHATS, "log-line", "die"]
    rng = random.Random(given.seed)
    healthy, wrong_keys, evil_clients = Received(), Received(), Counter[str]()
    with devils(much=given.mebibytes * 1024 * 1024) as fleet:
        deadline_s = SYSTEM_CLOCK.monotonic_s() + 60 * given.minutes
        with (
            fleet.watched_memory() as grown,
            fleet.healthy_clients(healthy),
            fleet.wrong_keys(wrong_keys, clients=given.clients),
        ):
            while SYSTEM_CLOCK.monotonic_s() < deadline_s:
                evil_clients += fleet.campaign(rng, names).counts
                print(f"{sum(evil_clients.values())} evil requests; growth in KiB: {grown}", flush=True)
        done = fleet.done()
        shown = {name: FORBIDDEN.findall(text) for name, text in fleet.shown().items()}
        top = fleet.on_a_terminal("top")
    statuses = Counter(what.rsplit(" ", 1)[1] for what in evil_clients.elements())
    print(f"growth: {', '.join(f'{role} {kib / 1024:.1f} MiB' for role, kib in grown.items())}")
    print(f"healthy lane: {dict(healthy.counts)}; wrong: {healthy.wrong[:3]}")
    print(f"wrong keys: {dict(wrong_keys.counts)}; let in or broken: {wrong_keys.wrong[:3]}")
    print(
        f"evil lane: {sum(evil_clients.values())} requests, by status {dict(statuses)}; redirects followed: {fleet.visits}"
    )
    print(f"done by the engine: {len(done)} kinds, {sum(done.values())} times")
    print(f"faces: {len(shown) + 1}, with forbidden bytes: {[name for name, found in shown.items() if found]}")
    print(f"top on a terminal: {len(top)} characters, the engine's title among them: {chr(27) + ']0;pwned' in top}")
    return int(bool(healthy.wrong or wrong_keys.wrong or max(grown.values()) > 100 * 1024))


if __name__ == "__main__":
    raise SystemExit(main())
