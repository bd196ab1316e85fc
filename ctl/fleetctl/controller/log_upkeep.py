"""Keeps the logs of a fleet's processes within bounds while its controller lives."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fleetctl.log_files import LogLimits, keep_within

if TYPE_CHECKING:
    from fleetctl.controller.world import World

_log = logging.getLogger("fleetctl.controller")
# A log grows past its bound by what its process writes in this time.
_EVERY_S = 5.0
_LIMITS = LogLimits()


async def keep_logs(world: World, limits: LogLimits = _LIMITS) -> None:
    """Look at every log for ever; what cannot be done is logged once, until it can."""
    last_error = ""
    while True:
        await world.clock.sleep(_EVERY_S)
        living = {record.id for record in world.store.replicas() if record.state.is_live}
        now_s = world.clock.now().timestamp()
        try:
            await asyncio.to_thread(keep_within, world.paths.logs, limits, living=living, now_s=now_s)
        except OSError as exc:
            if str(exc) != last_error:
                _log.error("logs cannot be kept within bounds: %s", exc)
            last_error = str(exc)
        else:
            last_error = ""
