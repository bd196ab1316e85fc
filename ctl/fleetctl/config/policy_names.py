"""The policy in a profile: an open name, checked against what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl import plugins
from fleetctl.config.faults import ProfileFault
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator


def policy_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield a fault for a policy in the raw tree that is not there; what is no text is the shape's to refuse."""
    control = tree.get("control")
    named = control.get("policy") if isinstance(control, dict) else None
    known = plugins.installed(plugins.POLICIES)
    if isinstance(named, str) and named not in known:
        message = f"{named!r} is not an installed policy{suggest(named, known)}; installed: {', '.join(known)}"
        yield ProfileFault(path=("control", "policy"), message=message)
