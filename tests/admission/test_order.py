"""A queue with an order of its own: lower ranks go first, and nobody starves."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fleetctl.core.admission.order import BYPASSED_MAX
from fleetctl.core.admission.queue import LaneQueue


class ByLength:
    """Short words first."""

    def rank(self, item: str, now_s: float) -> float:
        del now_s
        return float(len(item))


def ranked(size_max: int = 1000) -> LaneQueue[str]:
    queue = LaneQueue[str](size_max=size_max)
    queue.order = ByLength()
    return queue


def drained(queue: LaneQueue[str]) -> list[str]:
    return [ticket.item for ticket in iter(queue.pop, None)]


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=BYPASSED_MAX))
def test_lower_ranks_go_first_and_equal_ones_as_they_came(words: list[str]) -> None:
    queue = ranked()
    for word in words:
        assert queue.offer(word, now_s=0.0, wait_max_s=1.0)
    assert drained(queue) == sorted(words, key=len)


def test_who_is_shown_next_is_who_leaves_next() -> None:
    queue = ranked()
    for word in ("aaa", "a", "aa"):
        queue.offer(word, now_s=0.0, wait_max_s=1.0)
    while (shown := queue.peek()) is not None:
        popped = queue.pop()
        assert popped is not None
        assert popped.item == shown


def test_whoever_has_waited_longest_is_overtaken_by_so_many_and_no_more() -> None:
    queue = ranked()
    queue.offer("long", now_s=0.0, wait_max_s=99.0)
    served: list[str] = []
    for number in range(3 * BYPASSED_MAX):
        queue.offer("s", now_s=float(number), wait_max_s=99.0)
        popped = queue.pop()
        assert popped is not None
        served.append(popped.item)
    assert served.index("long") == BYPASSED_MAX


def test_what_was_promised_an_answer_goes_before_every_rank() -> None:
    queue = ranked()
    queue.offer("a", now_s=0.0, wait_max_s=1.0)
    queue.requeue("displaced", now_s=0.0, wait_max_s=1.0)
    assert drained(queue) == ["displaced", "a"]


def test_those_who_left_are_never_served() -> None:
    queue = ranked()
    tickets = [queue.offer(word, now_s=0.0, wait_max_s=1.0) for word in ("aaa", "a", "aa")]
    assert tickets[1] is not None
    queue.cancel(tickets[1])
    assert queue.size == 2
    assert drained(queue) == ["aa", "aaa"]
