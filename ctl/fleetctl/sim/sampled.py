"""A simulated fleet of fixed size whose requests are noted one by one, for proofs about its tail."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import RequestTokens
from fleetctl.core.static_policy import static
from fleetctl.load.trace import Arrival
from fleetctl.model.slo import Quantiles
from fleetctl.sim.summary import on_own_machines, plan_offerings
from fleetctl.sim.world import SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.model.desired import Desired
    from fleetctl.ports.engine import Engine
    from fleetctl.sim.exchange import SimulatedExchange
    from fleetctl.sim.instance import EngineInstance
    from fleetctl.sim.scenario import SimulationSpec

_SCRAPE_S = 5.0  # between two readings of engines' figures, as a controller's

LaneMemo = dict[tuple[object, ...], str | Refusal]  # what a request says that its lane goes by -> the lane it enters


class RequestSample(NamedTuple):
    """What became of one request."""

    started_s: float
    ttft_s: float | None  # None: no first token, or it does not stream
    missed: str  # how; empty: it was good


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSamples:
    """A lane's requests of one run that arrived after its fleet had filled."""

    requests: tuple[RequestSample, ...]
    arrived_s: tuple[float, ...]  # of every request of the lane, those that are left out among them
    itl: Quantiles  # of all of its gaps
    e2e: Quantiles
    running: float  # mean sequences on one replica


@dataclass(frozen=True, slots=True)
class EnteredRun:
    """A run's requests, when each comes, and the lane it enters; empty: none."""

    run: Sequence[Arrival]
    at_s: Sequence[float]
    lanes: Sequence[str]


class SampledWorld(SimulatedWorld):
    """A world whose controller only watches.

    `kept` is the share of a lane's requests that arrive, `slowdown` of its steps; `lanes` is what other simulations of the same
    profile have found.
    """

    def __init__(
        self,
        desired: Desired,
        spec: SimulationSpec,
        *,
        warm_s: float,
        kept: Mapping[str, float],
        slowdown: Mapping[str, float],
        lanes: LaneMemo,
    ) -> None:
        self.samples: dict[str, list[RequestSample]] = defaultdict(list)
        self._arrived_s: dict[str, list[float]] = defaultdict(list)
        self._warm_s = warm_s
        self._kept = kept
        self._slowdown = slowdown
        self._lanes = lanes
        self._chance = random.Random(f"kept/{spec.seed}")
        super().__init__(desired, static, spec, offerings=plan_offerings(desired, spec))

    def _instances(self, engine_of: Callable[[str], Engine]) -> dict[str, EngineInstance]:
        found = super()._instances(engine_of)
        return {
            lane: replace(instance, speed=instance.speed / self._slowdown.get(lane, 1.0))
            for lane, instance in found.items()
        }

    def _tick(self) -> None:
        """Read the engines for the dispatcher; nothing is decided, as the count that is proven is fixed."""
        self.observer.observe(self.controller.records.values(), self.heap.now_s, refused={})
        self.heap.at(self.heap.now_s + _SCRAPE_S, self._tick)

    def thinned(self, entered: EnteredRun) -> Iterator[Arrival]:
        """Yield the requests of a run that arrive, which chance leaves of each lane's."""
        until_s, kept = self.spec.duration_s, self._kept
        for number, (at_s, lane) in enumerate(zip(entered.at_s, entered.lanes, strict=True)):
            if until_s is not None and at_s > until_s:
                return
            if lane:
                # How bursty a lane's requests are is told by all of them: what chance leaves of them shows little of it.
                if at_s >= self._warm_s:
                    self._arrived_s[lane].append(at_s)
                if self._chance.random() >= kept.get(lane, 1.0):
                    continue
            yield entered.run[number]

    def entered(self, row: Arrival) -> str:
        """Return the lane a request enters; empty: none."""
        tokens = row.prompt_tokens
        lane = self._lane_of(row, RequestTokens(tokens, tokens, tokens, row.output_tokens), "")
        return "" if isinstance(lane, Refusal) else lane.route.name

    def _lane_of(self, row: Arrival, needed: RequestTokens, stand_in: str) -> DispatchLane[ActiveRequest] | Refusal:
        """Return the lane an arrival enters, chosen once for all that are alike: the plan's lanes stay as they are."""
        if stand_in or row.cached_lane:
            return super()._lane_of(row, needed, stand_in)
        key = (
            row.prompt_tokens,
            row.cached_tokens,
            needed.output,
            row.batch,
            row.stream,
            row.lane,
            row.lane_entered,
            row.model,
        )
        name = self._lanes.get(key)
        if name is None:
            found = super()._lane_of(row, needed, stand_in)
            self._lanes[key] = found if isinstance(found, Refusal) else found.route.name
            return found
        return name if isinstance(name, Refusal) else self.dispatcher.routes.lanes[name]

    def over(self, exchange: SimulatedExchange) -> None:
        """Note a request that has ended."""
        super().over(exchange)
        stopwatch = exchange.request.stopwatch
        if stopwatch.started_s >= self._warm_s:
            missed = stopwatch.breach.value if stopwatch.breach is not None else ""
            ttft_s = stopwatch.ttft_s if exchange.request.is_stream else None
            self.samples[exchange.request.lane.route.name].append(RequestSample(stopwatch.started_s, ttft_s, missed))

    def _count_traffic(self, exchange: SimulatedExchange) -> None:
        """Count nothing: tiers' and clients' figures are no proof's."""

    def lane_samples(self, lane: str) -> LaneSamples:
        """Return what became of a lane's requests."""
        accounts = self.dispatcher.routes.lanes[lane].accounts
        accounts.fold(self.heap.now_s)
        window = accounts.windows.lifetime().window(self.heap.now_s, accounts.slo)
        engines = [
            node.engine for name, node in self.provider.nodes.items() if self.controller.records[name].lane == lane
        ]
        steps = sum(rank.steps for engine in engines for rank in engine.ranks)
        tokens = sum(rank.output_tokens for engine in engines for rank in engine.ranks)
        requests = tuple(sorted(self.samples[lane], key=_arrival_order))
        return LaneSamples(
            requests=requests,
            arrived_s=tuple(self._arrived_s[lane]) if self._kept else tuple(each.started_s for each in requests),
            itl=window.itl,
            e2e=window.e2e,
            running=tokens / steps if steps else 0.0,
        )


def sample_fleet(  # noqa: PLR0913  # one simulation's own
    desired: Desired,
    run: Sequence[Arrival] | EnteredRun,
    spec: SimulationSpec,
    *,
    warm_s: float,
    kept: Mapping[str, float],
    slowdown: Mapping[str, float],
    lanes: LaneMemo,
) -> dict[str, LaneSamples]:
    """Return by lane what a fleet of the counts in `spec.settled` makes of a run, as SampledWorld has it.

    Of an EnteredRun the share `kept` arrives, else all do. Raises ConfigError as `simulate`.
    """
    world = SampledWorld(on_own_machines(desired), spec, warm_s=warm_s, kept=kept, slowdown=slowdown, lanes=lanes)
    world.run(world.thinned(run) if isinstance(run, EnteredRun) else run)
    return {lane.name: world.lane_samples(lane.name) for lane in desired.profile.lanes}


def entered_lanes(desired: Desired, rows: Iterable[Arrival], spec: SimulationSpec, lanes: LaneMemo) -> list[str]:
    """Return which lane each request enters; empty: none. Raises ConfigError as `simulate`."""
    world = SampledWorld(on_own_machines(desired), spec, warm_s=0.0, kept={}, slowdown={}, lanes=lanes)
    return list(map(world.entered, rows))


def _arrival_order(sample: RequestSample) -> tuple[float, bool, float, str]:
    """Order by arrival; of requests of one instant one may have a first token and the other none."""
    return sample.started_s, sample.ttft_s is None, sample.ttft_s or 0.0, sample.missed
