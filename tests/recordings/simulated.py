"""A recording of a fleet that is itself simulated: what is true of it is known."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.reconcile import reconcile
from fleetctl.model.recording import RecordedRequest, RecordingEnd, RecordingHeader, RecordingRow
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.simulation import paced
from fleetctl.recordings.writer import RecordingWriter
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import EPOCH, SimulatedWorld
from fleetctl.testing import samples
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from fleetctl.load.trace import Arrival
    from fleetctl.model.desired import Desired
    from fleetctl.sim.exchange import SimulatedExchange


class RecordedWorld(SimulatedWorld):
    """Keeps what becomes of every request."""

    def __init__(self, desired: Desired, spec: SimulationSpec) -> None:
        self.recorded: list[RecordedRequest] = []
        super().__init__(desired, reconcile, spec, offerings=offerings())

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        request, watch = exchange.request, exchange.request.stopwatch
        ending = watch.ending.value if watch.ending is not None else "refused"
        self.recorded.append(
            RecordedRequest(
                at=EPOCH + timedelta(seconds=watch.started_s),
                lane=request.lane.route.name,
                client=exchange.row.client or "c1",
                tier=request.tier.spec.name if request.tier is not None else "",
                is_stream=request.is_stream,
                prompt_tokens=exchange.row.prompt_tokens,
                output_tokens=0 if request.refused else exchange.output_tokens,
                queue_wait_s=watch.wait_s,
                ttft_s=watch.ttft_s,
                gap_s_mean=watch.mean_gap_s,
                total_s=watch.ended_s - watch.started_s,
                refusal=request.refused[0].value if request.refused is not None else "",
                ending=ending,
                verdict=watch.breach.value if watch.breach is not None else "good" if watch.is_good else ending,
            )
        )


def record_simulated(
    desired: Desired,
    trace: Sequence[Arrival],
    path: Path,
    *,
    settled: dict[str, int],
    more: Iterable[RecordingRow] = (),
) -> RecordedWorld:
    """Simulate a fleet and write what a recorder would have."""
    duration_s = trace[-1].at_s
    spec = paced(desired.profile, SimulationSpec(settled=settled, duration_s=duration_s))
    world = RecordedWorld(desired, spec)
    world.run(trace)
    header = RecordingHeader(fleet=desired.fleet, began_at=EPOCH, written_by="0", desired=desired)
    replicas = [
        samples.replica(f"r{lane}{number}", fleet=desired.fleet, lane=lane, state=ReplicaState.READY, changed_at=EPOCH)
        for lane, count in settled.items()
        for number in range(count)
    ]
    with RecordingWriter(path) as writer:
        writer.write([RecordingRow(header=header)])
        writer.write(RecordingRow(replica=replica) for replica in replicas)
        writer.write(RecordingRow(request=request) for request in world.recorded)
        writer.write(more)
        writer.write([RecordingRow(end=RecordingEnd(at=EPOCH + timedelta(seconds=duration_s), requests_open=0))])
    return world
