"""The policies in a profile: open names, checked against what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl import plugins
from fleetctl.config.faults import ProfileFault
from fleetctl.model.workflows import PLAIN_ORDER
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator


def policy_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield a fault for each policy in the raw tree that is not there; what is no text is the shape's to refuse."""
    control = tree.get("control")
    known = plugins.installed(plugins.POLICIES)
    for key in ("policy", "shadow_policy"):
        named = control.get(key) if isinstance(control, dict) else None
        # An empty shadow_policy is none; an empty policy is the shape's to refuse.
        if isinstance(named, str) and named and named not in known:
            message = f"{named!r} is not an installed policy{suggest(named, known)}; installed: {', '.join(known)}"
            yield ProfileFault(path=("control", key), message=message)
    yield from _order_faults(tree)


def _order_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield a fault for an order of workflows' calls that is not there."""
    workflows = tree.get("workflows")
    named = workflows.get("order") if isinstance(workflows, dict) else None
    known = dict.fromkeys((PLAIN_ORDER, *plugins.installed(plugins.ORDERS)))
    if isinstance(named, str) and named and named not in known:
        message = f"{named!r} is not an installed order{suggest(named, known)}; installed: {', '.join(known)}"
        yield ProfileFault(path=("workflows", "order"), message=message)
