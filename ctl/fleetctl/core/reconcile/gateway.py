"""Keeps the gateway process there: started when dead, ended when it lives and is silent, each with patience."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import GATEWAY_SILENT_S, GATEWAY_START_S, backoff_s, since_s
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import AnyAction, Memory
    from fleetctl.model.observation import Observation


def keep_gateway(observation: Observation, memory: Memory, now: datetime) -> tuple[AnyAction | None, Memory, Reason]:
    """Return what the gateway needs, the memory of it, and why."""
    if observation.gateway is not None:
        return None, memory, ReasonCode.GATEWAY_READY.because(f"answers, table {observation.gateway.table_version}")
    silent_s = since_s(memory.gateway_missing_since, now)
    started_s = since_s(memory.gateway_started_at, now)
    if observation.gateway_alive and observation.gateway_stall:
        return _stalled(observation, memory)
    if observation.gateway_alive and not observation.gateway_beating:
        reason = f"no answer and no heartbeat for {format_duration(silent_s)}; it may wait for a processor or the disk"
        return None, memory, ReasonCode.GATEWAY_SILENT.because(reason)
    if observation.gateway_alive:
        return _silent(memory, silent_s, started_s)
    wait_s = backoff_s(memory.gateway_starts - 1) - started_s
    if memory.gateway_started_at is not None and memory.gateway_starts and wait_s > 0:
        return (
            None,
            memory,
            ReasonCode.START_BACKOFF.because(
                f"{memory.gateway_starts} starts failed; the next in {format_duration(wait_s)}"
            ),
        )
    reason = f"not running; {memory.gateway_starts} starts in a row without an answer"
    started = replace(memory, gateway_started_at=now, gateway_starts=memory.gateway_starts + 1)
    return (
        StartGateway(code=ReasonCode.GATEWAY_MISSING, reason=reason),
        started,
        ReasonCode.GATEWAY_MISSING.because(reason),
    )


def _stalled(observation: Observation, memory: Memory) -> tuple[AnyAction | None, Memory, Reason]:
    reason = f"{observation.gateway_stall}; ended, to be started afresh"
    return (
        StopGateway(code=ReasonCode.GATEWAY_SILENT, reason=reason, at_once=True),
        replace(memory, gateway_missing_since=None, gateway_started_at=None, gateway_starts=0),
        ReasonCode.GATEWAY_SILENT.because(reason),
    )


def _silent(memory: Memory, silent_s: float, started_s: float) -> tuple[AnyAction | None, Memory, Reason]:
    is_starting = memory.gateway_started_at is not None and started_s < GATEWAY_START_S
    if silent_s < GATEWAY_SILENT_S or is_starting:
        return None, memory, ReasonCode.GATEWAY_SILENT.because(f"alive, no answer for {format_duration(silent_s)}")
    reason = f"alive, but no answer for {format_duration(silent_s)}: ended, to be started afresh"
    return (
        StopGateway(code=ReasonCode.GATEWAY_SILENT, reason=reason),
        replace(memory, gateway_missing_since=None),
        ReasonCode.GATEWAY_SILENT.because(reason),
    )
