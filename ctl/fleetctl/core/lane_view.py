"""One lane as scaling and the ladder see it: who it is, how it is pressed, what it remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from fleetctl.core.absence import Counts, is_absence, judged_s, note_absence
from fleetctl.core.boot_times import expected_boot_s
from fleetctl.core.capacity import HeldRequests, held_requests
from fleetctl.core.changed import changed
from fleetctl.core.disruption import e2e_s_p99
from fleetctl.core.engine_load import LaneEngineLoad, engine_load
from fleetctl.core.hazard import Hazards
from fleetctl.core.pins import refused_by
from fleetctl.core.pressure import LanePressure, lane_pressure, recent
from fleetctl.core.slo.alerts import AlertSignals
from fleetctl.core.slo.judge import judge_live
from fleetctl.core.spot_spare import SpotSpare, spot_spare
from fleetctl.model.decision import LaneMemory
from fleetctl.model.ladder import LadderStep
from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import ControlSpec, LaneSpec
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.model.stream import StreamFigures
from fleetctl.model.verdict import SloVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fleetctl.model.budget import LaneBudget
    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.observation import Observation, ObservedReplica

T = TypeVar("T")

_SERVED_WINDOW_S = 300.0  # answers that take a minute are few in a shorter one


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPressure:
    """How much lanes that people wait on lack capacity which an interruptible lane's pause would give them."""

    level: float | None = None  # in [0, 1]; None: unknown
    cause: str = ""  # the lane that lacks most, and its figure
    not_helped: str = ""  # who lacks capacity, and would be given none


_NO_PRESSURE = BatchPressure()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """Everything a decision on one lane stands on."""

    spec: LaneSpec
    plan: LanePlan
    control: ControlSpec
    memory: LaneMemory
    pressure: LanePressure
    counts: Counts
    now: datetime
    override: int | None = None  # replicas set by a person
    pinned: LadderStep | None = None  # ladder step set by a person
    engines: LaneEngineLoad = field(default_factory=LaneEngineLoad)  # what its engines say of themselves
    ttft: Quantiles = field(default_factory=Quantiles)  # over the shortest window with samples enough, as are the next
    itl: Quantiles = field(default_factory=Quantiles)
    boot_s: float = 0.0  # from order to ready, as measured lately on the lane's offering, else as planned
    batch_pressure: BatchPressure = field(default_factory=BatchPressure)  # on an interruptible lane
    verdict: SloVerdict = field(default_factory=SloVerdict)
    is_absence: bool = False  # what presses comes of replicas that are missing, not of load
    spot_spare: SpotSpare = field(default_factory=SpotSpare)
    held: HeldRequests = field(default_factory=HeldRequests)  # by one replica
    borrowed: int = 0  # of its replicas, lanes at their maximum need so many
    borrowed_by: str = ""  # those lanes
    streams: tuple[tuple[Replica, StreamFigures], ...] = ()  # how evenly replicas that answered have streamed of late
    served_s_p50: float = 0.0  # how long requests that finished lately were with a replica; 0: not known
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # by `once_a_view`

    @property
    def alert_signals(self) -> AlertSignals:
        """Return what its alerts go by."""
        queued = self.pressure.queued if self.pressure.validity is Validity.OK else None
        return alert_signals(self.spec, self.pressure.budget, queued=queued, engines=self.engines)

    def bounded(self, replicas: int) -> int:
        """Return the count inside the lane's own bounds."""
        return max(self.spec.replicas.min, min(self.spec.replicas.max, replicas))


def once_a_view(read: Callable[[LaneView], T]) -> Callable[[LaneView], T]:
    """Return a decorated reading of a view that is made once: one decision asks a dozen times what the same view needs.

    What was read stays with the view. One with other values is another view, of which nothing has been read.
    """
    name = read.__qualname__

    @wraps(read)
    def kept(view: LaneView) -> T:
        known = view.kept
        if name not in known:
            known[name] = read(view)
        found: T = known[name]
        return found

    return kept


def lane_views(
    desired: Desired, observation: Observation, memory: Memory, now: datetime, counts: Mapping[str, Counts]
) -> dict[str, LaneView]:
    """Return every lane as a policy sees it, by name. `counts` are its replicas once this decision's facts are recorded."""
    specs = desired.profile.lanes
    verdicts = {spec.name: _verdict(desired, observation, spec, memory, now) for spec in specs}
    memories = {
        spec.name: note_absence(
            memory.lane(spec.name),
            counts[spec.name],
            now,
            given_up_s=desired.profile.control.start_timeout_s,
            oldest_wait_s=_oldest_wait_s(observation, spec.name),
        )
        for spec in specs
    }
    pressures = {
        spec.name: _pressure(desired, observation, spec, verdicts[spec.name], now, memories[spec.name])
        for spec in specs
    }
    absences = {
        spec.name
        for spec in specs
        if is_absence(
            memories[spec.name],
            desired.plan.lane(spec.name),
            counts[spec.name],
            pressures[spec.name],
        )
    }
    # Another lane's requests are not held back because this one's replicas are gone.
    waited_on = [(spec, pressures[spec.name]) for spec in specs if not spec.interruptible and spec.name not in absences]
    hazards, e2e_s = Hazards(now=now, records=memory.offerings), e2e_s_p99(desired.plan, observation)
    views, of_lane, streams_max = {}, _by_lane(observation, specs), _streams_max(observation)
    for spec in specs:
        plan = desired.plan.lane(spec.name)
        traffic, replicas = current_traffic(observation, spec.name), of_lane[spec.name]
        engines = engine_load(replicas)
        views[spec.name] = LaneView(
            spec=spec,
            plan=plan,
            control=desired.profile.control,
            memory=_noting(memories[spec.name], verdicts[spec.name], traffic),
            pressure=pressures[spec.name],
            counts=counts[spec.name],
            now=now,
            override=desired.overrides.replicas.get(spec.name),
            pinned=desired.overrides.step.get(spec.name),
            engines=engines,
            ttft=recent(traffic, Metric.TTFT),
            itl=recent(traffic, Metric.ITL),
            boot_s=expected_boot_s(plan, observation.boot_s),
            batch_pressure=batch_pressure(spec, waited_on) if spec.interruptible else _NO_PRESSURE,
            is_absence=spec.name in absences,
            verdict=verdicts[spec.name],
            spot_spare=spot_spare(desired, spec, observation, hazards, e2e_s.get(spec.name)),
            held=held_requests(plan, _in_rotation(replicas, streams_max), engines),
            streams=_streams(observation, traffic),
            served_s_p50=_served_s_p50(traffic),
        )
    return views


def _noting(before: LaneMemory, verdict: SloVerdict, traffic: LaneSnapshot | None) -> LaneMemory:
    return before if traffic is None else changed(before, breach=verdict.record)


def _streams(observation: Observation, traffic: LaneSnapshot | None) -> tuple[tuple[Replica, StreamFigures], ...]:
    found = traffic.replica_streams if traffic is not None else {}
    return tuple(
        [(r.record, found[r.record.id]) for r in observation.replicas if r.record.id in found] if found else ()
    )


def batch_pressure(batch: LaneSpec, waited_on: Sequence[tuple[LaneSpec, LanePressure]]) -> BatchPressure:
    """Return how much a pause of this lane is needed, by the lanes that people wait on.

    Only of those lanes that its requests keep from a replica: they may use its replicas, or it theirs.
    """
    known = [(spec, pressure) for spec, pressure in waited_on if pressure.level is not None]
    if not known:
        return BatchPressure()
    name, level, message = _most_pressed((s, p) for s, p in known if _shares_replicas(s, batch))
    if level > 0:
        return BatchPressure(level=level, cause=f"{name}: {message}")
    name, level, message = _most_pressed(known)
    return BatchPressure(level=0.0, not_helped=_not_helped(name, message) if level >= 1.0 else "")


def _shares_replicas(one: LaneSpec, other: LaneSpec) -> bool:
    """Whether requests of one lane may be sent to replicas of the other."""
    lends = one.serves_as(other) and (one.lends or other.lends)
    return lends or other.name in one.spill_to or one.name in other.spill_to


def _most_pressed(found: Iterable[tuple[LaneSpec, LanePressure]]) -> tuple[str, float, str]:
    """Return the name, the pressure and the figure of the lane that lacks capacity most; nothing where none does."""
    levels = [(spec.name, pressure.level or 0.0, pressure.shortage) for spec, pressure in found]
    name, level, shortage = max(levels, key=lambda each: each[1], default=("", 0.0, None))
    return name, level, shortage.message if shortage else ""


def _not_helped(name: str, message: str) -> str:
    return f"not paused: {name} may use none of its replicas ({message})"


def current_traffic(observation: Observation, lane: str) -> LaneSnapshot | None:
    """Return a lane's figures. None: there are none, or they are not current."""
    if observation.gateway is None or observation.gateway_validity is not Validity.OK:
        return None
    return next((each for each in observation.gateway.lanes if each.name == lane), None)


def alert_signals(
    spec: LaneSpec, budget: LaneBudget | None, *, queued: int | None, engines: LaneEngineLoad
) -> AlertSignals:
    """Return what a lane's alerts go by; `queued` is the gateway's, if known. An interruptible lane's requests wait on purpose."""
    waiting = None if queued is None else queued + engines.waiting
    return AlertSignals(budget=budget, waiting=0 if spec.interruptible else waiting)


def _by_lane(observation: Observation, specs: Sequence[LaneSpec]) -> dict[str, list[ObservedReplica]]:
    """Return every lane's replicas, those of no lane of the profile left out."""
    found: dict[str, list[ObservedReplica]] = {spec.name: [] for spec in specs}
    for replica in observation.replicas:
        if replica.record.lane in found:
            found[replica.record.lane].append(replica)
    return found


def _streams_max(observation: Observation) -> dict[str, int]:
    """Return how many streams each replica may have, by the gateway; without those of which it does not say."""
    if observation.gateway is None or observation.gateway_validity is not Validity.OK:
        return {}
    return {each.id: each.streams_max for each in observation.gateway.replicas if each.streams_max}


def _in_rotation(replicas: Iterable[ObservedReplica], streams_max: Mapping[str, int]) -> list[int]:
    """Return how many streams each of these in rotation may have, where that is known."""
    state = ReplicaState.READY  # an enum's members are slow to look up
    ready = [r.record.id for r in replicas if r.record.state is state]
    return [streams_max[replica_id] for replica_id in ready if replica_id in streams_max]


def _served_s_p50(traffic: LaneSnapshot | None) -> float:
    if traffic is None:
        return 0.0
    window = traffic.window(_SERVED_WINDOW_S)
    return max(0.0, window.e2e.p50_s - window.queue_wait.p50_s)


def _oldest_wait_s(observation: Observation, lane: str) -> float | None:
    traffic = current_traffic(observation, lane)
    return None if traffic is None else traffic.oldest_wait_s


def _verdict(desired: Desired, observation: Observation, spec: LaneSpec, memory: Memory, now: datetime) -> SloVerdict:
    before = memory.lane(spec.name).breach
    traffic = current_traffic(observation, spec.name)
    return judge_live(traffic, objective=desired.profile.objective.fraction, before=before, now=now)


def _pressure(
    desired: Desired,
    observation: Observation,
    spec: LaneSpec,
    verdict: SloVerdict,
    now: datetime,
    memory: LaneMemory,
) -> LanePressure:
    gateway = observation.gateway
    if gateway is None:
        return LanePressure(validity=Validity.NONE)
    return lane_pressure(
        spec,
        next((lane for lane in gateway.lanes if lane.name == spec.name), None),
        validity=observation.gateway_validity,
        uptime_s=gateway.age_s(now),
        objective=desired.profile.objective.fraction,
        verdict=verdict,
        judged_s=judged_s(memory, now),
        stepped_s=None if memory.stepped_at is None else (now - memory.stepped_at).total_seconds(),
        refused_by=refused_by(memory, desired.overrides.step.get(spec.name), now),
        budget=observation.budgets.get(spec.name),
    )
