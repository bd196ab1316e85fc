"""The policy laboratory: python -m tests.bench.policies [--scenario S ...] [--policy P ...] [--seeds 5] [--jobs 2]

Runs every baseline beside the built-in policy through the published scenarios and the hard cases, and prints a table for
each. A policy is `NAME`, behind the project's own gateway, or `NAME@GATEWAY`; `@plain` is the one that it is published with.
Runs are kept in --out as they finish, a line each: a command that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.bench.policies.laboratory import (
    CLAIRVOYANT,
    Contender,
    append_run,
    commit,
    contenders,
    read_runs,
    run,
    scenarios,
)
from tests.bench.policies.peers.catalogue import GATEWAYS, OWN_GATEWAY, RULES
from tests.bench.policies.report import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.policies.clairvoyant import ScheduleSettings
    from tests.bench.policies.laboratory import LaboratoryRun

_FIRST_SEED = 7


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for and not there yet, and print the tables."""
    given = _parser().parse_args(arguments)
    if given.list:
        _list()
        return 0
    known = scenarios()
    meant = [name for name in known if not given.scenario or _is_meant(name, given.scenario)]
    if not meant:
        print(f"no scenario begins with {', '.join(given.scenario)}; --list names them", file=sys.stderr)
        return 2
    seeds = range(_FIRST_SEED, _FIRST_SEED + given.seeds)
    wanted = list(_wanted(meant, given.policy, list(seeds)))
    kept = read_runs(given.out)
    done = {each.key for each in kept}
    left = [each for each in wanted if (each[0], str(each[1]), each[2], commit()) not in done]
    if not given.report:
        print(f"{len(wanted) - len(left)} of {len(wanted)} runs are in {given.out}", file=sys.stderr)
        kept += _run_all(left, kept, jobs=given.jobs, out=given.out, trace=given.trace)
    names = {str(contender) for _, contender, _ in wanted}
    shown = [each for each in kept if each.scenario in meant and each.contender in names and each.seed in seeds]
    shown = _latest(shown)
    if given.json:
        print(json.dumps([asdict(each) for each in shown], indent=1))
    else:
        print(tables(shown, {name: known[name] for name in meant}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", metavar="S", help="a name, or the beginning of some and *")
    parser.add_argument("--policy", action="append", default=[], metavar="P[@GATEWAY]", help="default: all that apply")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 7 on")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--trace", default="", help="a request trace whose lengths are drawn from")
    parser.add_argument("--out", type=Path, default=Path("laboratory.jsonl"), help="where runs are kept")
    parser.add_argument("--report", action="store_true", help="run nothing, print what is kept")
    parser.add_argument("--json", action="store_true", help="print the runs as JSON instead of tables")
    parser.add_argument("--list", action="store_true", help="print scenarios, policies and gateways, and end")
    return parser


def _list() -> None:
    for name, about in scenarios().items():
        print(f"{name:20} {about}")
    print("policies: built-in, static, static-plan, clairvoyant,", ", ".join(RULES))
    print(f"gateways: {OWN_GATEWAY},", ", ".join(GATEWAYS))


def _is_meant(name: str, asked_for: list[str]) -> bool:
    return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in asked_for)


def _wanted(meant: list[str], policies: list[str], seeds: list[int]) -> Iterator[tuple[str, Contender, int]]:
    """Yield a seed of everything before the next seed of anything: what is cut off early still compares all."""
    for seed in seeds:
        for scenario in meant:
            for contender in [Contender.parse(each) for each in policies] or contenders(scenario):
                yield scenario, contender, seed


def _run_all(
    left: list[tuple[str, Contender, int]], kept: list[LaboratoryRun], *, jobs: int, out: Path, trace: str
) -> list[LaboratoryRun]:
    finished: list[LaboratoryRun] = []
    began_s = time.perf_counter()
    settings = {each.scenario: each.settings for each in kept if each.settings is not None}
    for each in _ran(left, settings, jobs=jobs, trace=trace):
        append_run(out, each)
        finished.append(each)
        if each.settings is not None:
            settings[each.scenario] = each.settings
        _progress(each, len(finished), len(left), time.perf_counter() - began_s)
    return finished


def _ran(
    left: list[tuple[str, Contender, int]], settings: dict[str, ScheduleSettings], *, jobs: int, trace: str
) -> Iterator[LaboratoryRun]:
    """Yield runs as they finish. `settings` grows meanwhile: what the bound has learned with one seed helps with the next."""

    def known(scenario: str, contender: Contender) -> ScheduleSettings | None:
        return settings.get(scenario) if contender.policy == CLAIRVOYANT else None

    if jobs == 1:
        for scenario, contender, seed in left:
            yield run(scenario, contender, seed, trace=trace, known=known(scenario, contender))
        return
    waiting = list(left)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        pending: set[Future[LaboratoryRun]] = set()
        while waiting or pending:
            while waiting and len(pending) < jobs:
                scenario, contender, seed = waiting.pop(0)
                pending.add(pool.submit(run, scenario, contender, seed, trace=trace, known=known(scenario, contender)))
            ended = next(as_completed(pending))
            pending.remove(ended)
            yield ended.result()


def _progress(each: LaboratoryRun, done: int, of: int, took_s: float) -> None:
    good = " ".join(f"{name} {100.0 * lane.good / lane.offered:.2f} %" for name, lane in each.lanes.items())
    left_min = took_s / done * (of - done) / 60.0
    print(
        f"{done}/{of} {each.scenario} {each.contender} seed {each.seed}: {each.missing or good}, "
        f"{each.replicas:.2f} replicas; {each.took_s:.0f} s, about {left_min:.0f} min left",
        file=sys.stderr,
        flush=True,
    )


def _latest(runs: list[LaboratoryRun]) -> list[LaboratoryRun]:
    """Return one run for each scenario, contender and seed: the one that was kept last."""
    return list({(each.scenario, each.contender, each.seed): each for each in runs}.values())


if __name__ == "__main__":
    sys.exit(main())
