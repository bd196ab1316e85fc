"""Tortures the real controller: every seed is a fleet's life, and the first violation of a rule ends it.

A failing seed is printed with its rule, the commit, the fewest faults of its schedule that still bring it about, and the
command that replays it: at that commit it shows the same, whatever else runs beside it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.torture.campaign import faults_of, first_failure, own_state, run_seed, smallest
from tests.torture.mutants import MUTANTS, mutated

if TYPE_CHECKING:
    from tests.torture.run import RunReport

_REPORTED_EVERY = 250
_EXAMPLES = """\
examples:
  python -m tests.torture --from 1 --seeds 10000 --keep-on  a campaign; a line for every failure
  python -m tests.torture --from 264 --seeds 1              replay one seed, with all of its faults
  python -m tests.torture --from 264 --seeds 1 --only 0,3   with these alone, as a failure's last line says
  python -m tests.torture --from 264 --seeds 1 --list       what goes wrong under it, without a run
  python -m tests.torture --mutants --seeds 300             by which seed each known bug is found
"""


def main() -> int:
    """Run the seeds; return 1 if a rule was violated."""
    options = _options()
    if options.list:
        return _list(range(options.first, options.first + options.seeds))
    only = tuple(int(each) for each in options.only.split(",") if each) if options.only is not None else None
    with own_state():
        if options.mutants:
            return _try_mutants(options.first, options.seeds, options.mutant)
        return _torture(range(options.first, options.first + options.seeds), only, keeps_on=options.keep_on)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first")
    parser.add_argument("--only", help="faults of the schedule to keep, by their places: 0,3,7; empty: none")
    parser.add_argument("--keep-on", action="store_true", help="go on after a failure")
    parser.add_argument("--mutant", help="of the known bugs only this one")
    parser.add_argument("--list", action="store_true", help="print the schedules, and run nothing")
    parser.add_argument("--mutants", action="store_true", help="show that each known bug is found within so many seeds")
    return parser.parse_args()


def _list(seeds: range) -> int:
    for seed in seeds:
        print(f"seed {seed}")
        for index, fault in enumerate(faults_of(seed)):
            print(f"  {index:2}  {fault}")
    return 0


def _torture(seeds: range, only: tuple[int, ...] | None, *, keeps_on: bool) -> int:
    began_s, failed = SYSTEM_CLOCK.monotonic_s(), 0
    sums: Counter[str] = Counter()
    for done, seed in enumerate(seeds, 1):
        report = run_seed(seed, only)
        sums.update(lives=report.lives, orders=report.orders, stops=report.stops, virtual_s=round(report.virtual_s))
        if report.violations:
            failed += 1
            _tell_failure(report, only)
            if not keeps_on:
                return 1
        if done % _REPORTED_EVERY == 0 or done == len(seeds):
            rate = done / (SYSTEM_CLOCK.monotonic_s() - began_s)
            print(f"{done} seeds, {failed} failed, {rate:.1f} seeds/s; {dict(sums)}", flush=True)
        if len(seeds) == 1:
            print(f"digest {report.digest}")
    return 1 if failed else 0


def _tell_failure(report: RunReport, only: tuple[int, ...] | None) -> None:
    kept = smallest(report) if only is None else only
    print(f"seed {report.seed} at commit {_commit()}: {report.violations[0]}")
    for index in kept:
        print(f"  {index:2}  {faults_of(report.seed)[index]}")
    places = ",".join(map(str, kept))
    print(f"  replay: python -m tests.torture --from {report.seed} --seeds 1 --only '{places}'", flush=True)


def _try_mutants(first: int, seeds: int, only: str | None) -> int:
    """Print by which seed each mutant is found; return 1 if one is not."""
    missed = 0
    for mutant in (each for each in MUTANTS if only in (None, each.name)):
        with mutated(mutant):
            found = first_failure(mutant.seeds(first, seeds))
        missed += found is None
        what = f"seed {found.seed}: {found.violations[0]}" if found is not None else f"NOT FOUND in {seeds} seeds"
        print(f"{mutant.name:32} {what}", flush=True)
    return 1 if missed else 0


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    found = subprocess.run([git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
