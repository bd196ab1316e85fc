"""A cause is named where the requests met it, and is not where they did not."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.diagnosis.findings import Cause
from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.model.reason import ReasonCode
from fleetctl.model.request_trace import RunningAnswer
from fleetctl.model.subject import Subject
from tests.diagnosis.lanes import NOW, desired, diagnosed, ended, named, refused, served, uneven

if TYPE_CHECKING:
    from fleetctl.core.diagnosis.findings import Diagnosis

MAXIMUM = desired().profile.lane("long").replicas.max
MANY = 30  # streams at a replica, more than are planned


def test_one_of_two_that_most_of_what_missed_was_at_is_named():
    """19 of 34 misses at one that got 94 of 418 requests, none of its streams slow in the mean."""
    well = [ended(100 - n / 3.1, "r1") for n in range(309)] + [ended(100.03 - n, "r2") for n in range(75)]
    missed = [uneven(100.05 - n * 5, "r1") for n in range(15)] + [uneven(95.01 - n * 4, "r2") for n in range(19)]
    found = diagnosed([*well, *missed])
    assert found.causes[0].cause is Cause.SLOW_REPLICA
    assert "at r2" in found.causes[0].message


def test_one_that_has_become_slow_just_now_is_named():
    before = [ended(110 - n * 2, f"r{1 + n % 2}") for n in range(50)]
    slow = [uneven(9 - n, "r2", gap_s_mean=0.1) for n in range(4)]
    found = diagnosed([*before, *slow, *(ended(8.5 - n, "r1") for n in range(4))])
    assert found.causes[0].cause is Cause.SLOW_REPLICA
    assert "r2 streams 5.0 times as slowly" in found.causes[0].message


def test_one_that_halts_now_and_then_is_named_though_its_pace_is_as_good():
    well = [ended(110 - n * 2, f"r{1 + n % 2}") for n in range(50)]
    found = diagnosed([*well, *(uneven(9 - n, "r2") for n in range(5))])
    assert found.causes[0].cause is Cause.SLOW_REPLICA
    assert "r2 halts: its streams' longest gaps are 150ms, its peers' 30ms" in found.causes[0].message


def test_no_replica_is_named_where_both_are_alike():
    for seed in range(20):
        rng = random.Random(seed)
        both = [(uneven if rng.random() < 0.3 else ended)(100 - n, f"r{1 + rng.randrange(2)}") for n in range(90)]
        assert named(diagnosed(both), Cause.SLOW_REPLICA) is None


def test_gaps_of_few_streams_are_no_matter_of_too_many():
    both = [uneven(100 - n, f"r{1 + n % 2}", beside=1) for n in range(60)]
    found = diagnosed(both)
    assert found.causes == ()
    assert found.unexplained == ("long",)


def test_gaps_of_many_streams_are():
    found = diagnosed(uneven(100 - n, f"r{1 + n % 2}", beside=MANY) for n in range(60))
    assert [each.cause for each in found.causes] == [Cause.TOO_MANY_STREAMS]
    assert found.unexplained == ()


def test_gaps_beside_a_prompt_that_takes_a_long_step_are_too():
    # Each as long as one step, sent while the one before it streams.
    both = [uneven(100 - n, f"r{1 + n % 2}", prompt_tokens=200, predicted_s=0.3, total_s=5.0) for n in range(60)]
    assert named(diagnosed(both), Cause.TOO_MANY_STREAMS) is not None


def test_what_a_slow_replica_explains_is_not_said_to_be_too_many_streams():
    well = [ended(110 - n * 2, f"r{1 + n % 2}") for n in range(50)]
    found = diagnosed([*well, *(uneven(9 - n, "r2", beside=MANY, gap_s_mean=0.1) for n in range(5))])
    assert [each.cause for each in found.causes] == [Cause.SLOW_REPLICA]


def test_a_client_that_has_stopped_is_not_named():
    before = [ended(110 - n, "r1", client="noisy", prompt_tokens=9000, total_s=2.0) for n in range(30)]
    after = [refused(60 - n) for n in range(40)]
    assert named(diagnosed([*before, *after]), Cause.NOISY_CLIENT) is None


def test_a_client_is_not_named_for_what_missed_elsewhere():
    noisy = [ended(110 - n, "r1", client="noisy", prompt_tokens=9000, ttft_s=0.9, predicted_s=0.9) for n in range(100)]
    elsewhere = [uneven(109.5 - n * 10, "r2") for n in range(10)]
    assert named(diagnosed([*noisy, *elsewhere]), Cause.NOISY_CLIENT) is None


def test_a_client_is_named_for_those_who_waited_behind_it_and_explains_no_more():
    noisy = [ended(110 - n, "r1", client="noisy", prompt_tokens=9000, ttft_s=0.9, predicted_s=0.9) for n in range(100)]
    behind = [ended(109.5 - n * 10, "r1", verdict="ttft", ttft_s=3.0, prompts_ahead=1) for n in range(6)]
    elsewhere = [ended(109.6 - n * 10, "r2", verdict="ttft", ttft_s=3.0) for n in range(4)]
    found = named(diagnosed([*noisy, *behind, *elsewhere]), Cause.NOISY_CLIENT)
    assert found is not None
    assert "6 of 10 missed requests of others" in found.evidence[1]
    assert found.share == 0.6


def test_long_prompts_that_were_over_before_the_first_miss_are_no_cause():
    before = [ended(115 - n / 10, "r1", prompt_tokens=20_000) for n in range(20)]
    usual = [ended(90 - n / 2, f"r{1 + n % 2}") for n in range(100)]
    behind_many = [ended(30 - n, "r1", verdict="ttft", ttft_s=3.0, prompts_ahead=4) for n in range(20)]
    assert named(diagnosed([*before, *usual, *behind_many]), Cause.LONG_PROMPTS_AHEAD) is None


def test_long_prompts_are_named_for_those_behind_them():
    long = [ended(100 - n * 5, "r1", prompt_tokens=20_000, ttft_s=1.9, total_s=3.0) for n in range(20)]
    usual = [ended(100.1 - n, f"r{1 + n % 2}") for n in range(100)]
    behind = [ended(99 - n * 5, "r1", verdict="ttft", ttft_s=3.0, prompts_ahead=1) for n in range(20)]
    found = named(diagnosed([*long, *usual, *behind]), Cause.LONG_PROMPTS_AHEAD)
    assert found is not None
    assert "20 of 20 missed requests" in found.evidence[1]


def test_no_remedy_asks_for_more_replicas_than_the_lane_may_have():
    requests = [uneven(100 - n, f"r{1 + n % 2}", beside=MANY) for n in range(60)]
    at_most = diagnosed(requests, wanted=MAXIMUM, ready=MAXIMUM).causes[0].remedy
    assert "fleetctl scale" not in at_most
    assert "lanes.long.replicas.max" in at_most
    assert "fleetctl scale long=3" in diagnosed(requests).causes[0].remedy


def died(seconds_ago: float) -> JournalEntry:
    return JournalEntry(
        seq=1, at=NOW - timedelta(seconds=seconds_ago), fleet="demo", subject=Subject.replica("r1"),
        kind=EntryKind.LIFECYCLE, action="mark-gone", code=ReasonCode.DIED, reason="exit 137",
    )  # fmt: skip


def test_a_replica_that_died_later_and_is_replaced_explains_no_miss_from_before():
    before = [uneven(110 - n, "r1", beside=MANY) for n in range(40)]
    assert named(diagnosed(before, (died(30.0),)), Cause.REPLICA_LOST) is None


def test_requests_that_its_death_broke_off_are_explained_by_it():
    broken = [
        ended(30.5, "r1", verdict="error", ending="error", failure="closed", total_s=0.4 + n / 9) for n in range(9)
    ]
    found = named(diagnosed(broken, (died(30.0),)), Cause.REPLICA_LOST)
    assert found is not None
    assert "on their way" not in found.remedy


def test_answers_as_long_as_those_of_public_conversations_balloon_none():
    for seed in range(20):
        rng = random.Random(seed)
        tokens = [max(1, round(rng.lognormvariate(4.86, 0.66))) for _ in range(200)]  # P50 129, P99 600
        both = [
            (uneven if rng.random() < 0.3 else ended)(
                100 - n / 2, f"r{1 + n % 2}", output_tokens=many, total_s=many / 30
            )
            for n, many in enumerate(tokens)
        ]
        assert named(diagnosed(both), Cause.BALLOONING_ANSWERS) is None


def test_an_answer_that_began_long_ago_and_balloons_is_named_with_what_came_beside_it():
    well = [ended(100 - n / 2, f"r{1 + n % 2}") for n in range(150)]
    balloon = ended(400.0, "r1", output_tokens=8000, total_s=390.0, client="endless")
    found = named(diagnosed([*well, balloon, *(uneven(90 - n * 5, "r1") for n in range(9))]), Cause.BALLOONING_ANSWERS)
    assert found is not None
    assert found.share == 1.0
    assert "the longest has 8,000, the median 50" in found.evidence
    assert "1 of them are client endless's" in found.evidence
    # At another replica it is nothing to what missed.
    elsewhere = [*well, balloon, *(uneven(90 - n * 5, "r2") for n in range(9))]
    assert named(diagnosed(elsewhere), Cause.BALLOONING_ANSWERS) is None


def under_way(seconds: float, replica: str, output_tokens: int) -> RunningAnswer:
    return RunningAnswer(
        id="r", lane="long", client="endless", replica=replica, at=NOW - timedelta(seconds=seconds), total_s=seconds,
        output_tokens=output_tokens,
    )  # fmt: skip


def test_answers_that_have_not_ended_yet_balloon_too_and_pile_up():
    """All that balloon in eight minutes are still there, and of the others only those of the last two."""
    well = [ended(100 - n / 2, f"r{1 + n % 2}") for n in range(150)]
    hurt = [uneven(90 - n * 5, "r1") for n in range(9)]
    balloons = tuple(under_way(480.0 - 8 * n, "r1", 4000 - 60 * n) for n in range(50))
    found = named(diagnosed([*well, *hurt], running=balloons), Cause.BALLOONING_ANSWERS)
    assert found is not None
    assert (found.share, found.evidence[0]) == (
        1.0,
        "50 of 209 answers that ended in 2m, or have not yet, are over 500 tokens",
    )
    usual = tuple(under_way(4.0, f"r{1 + n % 2}", 120) for n in range(50))
    assert named(diagnosed([*well, *hurt], running=usual), Cause.BALLOONING_ANSWERS) is None


def test_bounds_that_end_many_answers_are_named_though_nothing_is_missed():
    capped = [ended(100 - n, bounded_by="default_max_tokens" if n % 3 else "", client="greedy") for n in range(60)]
    found = diagnosed(capped)
    assert [each.cause for each in found.causes] == [Cause.CAPPED_ANSWERS]
    assert found.causes[0].evidence[0] == "40 of 60 answers in 2m, 40 of them by default_max_tokens"
    assert "lanes.long.generation.default_max_tokens" in found.causes[0].remedy
    few = [ended(100 - n, bounded_by="" if n % 10 else "max_tokens") for n in range(60)]
    assert diagnosed(few).causes == ()


def noticed(seconds_ago: float) -> JournalEntry:
    return JournalEntry(
        seq=1, at=NOW - timedelta(seconds=seconds_ago), fleet="demo", subject=Subject.replica("r1"),
        kind=EntryKind.NOTICE, action="notice", code=ReasonCode.SPOT_NOTICE, reason="the provider gives 5s notice",
    )  # fmt: skip


def test_one_that_was_alone_when_all_missed_is_not_named_and_the_lost_spot_node_is():
    """r1 was taken, r3 came four seconds later; what missed was between, at r2, which is as good as r3."""
    before = [ended(115 - n, f"r{1 + n % 2}") for n in range(45)]
    alone = [ended(64 - n * 0.25, "r2", verdict="ttft", ttft_s=3.0, total_s=3.5) for n in range(13)]
    after = [ended(59 - n, f"r{2 + n % 2}") for n in range(58)]
    replicas = (
        served("r1", since_s=900, until_s=65),
        served("r2", since_s=900),
        served("r3", since_s=60.5),
    )
    found = diagnosed([*before, *alone, *after], (noticed(66.0),), replicas=replicas)
    assert found.causes[0].cause is Cause.SPOT_LOST
    assert "13 of its last 13 missed requests came after that" in found.causes[0].evidence[-1]
    assert "they have been replaced since" in found.causes[0].message
    assert named(found, Cause.SLOW_REPLICA) is None


def test_a_notice_explains_no_miss_that_came_while_all_that_are_wanted_served():
    replicas = (served("r1", since_s=900, until_s=20), served("r2", since_s=900), served("r3", since_s=100))
    late = [ended(60 - n, "r2", verdict="ttft", ttft_s=3.0, total_s=3.5) for n in range(13)]
    well = [ended(60.5 - n, "r3") for n in range(30)]
    found = diagnosed([*late, *well], (noticed(21.0),), replicas=replicas)
    assert named(found, Cause.SPOT_LOST) is None
    assert named(found, Cause.SLOW_REPLICA) is not None


def rolled(before: int, after: int) -> Diagnosis:
    """Return what is found where so many of 60 missed at revision `a`, and of 40 since `b` is served, 40 s ago."""
    old = [(uneven if n < before else ended)(100 - n, f"r{1 + n % 2}") for n in range(60)]
    new = [(uneven if n < after else ended)(39 - n * 0.9, f"r{3 + n % 2}", gap_s_mean=0.4) for n in range(40)]
    replicas = (
        served("r1", since_s=900, until_s=41, launch_digest="a"),
        served("r3", since_s=40, launch_digest="b"),
        served("r4", since_s=40, launch_digest="b"),
    )
    return diagnosed([*old, *new], replicas=replicas)


def test_a_revision_whose_requests_miss_as_those_before_did_not_is_the_cause():
    found = rolled(0, 30)
    assert [each.cause for each in found.causes] == [Cause.BAD_REVISION]
    cause = found.causes[0]
    assert "rolled out 40s ago" in cause.message
    assert (
        "30 of 40 requests missed at its replicas (r3, r4), 0 of 60 at those of the revision before"
        in cause.evidence[0]
    )
    assert "time per output token 400ms, was 20ms (medians)" in cause.evidence
    assert cause.remedy == "fleetctl rollout undo demo"


def test_a_revision_so_slow_that_hardly_any_of_its_requests_has_ended_is_named():
    old = [ended(100 - n * 0.5, f"r{1 + n % 2}") for n in range(120)]
    new = [ended(39 - n, "r3", verdict="ttft", ttft_s=20.0, total_s=30.0) for n in range(2)]
    elsewhere = [refused(20.0)]
    found = named(
        diagnosed(
            [*old, *new, *elsewhere],
            replicas=(served("r2", since_s=900, launch_digest="a"), served("r3", since_s=40, launch_digest="b")),
        ),
        Cause.BAD_REVISION,
    )
    assert found is not None
    assert found.evidence[0].startswith("2 of 2 requests missed at its replicas (r3)")


@pytest.mark.parametrize(("before", "after"), [(30, 25), (0, 2)])
def test_a_revision_that_is_as_good_as_the_one_before_it_is_no_cause(before, after):
    assert named(rolled(before, after), Cause.BAD_REVISION) is None


def test_gaps_within_the_promise_or_as_many_streams_as_planned_are_no_matter_of_too_many():
    planned = round(desired().plan.lane("long").forecast.concurrency)
    for how in ({"beside": MANY, "gap_s_p99": 0.0446}, {"beside": planned - 2}):
        both = [uneven(100 - n, f"r{1 + n % 2}", **how) for n in range(60)]
        assert named(diagnosed(both), Cause.TOO_MANY_STREAMS) is None, how


def test_too_many_streams_are_named_with_the_figures_of_those_that_missed():
    found = named(diagnosed(uneven(100 - n, f"r{1 + n % 2}", beside=MANY) for n in range(60)), Cause.TOO_MANY_STREAMS)
    assert found is not None
    assert "60 of 60 missed requests were among 31 at their replica (median), planned" in found.evidence[0]
    assert found.evidence[1] == "their ITL P99 is 150ms (median), promised 80ms"
