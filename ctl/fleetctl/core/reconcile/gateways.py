"""Keeps each of several gateways as the only one is kept, without regard to the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.core.reconcile.gateway import keep_gateway
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.gateway_process import GatewayMemory
from fleetctl.model.reason import Reason, ReasonCode

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import AnyAction, Memory
    from fleetctl.model.gateway_process import ObservedGateway
    from fleetctl.model.observation import Observation


def keep_gateways(
    observation: Observation, memory: Memory, now: datetime
) -> tuple[list[AnyAction], Memory, tuple[Reason, ...]]:
    """Return what the gateways need, the memory of them, and why."""
    if observation.gateways_are_remote:
        return _keep_remote(observation, memory, now)
    others = {each.number: each for each in observation.gateways if each.number > 1}
    first = next((each for each in observation.gateways if each.number == 1), None)
    seen = observation if first is None else replace(observation, gateway=first.snapshot)
    action, memory, reason = keep_gateway(seen, memory, now)
    actions, reasons = ([action] if action is not None else []), [reason]
    kept: dict[str, GatewayMemory] = {}
    for number, each in others.items():
        action, kept[str(number)], reason = _keep(observation, each, memory, now)
        if action is not None:
            actions.append(action)
        reasons.append(reason)
    return actions, changed(memory, other_gateways=kept), tuple(reasons)


def _keep_remote(
    observation: Observation, memory: Memory, now: datetime
) -> tuple[list[AnyAction], Memory, tuple[Reason, ...]]:
    """End each that lives and is silent; whoever started it starts another. One that is being ended finishes what it has."""
    actions: list[AnyAction] = []
    reasons: list[Reason] = []
    kept: dict[str, GatewayMemory] = {}
    for each in observation.gateways:
        if not each.is_wanted:
            reasons.append(ReasonCode.GATEWAY_READY.because(f"{each.called}: being ended, finishes what it has"))
            continue
        action, kept[str(each.number)], reason = _keep(observation, each, memory, now)
        if isinstance(action, StopGateway):  # one that has gone since is started by whoever keeps it
            actions.append(action)
        reasons.append(reason)
    if not any(each.is_wanted for each in observation.gateways):
        reasons.append(ReasonCode.GATEWAY_MISSING.because("no gateway lives; whoever keeps them starts them"))
    return actions, replace(memory, other_gateways=kept), tuple(reasons)


def _keep(
    observation: Observation, seen: ObservedGateway, memory: Memory, now: datetime
) -> tuple[AnyAction | None, GatewayMemory, Reason]:
    before = _brought_up(memory.other_gateways.get(str(seen.number), GatewayMemory()), seen, now)
    if not seen.is_wanted:
        return _given_up(seen, before)
    as_only = replace(
        observation,
        gateway=seen.snapshot,
        gateway_alive=seen.is_alive,
        gateway_stall=seen.stall,
        gateway_beating=seen.is_beating,
        gateway_lost_s=seen.lost_s,
    )
    as_only_memory = replace(
        memory,
        gateway_missing_since=before.missing_since,
        gateway_started_at=before.started_at,
        gateway_starts=before.starts,
    )
    action, after, reason = keep_gateway(as_only, as_only_memory, now)
    reason = reason.code.because(f"{seen.called}: {reason.message}")
    if isinstance(action, StartGateway | StopGateway):
        action = _of(action, seen)
    kept = GatewayMemory(
        missing_since=after.gateway_missing_since, started_at=after.gateway_started_at, starts=after.gateway_starts
    )
    return action, kept, reason


def _brought_up(before: GatewayMemory, seen: ObservedGateway, now: datetime) -> GatewayMemory:
    """Return the memory as update_memory brings up that of the only gateway."""
    if seen.snapshot is not None:
        return replace(before, missing_since=None, starts=0)
    lost = timedelta(seconds=seen.lost_s if seen.is_alive else 0.0)
    return replace(before, missing_since=min(now, (before.missing_since or now) + lost))


def _given_up(seen: ObservedGateway, before: GatewayMemory) -> tuple[AnyAction | None, GatewayMemory, Reason]:
    reason = f"gateway {seen.number}: the profile has fewer; it takes no connections and ends with its last request"
    if not seen.is_alive:
        return None, before, ReasonCode.GATEWAY_READY.because(f"gateway {seen.number}: ended, as the profile has fewer")
    action = StopGateway(code=ReasonCode.GATEWAY_SURPLUS, reason=reason, number=seen.number, may_finish=True)
    return action, before, ReasonCode.GATEWAY_SURPLUS.because(reason)


def _of(action: StartGateway | StopGateway, seen: ObservedGateway) -> AnyAction:
    number, reason = seen.number, f"{seen.called}: {action.reason}"
    if isinstance(action, StartGateway):
        return StartGateway(code=action.code, reason=reason, number=number)
    return StopGateway(code=action.code, reason=reason, number=number, at_once=action.at_once)
