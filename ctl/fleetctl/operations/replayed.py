"""A recorded period as a simulation takes it: its arrivals, how it began, what happened to its nodes."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.model_names import models_by_name
from fleetctl.load.trace import Arrival
from fleetctl.model.catalogue import Market
from fleetctl.model.profile import LaneMatch
from fleetctl.model.replica import ReplicaState
from fleetctl.sim.scenario import Disturbance, DisturbanceKind, SimulationSpec, paced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from fleetctl.model.profile import Profile
    from fleetctl.model.recording import RecordedRequest
    from fleetctl.model.replica import Replica
    from fleetctl.recordings.period import RecordedPeriod


LaneTakes = tuple[str, LaneMatch, str]  # a lane, which requests it takes, and of which model


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPeriod:
    """What of a period goes into every run."""

    arrivals: tuple[Arrival, ...]
    lengths_drawn: int  # answers whose length nobody knows, as they were refused, cut or capped
    begun_with: dict[str, int]  # lane -> replicas in rotation as it began
    matches: tuple[LaneTakes, ...]  # the recorded profile's lanes, and what each takes
    boots_s: dict[str, tuple[float, ...]]  # lane -> from order to rotation, of those that came into it, in that order
    disturbances: tuple[Disturbance, ...]  # nodes taken and engines that died, to the oldest of their lane

    def arrivals_of(self, profile: Profile) -> tuple[Iterator[Arrival], tuple[str, ...]]:
        """Return what a profile is offered, and the lanes that clients named and it has not: it chooses theirs itself.

        Requests for a model that it has not are for its first, or for that of the lane they name.
        """
        known = {lane.name for lane in profile.lanes}
        unknown = tuple(sorted({each.lane for each in self.arrivals if each.lane} - known))
        if lane_matches(profile) == self.matches:
            return iter(self.arrivals), unknown
        models = models_by_name(profile.models)
        return (self._chosen_by_rules(each, unknown, models) for each in self.arrivals), unknown

    def unknown_models(self, profile: Profile) -> Counter[str]:
        """Return how many requests were for each model that a profile has not; none under a profile of one, which has all."""
        known = models_by_name(profile.models)
        missing = Counter(each.model for each in self.arrivals if each.model not in known)
        return missing if profile.other_models else Counter()

    def _chosen_by_rules(self, arrival: Arrival, unknown: tuple[str, ...], models: Mapping[str, str]) -> Arrival:
        model = arrival.model if arrival.model in models else ""
        if arrival.lane not in unknown:
            return replace(arrival, lane_entered="", model=model)
        is_batch = any(name == arrival.lane and match.batch for name, match, _ in self.matches)
        return replace(arrival, lane="", lane_entered="", batch=is_batch, model=model)


def lane_matches(profile: Profile) -> tuple[LaneTakes, ...]:
    """Return a profile's lanes in their order, and which requests each takes."""
    return tuple((lane.name, lane.match, profile.lane_models.get(lane.name, "")) for lane in profile.lanes)


def replayed(period: RecordedPeriod) -> ReplayedPeriod:
    """Return what of a period is replayed. The same recording gives the same arrivals, whatever they are given to."""
    lengths = _Lengths(period)
    arrivals = tuple(_arrivals(period, lengths))
    return ReplayedPeriod(
        arrivals=arrivals,
        lengths_drawn=lengths.drawn,
        begun_with=_begun_with(period),
        matches=lane_matches(period.desired.profile),
        boots_s=_boots_s(period),
        disturbances=tuple(sorted(_disturbances(period), key=lambda each: each.at_s)),
    )


def replay_spec(
    profile: Profile, replay: ReplayedPeriod, *, settled: dict[str, int], duration_s: float, seed: int
) -> SimulationSpec:
    """Return how a period is simulated under a profile; boots of lanes that it has not are as its provider says."""
    lanes = {lane.name for lane in profile.lanes}
    base = paced(profile, SimulationSpec(seed=seed))
    return SimulationSpec(
        seed=seed,
        duration_s=duration_s,
        settled=settled,
        tick_s=base.tick_s,
        hop_s=base.hop_s,
        frontend_s=base.frontend_s,
        # A recorded boot ends in rotation, a simulated one with a healthy engine, which is then warmed.
        boots_s={
            lane: tuple(max(0.0, boot_s - base.warm_s) for boot_s in boots_s)
            for lane, boots_s in replay.boots_s.items()
            if lane in lanes
        },
        disturbances=tuple(each for each in replay.disturbances if each.lane in lanes),
    )


class _Lengths:
    """How long answers are: as they were where they ended by themselves, else as another one of the lane was."""

    def __init__(self, period: RecordedPeriod) -> None:
        self._known: defaultdict[str, list[int]] = defaultdict(list)
        for request in period.requests:
            if _has_length(request):
                self._known[request.lane].append(request.output_tokens)
        self._workload = round(period.desired.profile.workload.output_tokens.p50)
        self._dice = random.Random(period.header.began_at.isoformat())
        self.drawn = 0

    def of(self, request: RecordedRequest) -> int:
        """Return how many tokens the answer has."""
        if _has_length(request):
            return request.output_tokens
        self.drawn += 1
        known = self._known.get(request.lane)
        length = self._dice.choice(known) if known else self._workload
        # It has as many as it was given before it was cut, at the least, and no more than it asked for.
        return max(1, request.output_tokens, min(length, request.output_tokens_max or length))


def _has_length(request: RecordedRequest) -> bool:
    is_whole = request.ending in ("complete", "cancelled") and "max_tokens" not in request.degraded
    return is_whole and request.output_tokens > 0


def _arrivals(period: RecordedPeriod, lengths: _Lengths) -> Iterator[Arrival]:
    profile = period.desired.profile
    is_batch = {lane.name: lane.match.batch for lane in profile.lanes}
    named_tier = _naming_of_tiers(profile)
    served_lanes = {name: records[-1].lane for name, records in period.replicas.items() if records}
    fallbacks = {model.name: model.fallback for model in profile.models}
    for request in period.requests:
        if fallbacks.get(request.model) and request.refusal and Refusal(request.refusal).is_shortage:
            continue  # what stood in is recorded too, with the length of the answer
        is_own = not request.in_place_of
        yield Arrival(
            at_s=_since_s(period, request.at),
            client=request.client,
            tier=named_tier(request),
            model=request.in_place_of or request.model,
            # Simulated engines have no prefix cache: what was cached was no work.
            prompt_tokens=max(1, request.prompt_tokens - request.cached_tokens),
            cached_tokens=request.cached_tokens,
            # One that had spilled over was served by another lane's replica.
            cached_lane=served_lanes.get(request.replica, request.lane) if request.cached_tokens else "",
            output_tokens=lengths.of(request),
            stream=request.is_stream,
            # Nobody else enters such a lane unnamed.
            batch=is_batch.get(request.lane, False) and not request.is_lane_named,
            lane=request.lane if request.is_lane_named and is_own else "",
            lane_entered=request.lane if is_own and not request.is_lane_named and request.lane in is_batch else "",
        )


def _naming_of_tiers(profile: Profile) -> Callable[[RecordedRequest], str]:
    """Return which tier a request names as it is replayed: what it had, unless that is its key's, or its lane's.

    A profile beside the recorded one may give those another one. A key without a name is known by nothing: where its tier is not
    the lane's, its requests name it.
    """
    gateway, lowest = profile.gateway, profile.tiers[-1].name if profile.tiers else ""
    of_clients = {name: gateway.key_tiers.get(reference, "") for reference, name in gateway.key_names.items()}
    of_lanes = {lane.name: lane.tier or lowest for lane in profile.lanes}

    def named_tier(request: RecordedRequest) -> str:
        usual = of_clients.get(request.client) or of_lanes.get(request.lane, lowest)
        return "" if request.tier == usual else request.tier

    return named_tier


def _since_s(period: RecordedPeriod, at: datetime) -> float:
    return (at - period.since).total_seconds()


def _begun_with(period: RecordedPeriod) -> dict[str, int]:
    found = Counter({lane.name: 0 for lane in period.desired.profile.lanes})
    for records in period.replicas.values():
        before = [record for record in records if record.changed_at <= period.since]
        if before and before[-1].state is ReplicaState.READY:
            found[before[-1].lane] += 1
    return dict(found)


def _boots_s(period: RecordedPeriod) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    for records in period.replicas.values():
        last = records[-1]
        if last.ready_at is not None and last.requested_at >= period.since:
            found[last.lane].append((last.requested_at, (last.ready_at - last.requested_at).total_seconds()))
    return {lane: tuple(boot_s for _, boot_s in sorted(boots)) for lane, boots in found.items()}


def _disturbances(period: RecordedPeriod) -> Iterator[Disturbance]:
    for taken in period.interruptions.values():
        is_announced = taken.notice is not None and taken.warning_s is not None
        yield Disturbance(
            kind=DisturbanceKind.NOTICE if is_announced else DisturbanceKind.TAKE,
            at_s=_since_s(period, taken.at),
            lane=taken.lane,
            factor=max(taken.warning_s or 0.0, 0.001) if is_announced else 1.0,
            spot_only=taken.market is Market.SPOT,
        )
    for records in period.replicas.values():
        died = records[-1]
        if _died_serving(died) and died.id not in period.interruptions and died.changed_at >= period.since:
            yield Disturbance(kind=DisturbanceKind.KILL, at_s=_since_s(period, died.changed_at), lane=died.lane)


def _died_serving(record: Replica) -> bool:
    return record.state is ReplicaState.FAILED and record.ready_at is not None and record.drain_code is None
