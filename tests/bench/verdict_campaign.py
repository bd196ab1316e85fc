"""The table of the incident campaign: python -m tests.bench.verdict_campaign 200."""

from __future__ import annotations

import sys
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from tests.sim.incidents import trial
from tests.sim.test_verdicts import complaints

if TYPE_CHECKING:
    from tests.sim.incidents import IncidentKind, Trial


def main(count: int) -> int:
    """Run so many incidents; return how many complaints there were."""
    trials: dict[IncidentKind, list[Trial]] = defaultdict(list)
    wrong = 0
    for seed in range(count):
        found = trial(seed)
        trials[found.incident.kind].append(found)
        for complaint in complaints(found):
            wrong += 1
            print(f"seed {seed} ({found.incident.kind}): {complaint}")
    print("| incident | runs | named after s: median, worst | gone after s: median, worst | longest difference s |")
    print("|---|---|---|---|---|")
    for kind, several in trials.items():
        named = [each.named_s for each in several if each.named_s is not None]
        gone = [each.gone_s for each in several]
        differ = max(each.disagreement_s for each in several)
        times = f"{median(named):.1f}, {max(named):.1f} | {median(gone):.1f}, {max(gone):.1f}"
        print(f"| {kind} | {len(several)} | {times} | {differ:.0f} |")
    print(f"{wrong} complaints in {count} incidents")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]))))
