"""Which requests are retries of refused ones."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fleetctl.core.fairness.retries import REFUSED_MAX, RefusedRequests, RetryMark

WINDOW_S = 70.0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans(), st.floats(0.0, 30.0)), max_size=60))
def test_a_retry_is_a_refused_request_that_comes_again_within_the_window_and_counts_once(
    steps: list[tuple[int, int, bool, float]],
) -> None:
    refused, now_s = RefusedRequests(), 0.0
    expected: dict[tuple[int, int], float] = {}
    for client, fingerprint, is_refused, gap_s in steps:
        now_s += gap_s
        before_s = expected.pop((client, fingerprint), None)
        is_again = before_s is not None and before_s > now_s - WINDOW_S
        assert refused.is_retry(client, RetryMark(fingerprint), now_s) is is_again
        if is_refused:
            refused.refused(client, RetryMark(fingerprint), now_s)
            expected[client, fingerprint] = now_s


def test_what_a_client_declares_is_a_retry_whatever_its_body() -> None:
    refused = RefusedRequests()
    assert refused.is_retry(1, RetryMark(7, is_declared=True), 0.0)
    assert refused.is_retry(1, RetryMark(None, is_declared=True), 0.0)
    assert not refused.is_retry(1, RetryMark(None), 0.0)


def test_a_flood_of_refusals_is_remembered_in_bounded_memory_the_newest_first() -> None:
    refused = RefusedRequests()
    for number in range(3 * REFUSED_MAX):
        refused.refused(number % 7, RetryMark(number), 0.001 * number)
    assert len(refused) == REFUSED_MAX
    last = 3 * REFUSED_MAX - 1
    assert refused.is_retry(last % 7, RetryMark(last), 13.0)
    assert not refused.is_retry(0, RetryMark(0), 13.0)
    refused.refused(1, RetryMark(1), 200.0)
    assert len(refused) == 1, "what is too old is forgotten"
