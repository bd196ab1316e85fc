"""On what terms something is set by hand: by whom, why, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from fleetctl.errors import ConfigError
from fleetctl.model.desired import Terms
from fleetctl.secret_shapes import is_secret_shaped

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

Until: TypeAlias = datetime | timedelta | None  # what clocks then show, or how long from now; None: until it is ended


def new_terms(site: Site, *, until: Until = None, reason: str = "") -> Terms:
    """Return the terms of something that is set now. Raises ConfigError on an end that has passed, or a secret as the reason."""
    now = site.clock.now()
    end = now + until if isinstance(until, timedelta) else until
    if end is not None and end <= now:
        raise ConfigError(f"it would end at {end:%Y-%m-%d %H:%M:%S} UTC, which has passed", hint="give a later time")
    if is_secret_shaped(reason):
        raise ConfigError(
            "the reason looks like a secret, and reasons are kept and shown", hint="say it in other words"
        )
    return Terms(by=site.actor.name, since=now, until=end, reason=reason, is_duration=isinstance(until, timedelta))
