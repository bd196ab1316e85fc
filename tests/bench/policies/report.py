"""Tables of the laboratory's runs: a scenario each, a contender a row, mean and worst over seeds."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.bench.policies.laboratory import CLAIRVOYANT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.bench.policies.laboratory import LaboratoryRun


def tables(runs: Iterable[LaboratoryRun], about: dict[str, str]) -> str:
    """Return a Markdown table for every scenario, in the order of `about`."""
    of_scenario: dict[str, list[LaboratoryRun]] = defaultdict(list)
    for each in runs:
        of_scenario[each.scenario].append(each)
    return "\n\n".join(table(of_scenario[name], f"{name}: {about[name]}") for name in about if name in of_scenario)


def table(runs: Sequence[LaboratoryRun], title: str) -> str:
    """Return one scenario's table; good of offered is the mean over seeds and, behind it, the worst."""
    lanes = list(dict.fromkeys(lane for each in runs for lane in each.lanes))
    bounds = {each.seed: each.replicas for each in runs if each.contender == CLAIRVOYANT and each.replicas}
    of_contender: dict[str, list[LaboratoryRun]] = defaultdict(list)
    for each in runs:
        of_contender[each.contender].append(each)
    commits = ", ".join(sorted({each.commit for each in runs}))
    heads = [
        *(f"{lane}, %" for lane in lanes),
        "TTFT P99, s",
        "good/s",
        "replicas",
        "$/h",
        "to bound",
        "reversals",
        "seeds",
    ]
    lines = [
        f"**{title}** (at {commits})",
        "",
        f"| policy@gateway | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]
    rows = [(name, seeds, _row(seeds, lanes, bounds)) for name, seeds in of_contender.items()]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, _, cells in rows]
    return "\n".join(lines)


def _row(runs: list[LaboratoryRun], lanes: list[str], bounds: dict[int, float]) -> list[str]:
    with_figures = [each for each in runs if not each.missing]
    if not with_figures:
        return [runs[0].missing, *[""] * (len(lanes) + 5), str(len(runs))]
    ratios = [each.replicas / bounds[each.seed] for each in with_figures if each.seed in bounds]
    return [
        *(_shares(with_figures, lane) for lane in lanes),
        " / ".join(_late(with_figures, lane) for lane in lanes),
        _mean([each.good_rps for each in with_figures], 2),
        _mean([each.replicas for each in with_figures], 2),
        _mean([each.usd_per_hour for each in with_figures], 2),
        _mean(ratios, 2) if ratios else "",
        _mean([each.reversals for each in with_figures], 1),
        str(len(with_figures)),
    ]


def _shares(runs: list[LaboratoryRun], lane: str) -> str:
    shares = [100.0 * each.lanes[lane].good / each.lanes[lane].offered for each in runs if lane in each.lanes]
    if not shares:
        return ""
    mean, worst = statistics.fmean(shares), min(shares)
    return f"{mean:.2f}" if len(shares) == 1 or mean - worst < 0.005 else f"{mean:.2f} ({worst:.2f})"


def _late(runs: list[LaboratoryRun], lane: str) -> str:
    """Return a lane's TTFT P99, the mean over seeds."""
    known = [each.lanes[lane].ttft_s_p99 for each in runs if lane in each.lanes]
    return f"{statistics.fmean(known):.3g}" if known else "-"


def _mean(values: list[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f}"
