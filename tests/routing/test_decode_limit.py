"""How many streams decode at once: as many as keep the gaps between their tokens inside the promise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.routing.borrowed import BorrowedAnswers
from fleetctl.core.routing.decode_limit import DecodeLimit


@given(
    st.lists(st.tuples(st.just(0.0) | st.floats(0.01, 20.0), st.integers(1, 200)), max_size=100), st.integers(1, 128)
)
def test_the_limit_lies_between_one_and_what_the_engine_was_started_with(seconds, ceiling):
    limit = DecodeLimit()
    for ratio, in_flight in seconds:
        limit.note(ratio, in_flight=in_flight, ceiling=ceiling)
        assert 1 <= limit.of(ceiling) <= ceiling


@pytest.mark.parametrize(("first_ms", "each_ms"), [(44.0, 0.78), (20.0, 2.0), (5.0, 0.5)])
def test_it_settles_where_the_mean_gap_keeps_a_margin_to_the_promise(first_ms, each_ms):
    limit, promised_ms, ceiling = DecodeLimit(), 80.0, 512
    seen = []
    for second in range(300):
        streams = limit.of(ceiling)
        ratio = (first_ms + each_ms * streams) / promised_ms
        limit.note(ratio, in_flight=streams, ceiling=ceiling)
        seen += [ratio] if second > 150 else []
    assert max(seen) < 1.0
    assert min(seen) > 0.75


def test_a_replica_that_is_not_full_is_not_given_more_and_a_calm_one_gets_all_back():
    limit = DecodeLimit()
    limit.note(1.5, in_flight=40, ceiling=64)
    assert limit.of(64) == 36
    for _ in range(100):
        limit.note(0.5, in_flight=10, ceiling=64)
    assert limit.of(64) == 36
    for _ in range(100):
        limit.note(0.5, in_flight=limit.of(64), ceiling=64)
    assert math.isinf(limit.streams)


def test_fewer_streams_decode_where_more_gaps_are_over_the_promise_than_it_allows():
    limit, streams = DecodeLimit(), []
    for _ in range(200):
        in_flight = limit.of(64)
        missed = 0.05 if in_flight > 20 else 0.0  # a step that computes a prompt beside 20 takes too long
        limit.note(0.8, in_flight=in_flight, ceiling=64, missed_share=missed, allowed_share=0.01)
        streams.append(in_flight)
    assert max(streams[30:]) <= 22
    assert min(streams[30:]) >= 17
    assert sum(count > 20 for count in streams[30:]) < 0.2 * 170


def test_a_pause_far_from_the_promise_takes_no_stream_away():
    limit = DecodeLimit()
    for _ in range(50):
        limit.note(0.4, in_flight=10, ceiling=64, missed_share=0.05, allowed_share=0.01)
    assert limit.of(64) == 64


def test_a_lane_leaves_replicas_alone_where_its_requests_miss_their_promise_and_tries_again_ever_later():
    answers = BorrowedAnswers()
    for _ in range(20):
        answers.note(0.0, sent_s=0.0, missed=False)
    assert answers.is_worth_it(0.0)
    now_s, waits = 1.0, []
    for _ in range(6):
        while answers.is_worth_it(now_s):
            answers.note(now_s, sent_s=now_s, missed=True)
        waits.append(next(wait for wait in range(100) if answers.is_worth_it(now_s + wait)))
        now_s += waits[-1]
    assert waits == [8, 15, 30, 60, 60, 60]


def test_what_was_sent_before_a_lane_was_kept_away_does_not_keep_it_away_for_longer():
    answers = BorrowedAnswers()
    for _ in range(40):
        answers.note(10.0, sent_s=5.0, missed=True)
    assert not answers.is_worth_it(17.0)
    assert answers.is_worth_it(17.5)


def test_what_was_missed_while_the_mean_was_over_holds_no_stream_back_after_it():
    limit = DecodeLimit()
    for _ in range(60):
        limit.note(16.0, in_flight=8, ceiling=8, missed_share=1.0, allowed_share=0.01)
    assert limit.of(8) == 1
    for _ in range(10):
        limit.note(0.4, in_flight=limit.of(8), ceiling=8, missed_share=0.0, allowed_share=0.01)
    assert limit.of(8) == 8
