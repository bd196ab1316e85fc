"""What is done to a fleet's gateways; `number` says which of several."""

from __future__ import annotations

from typing import ClassVar

from fleetctl.model.action import GatewayAction


class StartGateway(GatewayAction, frozen=True, kw_only=True, tag="start-gateway"):
    """Start a gateway process; it is not answering or not there."""

    order: ClassVar[int] = 0
    number: int = 1


class StopGateway(GatewayAction, frozen=True, kw_only=True, tag="stop-gateway"):
    """Stop a gateway: the fleet is down and no replica is left, or it lives and does not answer, or there are to be fewer."""

    order: ClassVar[int] = 100
    number: int = 1
    at_once: bool = False  # it does not progress: nothing in flight can finish
    may_finish: bool = False  # others serve on: it has all the time that its last requests take
