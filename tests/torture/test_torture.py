"""A bounded part of the campaign that is run by hand, and proof that its checks can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.torture.campaign import faults_of, first_failure, own_state, run_seed, smallest
from tests.torture.faults import PLAIN_KINDS, FaultKind
from tests.torture.mutants import MUTANTS, Mutant, mutated
from tests.torture.setting import WATCHED_FROM, WIDE_FROM
from tests.torture.shrink import shrunk

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS, WIDE_SEEDS, WATCHED_SEEDS = 15, 3, 5
# Those that take dozens of seeds are looked for by hand: `python -m tests.torture --mutants --seeds 300`.
FOUND_LATE = {
    "intent lookup skipped", "lost reply taken for a refusal", "throttling ignored", "cool-off ignored",
    "scale-down at once", "clock step unseen", "clock moved in several writes", "stop before its line",
    "outdated replicas left", "rollout drains first", "shared intents not kept",
}  # fmt: skip
FOUND_SOON = [mutant for mutant in MUTANTS if mutant.name not in FOUND_LATE]
LOOKED_FOR = 30
# Where seeds before it are known to find nothing.
LOOKED_FOR_FROM = {
    "cap of nodes off by one": 2, "backoff ignored": 2, "drain request ignored": 7, "ladder hold ignored": 8,
    "orphaned nodes left": 10,
}  # fmt: skip

# What a seed found: it must never find it again.
FOUND = {
    166: "an order refused before the provider had said what it sells left no cool-off",
    264: "an order that was answered while the controller began anew after a step of the clock was given up at once",
    1459: "an order went out although another was throttled while the lease was verified",
    519: "a lane whose backoff was on record by the clock of before a step launched nothing for an hour",
    276: "a controller died while it moved its records along with the clock, and the next one moved them again",
    356: "a node was told to end while the state was locked, the controller died, and the journal never said so",
    1000007: "a rollout never ended in a lane whose replicas were set by hand",
    1000056: "a revision that was asked for in shadow mode, and that nothing ran, was taken for one to go back to",
    1000124: "an order refused for stock while the fleet went down left no cool-off for the next up",
    1000159: "a rollout never ended where load wanted more than the caps have room for",
    1000274: "an up while a down still waited for orders of an earlier revision kept what came of them",
    1000381: "a rollout drained a lane's last replica although what left the lane made room for another beside it",
    1000399: "a rollback to a revision of shadow mode put nothing back",
    1000477: "a canary that found no stock was ordered at every tick, and counted against its lane's own launches",
    1000508: "a rollout never ended where load wanted more than the caps have room for and one replica may be missing",
    21574: "an orphaned node that could not be stopped was not counted against the cost cap",
}


@pytest.fixture(autouse=True)
def state() -> Iterator[None]:
    with own_state():
        yield


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS // 3))
def test_no_rule_is_violated(first: int) -> None:
    for seed in range(first, first + SEEDS // 3):
        report = run_seed(seed)
        assert not report.violations, f"seed {seed}: {report.violations[0]}"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_rule_is_violated_in_fleets_with_rollouts_groups_and_shared_resources() -> None:
    for seed in range(WIDE_FROM, WIDE_FROM + WIDE_SEEDS):
        report = run_seed(seed)
        assert not report.violations, f"seed {seed}: {report.violations[0]}"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_controller_that_is_only_to_watch_does_nothing_whatever_reason_it_has() -> None:
    for seed in range(WATCHED_FROM, WATCHED_FROM + WATCHED_SEEDS):
        report = run_seed(seed)
        assert not report.violations, f"seed {seed}: {report.violations[0]}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_has_found_stays_mended(seed: int) -> None:
    assert not run_seed(seed).violations, FOUND[seed]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", FOUND_SOON, ids=lambda mutant: mutant.name)
def test_a_known_bug_is_found(mutant: Mutant) -> None:
    with mutated(mutant):
        assert first_failure(mutant.seeds(LOOKED_FOR_FROM.get(mutant.name, 1), LOOKED_FOR)) is not None


def test_a_failing_schedule_is_shrunk_to_what_it_needs() -> None:
    assert shrunk(lambda kept: {3, 7} <= set(kept), range(12)) == (3, 7)


@pytest.mark.slow
def test_a_shrunk_schedule_still_fails() -> None:
    with mutated(next(mutant for mutant in MUTANTS if mutant.name == "token of the attempt")):
        report = run_seed(1)
        assert smallest(report) == (), "it needs no fault at all"


@pytest.mark.slow
def test_a_run_replays_exactly_whatever_the_order_of_sets() -> None:
    def digest(hash_seed: str) -> str:
        argv = [sys.executable, "-m", "tests.torture", "--from", "17", "--seeds", "1"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
        return found.stdout.rpartition("digest ")[2]

    assert digest("1") == digest("2")


def test_every_kind_of_fault_comes_in_a_few_hundred_seeds() -> None:
    kinds = {fault.kind for seed in range(300) for fault in faults_of(seed)}
    assert kinds == set(PLAIN_KINDS)
    kinds = {fault.kind for seed in range(WIDE_FROM, WIDE_FROM + 300) for fault in faults_of(seed)}
    assert kinds == set(FaultKind)
