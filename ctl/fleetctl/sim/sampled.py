"""A simulated fleet of fixed size whose requests are noted one by one, for proofs about its tail."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import RequestTokens
from fleetctl.core.static_policy import static
from fleetctl.model.slo import Quantiles
from fleetctl.sim.summary import on_own_machines, plan_offerings
from fleetctl.sim.world import SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fleetctl.load.trace import Arrival
    from fleetctl.model.desired import Desired
    from fleetctl.ports.engine import Engine
    from fleetctl.sim.exchange import SimulatedExchange
    from fleetctl.sim.instance import EngineInstance
    from fleetctl.sim.scenario import SimulationSpec

_SCRAPE_S = 5.0  # between two readings of engines' figures, as a controller's


class RequestSample(NamedTuple):
    """What became of one request."""

    started_s: float
    ttft_s: float | None  # None: no first token, or it does not stream
    missed: str  # how; empty: it was good


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSamples:
    """A lane's requests of one run that arrived after its fleet had filled."""

    requests: tuple[RequestSample, ...]
    itl: Quantiles  # of all of its gaps
    e2e: Quantiles
    running: float  # mean sequences on one replica


class SampledWorld(SimulatedWorld):
    """A world whose controller only watches; `kept` is the share of a lane's requests that arrive, `slowdown` of its steps."""

    def __init__(
        self,
        desired: Desired,
        spec: SimulationSpec,
        *,
        warm_s: float,
        kept: Mapping[str, float],
        slowdown: Mapping[str, float],
    ) -> None:
        self.samples: dict[str, list[RequestSample]] = defaultdict(list)
        self._warm_s = warm_s
        self._kept = kept
        self._slowdown = slowdown
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

    def _arrive(self, row: Arrival, attempt: int = 0, stand_in: str = "") -> None:
        if self._kept and not attempt:
            tokens = row.prompt_tokens
            lane = self._lane_of(row, RequestTokens(tokens, tokens, tokens, row.output_tokens), stand_in)
            if not isinstance(lane, Refusal) and self._chance.random() >= self._kept.get(lane.route.name, 1.0):
                return
        super()._arrive(row, attempt, stand_in)

    def over(self, exchange: SimulatedExchange) -> None:
        """Note a request that has ended."""
        super().over(exchange)
        stopwatch = exchange.request.stopwatch
        if stopwatch.started_s >= self._warm_s:
            missed = stopwatch.breach.value if stopwatch.breach is not None else ""
            ttft_s = stopwatch.ttft_s if exchange.request.is_stream else None
            self.samples[exchange.request.lane.route.name].append(RequestSample(stopwatch.started_s, ttft_s, missed))

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
        return LaneSamples(
            requests=tuple(sorted(self.samples[lane])),
            itl=window.itl,
            e2e=window.e2e,
            running=tokens / steps if steps else 0.0,
        )


def sample_fleet(
    desired: Desired,
    trace: Iterable[Arrival],
    spec: SimulationSpec,
    *,
    warm_s: float,
    kept: Mapping[str, float],
    slowdown: Mapping[str, float],
) -> dict[str, LaneSamples]:
    """Return by lane what a fleet of the counts in `spec.settled` makes of a trace. Raises ConfigError as `simulate`."""
    world = SampledWorld(on_own_machines(desired), spec, warm_s=warm_s, kept=kept, slowdown=slowdown)
    world.run(trace)
    return {lane.name: world.lane_samples(lane.name) for lane in desired.profile.lanes}
