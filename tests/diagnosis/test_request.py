"""One request's time, in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from fleetctl.core.diagnosis.request import explain_request
from fleetctl.model.request_trace import RequestAttempt, RequestTrace

AHEAD = RequestAttempt(
    replica="short-2", at_s=0.12, prompt_tokens=480, prompts_ahead=3, prompt_tokens_ahead=9000, requests_beside=11,
    predicted_ttft_s=1.2,
)  # fmt: skip
LATE = RequestTrace(
    seq=1, id="req-1", lane="short", client="0000002a", at=datetime(2026, 1, 5, 12, tzinfo=UTC), is_stream=True,
    prompt_tokens=480, cached_tokens=0, output_tokens=129, output_tokens_max=0, queue_wait_s=0.12, queued_behind=4,
    ttft_s=1.4, total_s=3.2, gaps=128, gaps_over=1, gap_s_mean=0.014, gap_s_p99=0.032, gap_s_max=0.061,
    attempts=(AHEAD,), ending="complete", verdict="ttft", ttft_limit_s=0.3, gap_limit_s=0.05, max_wait_s=0.2,
)  # fmt: skip


def test_prompts_before_it_are_named_with_their_tokens_and_their_replica():
    found = explain_request(LATE)
    assert "first token came after 1.4s of 300ms promised" in found.headline
    assert "9,000 prompt tokens of 3 others went before it on short-2" in found.headline
    assert found.steps[0] == "waited 120ms in the queue of short, behind 4 others, of 200ms at most"
    assert "beside 11 others" in found.steps[1]


def test_a_wait_that_is_most_of_it_comes_first():
    found = explain_request(replace(LATE, queue_wait_s=1.3))
    assert found.headline.endswith("1.3s of it in the lane's queue")


def test_a_replica_that_took_far_longer_than_predicted_is_named():
    quick = replace(AHEAD, prompts_ahead=0, prompt_tokens_ahead=0, predicted_ttft_s=0.2)
    assert "short-2 took 1.28s, far longer than predicted" in explain_request(replace(LATE, attempts=(quick,))).headline


def test_each_replica_that_failed_it_is_named():
    failed = replace(AHEAD, replica="short-1", failure="closed")
    found = explain_request(replace(LATE, attempts=(failed, AHEAD)))
    assert "1 replica failed it" in found.headline
    assert any("short-1" in step and "closed" in step for step in found.steps)


def test_a_refusal_says_why_and_when_to_come_back():
    refused = replace(
        LATE, verdict="refused", ending="refused", refusal="predicted-wait", retry_after_s=2.0, attempts=(), gaps=0,
        queue_wait_s=None, ttft_s=None, total_s=0.0,
    )  # fmt: skip
    found = explain_request(refused)
    assert "predicted-wait" in found.headline
    assert "come back in 2s" in found.steps[-1]


def test_a_good_one_is_called_good():
    assert explain_request(replace(LATE, verdict="good", ttft_s=0.2)).headline.startswith("good")


def test_what_was_predicted_of_a_refused_one_stands_beside_the_limit_and_it_was_never_sent():
    refused = replace(
        LATE, verdict="refused", ending="refused", refusal="predicted-wait", retry_after_s=10.5, predicted_wait_s=4.2,
        attempts=(), gaps=0, queue_wait_s=None, queued_behind=None, ttft_s=None, total_s=50e-6,
    )  # fmt: skip
    found = explain_request(refused)
    assert found.steps == (
        "refused: predicted-wait, 4.2s predicted where short lets requests wait 200ms at most; it was told to come back in 10.5s",
    )
    sooner = explain_request(replace(refused, predicted_wait_s=0.1))
    assert "no replica could have answered it in time" in sooner.steps[-1]


def test_a_rejected_one_says_by_whom_and_with_what_status():
    found = explain_request(
        replace(LATE, verdict="rejected", ending="rejected", rejected_status=404, ttft_s=None, gaps=0)
    )
    assert found.headline == "rejected: short-2 answered 404 after 3.2s"
    assert found.steps[1].startswith("rejected after 3.08s on short-2")


def test_an_answer_that_came_whole_lacks_no_first_token():
    found = explain_request(replace(LATE, verdict="good", is_stream=False, ttft_s=None, gaps=0))
    assert found.steps[1].startswith("answered whole after 3.08s on short-2")
    assert found.steps[1].endswith("first token predicted 1.08s")
    assert not any("no first token" in step for step in found.steps)


def test_the_servers_bounds_of_an_answer_are_named_and_which_of_them_ended_it():
    found = explain_request(replace(LATE, verdict="good", limited="max_tokens=129", bounded_by="max_tokens"))
    assert "the server set the length of its answer: max_tokens=129" in found.steps
    assert "the server's longest answer (generation.max_tokens) ended its answer after 129 tokens" in found.steps
    # A gateway of a later version may know bounds that this one does not.
    assert any("other ended its answer" in step for step in explain_request(replace(LATE, bounded_by="other")).steps)


def test_a_lost_prefix_says_what_was_lost_and_why():
    lost = "turn 12 of c-81: 27,800 cached tokens -> 0, replica short-2; short-1 had it, and failed"
    found = explain_request(replace(LATE, prefix_lost=lost, turn=12, conversation="c-81", preempted_beside=2))
    assert f"its prefix was lost: {lost}" in found.steps
    assert "short-2 preempted 2 streams while it was there, perhaps this one: its KV cache was full" in found.steps


def test_a_turn_that_found_its_prefix_says_how_much_of_it():
    turn = replace(LATE, conversation="c-81", turn=12, cached_tokens_before=400, cached_tokens_found=384)
    assert (
        "turn 12 of c-81: its engine found 384 tokens cached of 400 that the turn before had left"
        in explain_request(turn).steps
    )


def test_an_answer_that_looped_says_from_where_and_with_what_period():
    found = explain_request(replace(LATE, loop_begin_token=1310, loop_period_tokens=12))
    assert "its answer looped from about token 1,310 on, with a period of 12 tokens" in found.steps
