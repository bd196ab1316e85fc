"""Orders of queues: urgent calls go first within a bound, nobody starves, and a third party's works as the built-in one."""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl import plugins
from fleetctl.config.profile import parse_profile
from fleetctl.core.admission.order import BYPASSED_MAX
from fleetctl.core.admission.queue import LaneQueue
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.core.static_policy import static
from fleetctl.core.workflows.call import WorkflowCall
from fleetctl.core.workflows.order import BYPASS_SHARE, BoundedOrder, QueuedCall, by_deadline
from fleetctl.core.workflows.workflow import Workflow
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.gateway.orders import installed_order
from fleetctl.load.calls import TraceCall
from fleetctl.load.trace import Arrival
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.sim.fleets import desired_for, offerings
from tests.workflows.patient_order import by_time_queued
from tests.workflows.played import ACCOUNTS, Call, tracker_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleetctl.core.workflows.order import CallOrder
    from fleetctl.core.workflows.tracker import WorkflowTracker
    from fleetctl.model.desired import Desired
    from fleetctl.sim.exchange import SimulatedExchange

MAX_WAIT_S = 10.0
BOUND_S = BYPASS_SHARE * MAX_WAIT_S


@dataclass(slots=True, eq=False)
class Waiting:
    """One that waits; `urgency` is what the order of the tests says of it."""

    urgency: float = 0.0
    came_s: float = 0.0
    workflow: Workflow | None = None
    workflow_call: WorkflowCall | None = None
    stopwatch: RequestStopwatch = field(default_factory=lambda: RequestStopwatch(ACCOUNTS, 0.0))


def by_its_word(request: QueuedCall, now_s: float) -> float:
    del now_s
    assert isinstance(request, Waiting)
    return request.urgency


def queue_of(order: CallOrder = by_its_word) -> LaneQueue[Waiting]:
    queue = LaneQueue[Waiting](size_max=10_000)
    queue.order = BoundedOrder(order, max_wait_s=MAX_WAIT_S)
    return queue


ARRIVALS = st.lists(
    st.tuples(st.floats(0.0, 3.0), st.one_of(st.floats(0.0, 1.0), st.floats(allow_nan=True)), st.integers(0, 2)),
    max_size=60,
)


def served(arrivals: list[tuple[float, float, int]]) -> Iterator[tuple[Waiting, list[Waiting]]]:
    """Yield everybody as they leave, and who waits at that time: each comes a while after the last, and so many leave then."""
    queue, now_s = queue_of(), 0.0
    for after_s, urgency, leave in [*arrivals, (0.0, 0.0, 10_000)]:
        now_s += after_s
        queue.offer(Waiting(urgency=urgency, came_s=now_s), now_s=now_s, wait_max_s=MAX_WAIT_S)
        for _ in range(leave):
            ticket = queue.pop()
            if ticket is None:
                break
            yield ticket.item, [each.item for each in queue.tickets()]


@given(ARRIVALS)
def test_nobody_is_overtaken_by_any_who_comes_later_than_the_bound(arrivals: list[tuple[float, float, int]]) -> None:
    for first, others in served(arrivals):
        for other in others:
            assert first.came_s <= other.came_s + BOUND_S


@given(ARRIVALS)
def test_where_nobody_is_urgent_and_where_all_are_alike_it_is_first_come_first_served(
    arrivals: list[tuple[float, float, int]],
) -> None:
    for urgency in (0.0, 0.7, 1.0):
        alike = [(after_s, urgency, leave) for after_s, _, leave in arrivals]
        assert all(first.came_s <= other.came_s for first, others in served(alike) for other in others)


@given(ARRIVALS)
def test_everybody_is_served_once(arrivals: list[tuple[float, float, int]]) -> None:
    found = [first for first, _ in served(arrivals)]
    assert len(found) == len({id(each) for each in found}) == len(arrivals) + 1


@pytest.mark.parametrize("urgency", [math.nan, -1.0, -math.inf])
def test_what_is_no_urgency_waits_as_it_came(urgency: float) -> None:
    assert BoundedOrder(by_its_word, max_wait_s=MAX_WAIT_S).rank(Waiting(urgency=urgency), 7.0) == 7.0


@pytest.mark.parametrize("urgency", [1.0, 5.0, math.inf])
def test_the_most_urgent_counts_as_waiting_for_half_of_the_longest_wait(urgency: float) -> None:
    assert BoundedOrder(by_its_word, max_wait_s=MAX_WAIT_S).rank(Waiting(urgency=urgency), 7.0) == 7.0 - BOUND_S


def test_whoever_waits_longest_is_overtaken_by_a_bounded_number_too() -> None:
    queue = queue_of()
    queue.offer(Waiting(), now_s=0.0, wait_max_s=MAX_WAIT_S)
    for _ in range(100):
        queue.offer(Waiting(urgency=1.0), now_s=0.1, wait_max_s=MAX_WAIT_S)
    left = [ticket.item.urgency for ticket in iter(queue.pop, None)]
    assert left.index(0.0) == BYPASSED_MAX


# By deadline.


def begun(tracker: WorkflowTracker, call: Call) -> Waiting:
    from fleetctl.core.workflows.tracker import CallIdentity

    named = CallIdentity(workflow_id=call.workflow, kind=call.kind)
    found = tracker.begin(call, named, client=1, call_id=call.id, lane=call.lane, fingerprint=call.body)
    assert found is not None
    return Waiting(workflow=found[0], workflow_call=found[1])


def test_a_new_workflow_and_a_request_of_none_wait_as_they_came() -> None:
    tracker = tracker_of()
    assert by_deadline(Waiting(), 5.0) == 0.0
    assert by_deadline(begun(tracker, Call(5.0, 9.0, kind="agent")), 5.0) == 0.0
    assert by_deadline(begun(tracker, Call(5.0, 9.0, kind="unheard-of", workflow="v")), 500.0) == 0.0


def test_the_nearer_its_end_or_its_limit_the_more_urgent_is_a_call() -> None:
    """An agent of 7 steps that is to be done in 30 s."""
    tracker = tracker_of()
    steps = [begun(tracker, Call(float(step), step + 0.5, kind="agent")) for step in range(7)]
    assert [by_deadline(step, float(number)) for number, step in enumerate(steps)] == [
        pytest.approx(number / 7) for number in range(7)
    ]
    assert by_deadline(steps[1], 15.0) == pytest.approx(0.5), "late for its second step"
    assert by_deadline(steps[1], 300.0) == 1.0


def test_more_calls_than_a_kind_makes_are_no_more_than_most_urgent() -> None:
    tracker = tracker_of()
    steps = [begun(tracker, Call(0.0, 1.0, kind="free")) for _ in range(5)]
    assert [by_deadline(step, 0.0) for step in steps] == [0.0, 1.0, 1.0, 1.0, 1.0]


# As a plug-in.


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with three orders, one that is not there and one that raises, as pip would have unpacked it."""
    named = tmp_path / "acme_orders-1.0.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-orders\nVersion: 1.0\n")
    (named / "entry_points.txt").write_text(
        "[fleetctl.order]\npatient = tests.workflows.patient_order:by_time_queued\n"
        "gone = tests.workflows.patient_order:nothing\nbroken = math:fmod\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.path_importer_cache.pop(str(tmp_path), None)


PROFILE = """
apiVersion: fleetctl/v1
name: ordered
model: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: emulator
provider: local
workload: {peak_rps: 0.1, prompt_tokens: {p50: 1000, p99: 2000}, output_tokens: {p50: 60, p99: 200}}
lanes:
  all:
    slo: {ttft: {p99: 20s}}
    max_wait: 20s
    replicas: {min: 1, max: 1}
    spot: none
    launch: {max_num_seqs: 4}
workflows:
  order: NAME
  kinds:
    agent: {steps: 7, slo: {p99: 30s}}
capacity: {gpus: [L40S], max_nodes: 1}
"""


def test_a_profile_names_an_installed_order_and_no_other(acme: None) -> None:
    for name in ("plain", "deadline", "patient"):
        spec = parse_profile(PROFILE.replace("NAME", name), source="p").workflows
        assert spec is not None
        assert spec.order == name
    with pytest.raises(ConfigError, match=r"'patent' is not an installed order .did you mean 'patient'"):
        parse_profile(PROFILE.replace("NAME", "patent"), source="p")
    with pytest.raises(NotFoundError, match="no order named 'patent'"):
        plugins.load_order("patent")


class WatchedQueueWorld(SimulatedWorld):
    """Notes when everybody came, and when they were sent to a replica."""

    def __init__(self, desired: Desired) -> None:
        super().__init__(desired, static, SimulationSpec(settled={"all": 1}), offerings=offerings())
        self.sent: list[tuple[float, float]] = []

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        watch = exchange.request.stopwatch
        if watch.wait_s is not None:
            self.sent.append((watch.started_s + watch.wait_s, watch.started_s))

    def overtaken_s(self) -> float:
        """Return how much later at most somebody came who was sent before one that waited."""
        most_s = 0.0
        last_came_s = 0.0
        for sent_s, came_s in sorted(self.sent):
            if sent_s > came_s:
                most_s = max(most_s, last_came_s - came_s)
            last_came_s = max(last_came_s, came_s)
        return most_s


def crowd() -> list[Arrival]:
    found = []
    for number in range(12):
        at_s = number * 2.0
        found += [
            Arrival(
                at_s=at_s, prompt_tokens=1000, output_tokens=60, stream=True,
                call=TraceCall(
                    workflow=f"w{number}", kind="agent", name=str(step), number=step, count=7,
                    after=(step - 1,) if step else (), think_s=0.0,
                ),
            )
            for step in range(7)
        ]  # fmt: skip
        found += [Arrival(at_s=at_s, prompt_tokens=1000, output_tokens=60, stream=True) for _ in range(3)]
    return found


@pytest.mark.parametrize(("name", "overtakes"), [("plain", False), ("deadline", True), ("patient", True)])
def test_an_order_of_anybodys_package_works_in_the_dispatcher(acme: None, name: str, overtakes: bool) -> None:
    desired = desired_for(parse_profile(PROFILE.replace("NAME", name), source="p"))
    world = WatchedQueueWorld(desired)
    world.run(crowd())
    assert (world.overtaken_s() > 0.0) == overtakes
    assert world.overtaken_s() <= BYPASS_SHARE * desired.profile.lanes[0].max_wait_s
    (figures,) = world.workflows.figures(world.heap.now_s)
    assert figures.offered == 12
    assert world.violations() == ()


def test_the_order_changes_with_the_table_and_those_who_wait_keep_their_places() -> None:
    queue = queue_of()
    for urgency in (0.0, 0.9):
        queue.offer(Waiting(urgency=urgency), now_s=1.0, wait_max_s=MAX_WAIT_S)
    queue.order = BoundedOrder(by_deadline, max_wait_s=MAX_WAIT_S)
    queue.offer(Waiting(urgency=1.0), now_s=1.0, wait_max_s=MAX_WAIT_S)
    assert [ticket.item.urgency for ticket in iter(queue.pop, None)] == [0.9, 0.0, 1.0]


def test_a_gateway_serves_on_without_an_order_that_is_gone_and_with_one_that_fails(
    acme: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="fleetctl.gateway")
    assert installed_order("gone") is None
    assert installed_order("never-installed") is None
    broken = installed_order("broken")
    assert broken is not None
    assert [broken(Waiting(), 1.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert len(caplog.records) == 3, "a failing order is in the log once"
    deadline = installed_order("deadline")
    assert deadline is not None
    assert deadline(replace(Waiting()), 1.0) == 0.0
    assert by_time_queued(Waiting(), 1.0) == 0.0
