"""What the faces show of each of several gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.gateway_process import GatewayStatus

if TYPE_CHECKING:
    from fleetctl.model.gateway_process import ObservedGateway
    from fleetctl.model.observation import Observation


def gateway_statuses(observation: Observation | None) -> tuple[GatewayStatus, ...]:
    """Return each that there is to be, and each that lives beyond; none where one is alone."""
    if observation is None:
        return ()
    return tuple(
        _status(each, observation.gateway_stall if each.number == 1 else each.stall)
        for each in observation.gateways
        if each.is_wanted or each.is_alive
    )


def _status(seen: ObservedGateway, stall: str) -> GatewayStatus:
    snapshot = seen.snapshot
    if snapshot is None:
        return GatewayStatus(
            number=seen.number, answers=False, stall=stall, is_leaving=not seen.is_wanted, place=seen.place
        )
    return GatewayStatus(
        number=seen.number,
        answers=True,
        pid=snapshot.pid,
        stall=stall,
        table_version=snapshot.table_version,
        in_flight=sum(lane.in_flight for lane in snapshot.lanes),
        queued=sum(lane.queued for lane in snapshot.lanes),
        cpu_share=snapshot.loop.cpu_share if snapshot.loop is not None else None,
        is_leaving=not seen.is_wanted,
        place=seen.place,
    )
