"""Do what cron, sudo, a unit, a logout and a vandal do to a fleet, many times: is there ever more than one writer?

    python -m tests.bench.one_controller --trials 500 --seed 1

Each trial is a cause and an environment, both drawn from the seed: the cause happens under requests, commands are given
from the environment, and within 10 s of its end all must be right: one controller at work, one gateway, every replica
once, READY, the same seen from everywhere, no request lost, the journal's epochs in order. Prints one line for each trial
that went wrong and a table: per cause the trials, those wrong, and the median and the most seconds to right.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from tests.e2e.one_controller import CAUSES, DISK_FULL, Trial, try_once
from tests.e2e.standstill import on_small_disk
from tests.e2e.watched import Watched, Witness


def main() -> int:
    """Run the trials; exit 1 if any went wrong or anything was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cause", default="", help="only causes with this in their name")
    parser.add_argument(
        "--logs", action="store_true", help="show the ends of the fleet's logs after a trial gone wrong"
    )
    parser.add_argument("--for-s", type=float, default=float("inf"), help="begin no trial after this long")
    options = parser.parse_args()
    fleet = Watched(Path(tempfile.mkdtemp(prefix="fo-")))
    fleet.unmount = on_small_disk(fleet.root)
    causes = sorted(set(CAUSES) - (set() if fleet.unmount else {DISK_FULL}))
    causes = [cause for cause in causes if options.cause in cause]
    done: list[Trial] = []
    begun, short_us = time.monotonic(), _short_of_processors_us()
    try:
        fleet.up()
        with Witness(fleet) as witness:
            for number in range(options.trials):
                if time.monotonic() - begun > options.for_s:
                    break
                rng = random.Random(f"{options.seed}/{number}")
                cause, env = rng.choice(causes), rng.choice(sorted(fleet.environments))
                done.append(try_once(fleet, witness, cause, env, rng))
                if done[-1].wrong:
                    print(f"trial {number} of seed {options.seed}: {done[-1]}", flush=True)
                    if options.logs:
                        print(fleet.logs(), flush=True)
            answered = witness.answered
    finally:
        left = fleet.take_down()
        if fleet.unmount is not None:
            fleet.unmount()
        shutil.rmtree(fleet.root, ignore_errors=True)
    print_table(done)
    short = (_short_of_processors_us() - short_us) / 1e4 / (time.monotonic() - begun)
    print(
        f"{answered} requests answered; left behind: {left or 'nothing'}; somebody waited for a processor {short:.0f} % of it"
    )
    return 1 if left or any(trial.wrong for trial in done) else 0


def _short_of_processors_us() -> int:
    """Return for how many microseconds of this boot somebody wanted a processor in vain; 0: the system does not say."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except OSError:
        return 0
    return int(some.rpartition("total=")[2])


def print_table(done: list[Trial]) -> None:
    """Print a row a cause."""
    print(f"{'CAUSE':40} {'TRIALS':>6} {'WRONG':>6} {'SERVED_S':>9} {'MEDIAN_S':>9} {'MOST_S':>7}")
    for cause in [*sorted(CAUSES), "all"]:
        of_cause = [trial for trial in done if cause in (trial.cause, "all")]
        if of_cause:
            seconds = [trial.seconds for trial in of_cause]
            wrong = sum(bool(trial.wrong) for trial in of_cause)
            served_s = max(trial.served_s for trial in of_cause)
            print(
                f"{cause:40} {len(of_cause):6} {wrong:6} {served_s:9.1f} {statistics.median(seconds):9.1f} {max(seconds):7.1f}"
            )


if __name__ == "__main__":
    raise SystemExit(main())
