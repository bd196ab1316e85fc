"""Looks how far the downloads of weights have come that starting engines wait for."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from typing import TYPE_CHECKING

from fleetctl.engine_kit.hub_cache import absent_weights
from fleetctl.model.node import BootProgress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.controller.world import World
    from fleetctl.engine_kit.hub_cache import AbsentWeights
    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica

_log = logging.getLogger("fleetctl.controller")
_PHASE = "weights"
_READINGS = 8  # that a rate is taken over; a look comes every two seconds
_BEGUN_BYTES = 2**20  # configurations and tokenizers come first; most are smaller
_WHOLE_MAX = 0.99  # of a total that is the card's, while something is still missing


class WeightsWatch:
    """Holds the progress of each lane whose engines fetch their weights. Engines that share a cache share a download."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._progress: dict[str, BootProgress] = {}  # by lane
        self._readings: dict[str, deque[tuple[float, int]]] = {}  # model -> (when, bytes)
        self._last_error = ""

    def progress(self, replica: Replica) -> BootProgress | None:
        """Return how far the download is that a starting replica waits for; None: it waits for none."""
        return self._progress.get(replica.lane)

    async def look(self, starting: Iterable[Replica]) -> None:
        """Read the cache for the lanes of replicas that start; forget all others."""
        desired = self._world.store.fleet()
        if desired is None or not self._world.provider.capabilities.runs_here:
            self._progress = {}
            return
        lanes = {record.lane for record in starting}
        try:
            absent = await asyncio.to_thread(self._absent, desired, lanes)
        except OSError as exc:
            if str(exc) != self._last_error:
                _log.error("the cache of the hub cannot be read: %s", exc)
            self._last_error = str(exc)
            return
        self._last_error = ""
        # Until the files of weights themselves come, there is no rate; and what nobody fetches comes from elsewhere.
        fetched = {lane: each for lane, each in absent.items() if each.fetched_bytes >= _BEGUN_BYTES}
        models = {each.model for each in fetched.values()}
        self._readings = {model: readings for model, readings in self._readings.items() if model in models}
        rates = {each.model: self._bytes_per_s(each) for each in {e.model: e for e in fetched.values()}.values()}
        self._progress = {lane: _progress(each, rates[each.model]) for lane, each in fetched.items()}

    def _absent(self, desired: Desired, lanes: set[str]) -> dict[str, AbsentWeights]:
        found = {}
        for planned in desired.plan.lanes:
            if planned.lane not in lanes:
                continue
            engine, environment = self._world.engine_of(planned.engine), {**os.environ, **planned.launch.env}
            spec = desired.profile.lane(planned.lane)
            card = desired.plan.card_of(planned)
            absent = absent_weights(engine, spec, planned, card, environment=environment)
            if absent is not None:
                found[planned.lane] = absent
        return found

    def _bytes_per_s(self, absent: AbsentWeights) -> float:
        readings = self._readings.setdefault(absent.model, deque(maxlen=_READINGS))
        readings.append((self._world.clock.monotonic_s(), absent.fetched_bytes))
        (first_s, first), (last_s, last) = readings[0], readings[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else 0.0


def _progress(absent: AbsentWeights, bytes_per_s: float) -> BootProgress:
    total = absent.total_bytes or 0
    return BootProgress(
        phase=_PHASE,
        fraction=min(_WHOLE_MAX, absent.fetched_bytes / total) if total else None,
        done_bytes=absent.fetched_bytes,
        total_bytes=total,
        bytes_per_s=bytes_per_s,
    )
