"""The lane queue is bounded, in order, and never keeps anyone past a deadline."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fleetctl.core.admission.queue import LaneQueue, Ticket


def test_first_come_first_served():
    queue = LaneQueue[str](size_max=3)
    for name in "abc":
        queue.offer(name, now_s=0.0, wait_max_s=1.0)
    assert [t.item for t in (queue.pop(), queue.pop(), queue.pop()) if t] == ["a", "b", "c"]
    assert queue.pop() is None


def test_a_full_queue_refuses_but_takes_back_what_was_promised():
    queue = LaneQueue[str](size_max=1)
    assert queue.offer("a", now_s=0.0, wait_max_s=1.0)
    assert queue.offer("b", now_s=0.0, wait_max_s=1.0) is None
    queue.requeue("displaced", now_s=0.0, wait_max_s=1.0)
    assert queue.peek() == "displaced"
    assert len(queue) == 2


def test_the_late_are_taken_out_and_the_rest_stay():
    queue = LaneQueue[str](size_max=5)
    queue.offer("patient", now_s=0.0, wait_max_s=9.0)
    queue.offer("hasty", now_s=0.0, wait_max_s=1.0)
    assert queue.next_deadline_s() == 1.0
    assert queue.expire(1.0) == ["hasty"]
    assert queue.next_deadline_s() == 9.0
    assert queue.oldest_wait_s(4.0) == 4.0


class QueueAgainstList(RuleBasedStateMachine):
    """Compares with the plainest possible queue."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = LaneQueue[int](size_max=6)
        self.model: list[Ticket[int]] = []
        self.now_s = 0.0
        self.made = 0

    @rule(wait=st.floats(0.0, 5.0))
    def offer(self, wait: float) -> None:
        self.made += 1
        ticket = self.queue.offer(self.made, now_s=self.now_s, wait_max_s=wait)
        assert (ticket is None) == (len(self.model) >= 6)
        if ticket:
            self.model.append(ticket)

    @rule(wait=st.floats(0.0, 5.0))
    def requeue(self, wait: float) -> None:
        self.made += 1
        self.model.insert(0, self.queue.requeue(self.made, now_s=self.now_s, wait_max_s=wait))

    @rule()
    def pop(self) -> None:
        ticket = self.queue.pop()
        assert ticket is (self.model.pop(0) if self.model else None)

    @rule(index=st.integers(0, 20))
    def cancel(self, index: int) -> None:
        if self.model:
            ticket = self.model.pop(index % len(self.model))
            self.queue.cancel(ticket)
            self.queue.cancel(ticket)

    @rule(by=st.floats(0.0, 3.0))
    def expire(self, by: float) -> None:
        self.now_s += by
        late = [t.item for t in self.model if t.deadline_s <= self.now_s]
        assert self.queue.expire(self.now_s) == late
        self.model = [t for t in self.model if t.deadline_s > self.now_s]

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.queue) == len(self.model)
        assert self.queue.peek() == (self.model[0].item if self.model else None)


TestQueue = QueueAgainstList.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
