"""How long a client's connection may do what it does: idle, send a head, send a body, linger, close."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits


class ConnectionState(Enum):
    """What a connection is doing; each but SERVING has a time limit."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    SERVING = "serving"
    LINGERING = "lingering"
    CLOSING = "closing"


class ClientDeadline:
    """The time one connection has been in one state.

    It is the sweep that stamps states, so that requests pass through them without looking at a clock.
    """

    __slots__ = ("_limits", "_seen", "_since_s")

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._seen = (ConnectionState.SERVING, 0)
        self._since_s = 0.0

    def has_passed(self, state: ConnectionState, requests_begun: int, now_s: float) -> bool:
        """Return whether the connection has stayed in this state, of this request, for longer than it may."""
        if (state, requests_begun) != self._seen:
            self._seen, self._since_s = (state, requests_begun), now_s
            return False
        return now_s - self._since_s > self._limit_s(state)

    def _limit_s(self, state: ConnectionState) -> float:
        limits = self._limits
        match state:
            case ConnectionState.SERVING:
                return math.inf
            case ConnectionState.IDLE:
                return limits.idle_timeout_s
            case ConnectionState.HEAD:
                return limits.header_timeout_s
            case ConnectionState.BODY:
                return limits.body_timeout_s
            case ConnectionState.LINGERING:
                return limits.linger_s
            case ConnectionState.CLOSING:
                return limits.client_stall_s
