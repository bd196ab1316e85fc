"""The table of an incident campaign: python -m tests.bench.verdict_campaign FIRST LAST [small].

Without `small` the lanes have 0.2 to 200 rps and 1 to 40 replicas (tests/sim/incident.py). Two processes share the work.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import TYPE_CHECKING

from tests.sim.incident import Incident
from tests.sim.incidents import trial
from tests.sim.test_verdicts import complaints

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.incident import IncidentKind
    from tests.sim.incidents import Trial

_PROCESSES = 2


def main(first: int, last: int, *, draw: Callable[[int], Incident]) -> int:
    """Run the seeds from `first` to before `last`; return how many complaints there were."""
    trials: dict[IncidentKind, list[Trial]] = defaultdict(list)
    wrong = 0
    with ProcessPoolExecutor(_PROCESSES) as pool:
        for found in pool.map(trial, [draw(seed) for seed in range(first, last)], chunksize=4):
            trials[found.incident.kind].append(found)
            for complaint in complaints(found):
                wrong += 1
                print(f"{_about(found.incident)}: {complaint}", flush=True)
    print("| incident | runs | named | named after s: median, worst | after its samples show it, s: worst |", end="")
    print(" gone after s: median, worst | begun again | longest difference s |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, several in trials.items():
        print(f"| {kind} | {_row(several)} |")
    print(f"{wrong} complaints in {last - first} incidents")
    return wrong


def _row(several: list[Trial]) -> str:
    named = [each.named_s for each in several if each.named_s is not None] or [0.0]
    behind = [each.named_s - each.shown_s for each in several if each.named_s is not None and each.shown_s is not None]
    gone = [each.gone_s for each in several]
    cells = (
        f"{len(several)}",
        f"{sum(each.named_s is not None for each in several)}",
        f"{median(named):.1f}, {max(named):.1f}",
        f"{max(behind, default=0.0):.1f}",
        f"{median(gone):.1f}, {max(gone):.1f}",
        f"{sum(max(0, each.breaches - len(each.incident.phases)) for each in several)}",
        f"{max(each.disagreement_s for each in several):.0f}",
    )
    return " | ".join(cells)


def _about(incident: Incident) -> str:
    size = f"{incident.rps:.2g} rps, {incident.replicas} replicas, share {incident.share:.2f}"
    return f"seed {incident.seed} ({incident.kind}, {size})"


if __name__ == "__main__":
    drawn = Incident.of if "small" in sys.argv[3:] else Incident.of_any_size
    sys.exit(min(1, main(int(sys.argv[1]), int(sys.argv[2]), draw=drawn)))
