"""Orders of queues in the gateway: a package that is gone or fails takes no request along."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl import plugins
from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from fleetctl.core.workflows.order import CallOrder, QueuedCall

_log = logging.getLogger("fleetctl.gateway")


def installed_order(name: str) -> CallOrder | None:
    """Return the order of this name. None: it does not load, which the log has, and requests leave as they came."""
    try:
        return GuardedOrder(name, plugins.load_order(name))
    except FleetctlError as error:
        _log.error("requests leave their queues as they came: %s; %s", error.message, error.hint)
        return None


class GuardedOrder:
    """An order of anybody's: what it raises is in the log, once, and its request leaves as it came."""

    __slots__ = ("_has_failed", "_name", "_order")

    def __init__(self, name: str, order: CallOrder) -> None:
        self._name = name
        self._order = order
        self._has_failed = False

    def __call__(self, request: QueuedCall, now_s: float, /) -> float:
        """Return the order's urgency; 0 where it raises."""
        try:
            return self._order(request, now_s)
        except Exception:  # noqa: BLE001  # a third party's code may fail in any way, and somebody waits
            if not self._has_failed:
                self._has_failed = True
                _log.exception("order %r fails: its requests leave their queues as they came", self._name)
            return 0.0
