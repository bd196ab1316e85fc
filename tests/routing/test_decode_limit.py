"""How many streams decode at once: as many as keep the gaps between their tokens inside the promise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.routing.borrowed import BorrowedAnswers
from fleetctl.core.routing.decode_limit import DecodeLimit


@given(st.lists(st.tuples(st.floats(0.01, 20.0), st.integers(1, 200)), max_size=100), st.integers(1, 128))
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


def test_a_lane_leaves_replicas_alone_where_its_requests_miss_their_promise_and_tries_again():
    answers = BorrowedAnswers()
    for _ in range(20):
        answers.note(0.0, missed=False)
    assert answers.is_worth_it(0.0)
    for _ in range(3):
        answers.note(1.0, missed=True)
    assert not answers.is_worth_it(60.0)
    assert answers.is_worth_it(61.1)
    for _ in range(2):
        answers.note(62.0, missed=True)
    assert not answers.is_worth_it(63.0)
