"""Puts the order of a table's workflows into force in every lane's queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.workflows import PLAIN_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.workflows.order import CallOrder


def order_lanes(dispatcher: Dispatcher, order_of: Callable[[str], CallOrder | None]) -> None:
    """Let queues be left in the order that the table at work names; `order_of` knows what is installed, None is as they came.

    The shell calls it after each table that it applies, for it alone can load a package.
    """
    table = dispatcher.routes.table
    spec = table.workflows if table is not None else None
    order = order_of(spec.order) if spec is not None and spec.order != PLAIN_ORDER else None
    for lane in dispatcher.routes.lanes.values():
        lane.order_by(order)
