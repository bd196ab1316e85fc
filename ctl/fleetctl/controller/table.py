"""Builds the routing table from what should be and what is; pure but for its arguments."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fleetctl.controller.route_models import open_lanes, request_form, route_models
from fleetctl.core.boot_times import expected_replacement_s, max_wait_from_zero_s
from fleetctl.core.disruption import is_node_ready
from fleetctl.core.eviction_guard import effective_guard
from fleetctl.core.overload import effective_step
from fleetctl.core.perf.step import step_model
from fleetctl.core.plan.launch_identity import launched_as
from fleetctl.core.reconcile.limits import UNHEALTHY_MAX
from fleetctl.core.rollout.in_force import by_revision, digests, in_force
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.eviction_report import EvictionMemory
from fleetctl.model.gateway import RouteLane, RouteReplica, RoutingTable
from fleetctl.model.profile import LaneRules, RequestRules
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.tiers import route_tiers
from fleetctl.ports.engine import visible_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fleetctl.model.desired import Desired
    from fleetctl.model.generation import GenerationSpec
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.model.request_form import RequestForm
    from fleetctl.model.rollout import Rollout
    from fleetctl.ports.engine import Engine

_CONTEXT_CAP_MEANS = 2.0
_NO_BOUNDS: Mapping[str, GenerationSpec] = MappingProxyType({})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_COMING = (ReplicaState.PENDING, ReplicaState.BOOTING, ReplicaState.WARMING)


def table_memory(memory: Memory) -> Memory:
    """Return the part of a decision's memory that a table is made of; while that is the same, so is the table."""
    return Memory(
        rollout=memory.rollout,
        unhealthy_count=memory.unhealthy_count,
        lanes={
            name: LaneMemory(
                step=lane.step,
                lost_since=lane.lost_since,
                had_ready=lane.had_ready,
                evictions=EvictionMemory(level=lane.evictions.level),
            )
            for name, lane in memory.lanes.items()
        },
    )


def build_table(  # noqa: PLR0913  # all that a table is made of
    desired: Desired,
    records: Iterable[Replica],
    memory: Memory,
    *,
    engine_of: Callable[[str], Engine],
    key_hashes: tuple[str, ...],
    key_generation: Mapping[str, GenerationSpec] = _NO_BOUNDS,
    key_names: Mapping[str, str] = _NO_NAMES,
    key_tiers: Mapping[str, str] = _NO_NAMES,
    version: int,
    before: RoutingTable | None = None,
) -> RoutingTable:
    """Return the table: READY replicas in rotation, and those that served before, until they are told to end.

    Those whose lane has left the profile keep their row of the table `before`, out of rotation.
    """
    records, memory = tuple(records), table_memory(memory)
    started, desired = _Started(desired, memory.rollout), _open_lanes(desired, memory.rollout, records)
    profile, names = desired.profile, {spec.name for spec in desired.profile.lanes}
    rates = _prefill_rates(desired, records, engine_of, started)
    served_names = started.served_names(records)
    both = (profile, started.profile_before)
    forms = {name: request_form(both, name, engine_of) for name in names}
    models = route_models(desired, started.profile_before, engine_of, started.outdated_lanes(records))
    # While a rollout leads to a fleet of one model, that one's lanes are told apart from those that serve others yet.
    only = profile.model.name if len(models) > 1 else ""
    return RoutingTable(
        served_names=served_names,
        fleet=desired.fleet,
        version=version,
        generation=desired.generation,
        model=profile.model.name,
        lanes=tuple(
            _lane(desired, spec, memory, records, engine_of, model=spec.model or only) for spec in profile.lanes
        ),
        replicas=(
            *(
                _replica(
                    desired,
                    record,
                    engine_of,
                    memory=memory,
                    served_name=record.served_name if served_names else "",
                    form=forms[record.lane],
                    prefill_tokens_per_s=rates[record.lane, started.lane_of(record), started.is_before(record)],
                )
                for record in sorted(records, key=lambda r: (r.lane, r.created_at, r.id))
                if _is_routed(record) and record.lane in names
            ),
            *_leavers(before, {r.id: r for r in records if _is_routed(r) and r.lane not in names}, memory),
        ),
        api_key_hashes=key_hashes,
        key_generation=dict(key_generation),
        workflows=profile.workflows,
        key_names=dict(key_names),
        key_tiers=dict(key_tiers),
        tiers=route_tiers(profile.tiers),
        models=models,
        **_part(RequestRules, profile.gateway),
    )


def _leavers(before: RoutingTable | None, records: dict[str, Replica], memory: Memory) -> Iterator[RouteReplica]:
    """Yield the rows of replicas without a lane: only of those it lists does the gateway say what is in flight."""
    for row in before.replicas if before is not None else ():
        record = records.get(row.id)
        if record is not None and (record.host, record.port) == row.address:
            yield replace(row, in_rotation=False, healthy=_is_healthy(record, memory))


def _is_routed(record: Replica) -> bool:
    if not record.has_address:
        return False
    if record.state in (ReplicaState.READY, ReplicaState.DRAINING):
        return True
    return record.is_recovering


def _is_healthy(record: Replica, memory: Memory) -> bool:
    """Whether nothing was found wrong with a replica that has served: not while it is out of rotation to recover."""
    if record.state is ReplicaState.DRAINING:
        return memory.unhealthy_count.get(record.id, 0) < UNHEALTHY_MAX
    return record.state is ReplicaState.READY


def _lane(
    desired: Desired,
    spec: LaneSpec,
    memory: Memory,
    records: tuple[Replica, ...],
    engine_of: Callable[[str], Engine],
    *,
    model: str,
) -> RouteLane:
    planned = desired.plan.lane(spec.name)
    serving = [r for r in records if r.lane == spec.name and r.state is ReplicaState.READY]
    is_replaced = any(r.lane == spec.name and r.state in _COMING for r in records)
    lane_memory = memory.lanes.get(spec.name, LaneMemory())
    # Of a lane that has lost the replicas it had, what it promises is kept: its clients know better than to wait.
    has_lost = lane_memory.lost_since is not None and lane_memory.had_ready > 0
    from_zero_s = None if has_lost else max_wait_from_zero_s(spec, planned, records)
    return RouteLane(
        **_part(LaneRules, spec) | {"max_wait_from_zero_s": from_zero_s},
        step=effective_step(desired, spec.name, lane_memory),
        lacks_replicas=lane_memory.lost_since is not None,
        replacement_s=expected_replacement_s(planned, records) if is_replaced else None,
        engine=visible_engine(engine_of, spec).name,
        model=model,
        max_tokens_cap=max_tokens_cap(desired.profile),
        context_tokens_cap=context_tokens_cap(desired, spec),
        cap_context=desired.profile.control.ladder.cap_context,
        output_tokens=planned.output_tokens_mean,
        long_prompt_tokens=context_tokens_cap(desired, spec)
        if effective_guard(desired, lane_memory.evictions).moves_long
        else 0,
        max_model_len=max((_max_model_len(r, planned) for r in serving), default=planned.launch.max_model_len),
        objective=desired.profile.objective.fraction,
    )


def _max_model_len(record: Replica, planned: LanePlan) -> int:
    """Return the longest request a replica holds: by what it was started with, which a new plan does not change."""
    return record.capacity.max_model_len if record.capacity else planned.launch.max_model_len


def _part(rules: type[LaneRules | RequestRules], spec: LaneRules | RequestRules) -> dict[str, Any]:
    """Return the fields that a specification and its entry in the table have in common."""
    return {shared.name: getattr(spec, shared.name) for shared in fields(rules)}


def max_tokens_cap(profile: Profile) -> int:
    """Return what the ladder cuts answers to: the median one, so that half of them are not cut at all."""
    return max(profile.control.ladder.answer_tokens_min, round(profile.workload.output_tokens.p50))


def context_tokens_cap(desired: Desired, spec: LaneSpec) -> int:
    """Return the longest prompt a lane takes while the ladder caps context: the profile's, else twice the planned mean.

    Half the mean's weight lies beyond it where prompts are as spread as in the public traces, and few of the requests.
    """
    capped = desired.profile.control.ladder.context_tokens
    return capped or max(1, round(_CONTEXT_CAP_MEANS * desired.plan.lane(spec.name).prompt_tokens_mean))


def _replica(  # noqa: PLR0913  # all that a replica's row is made of
    desired: Desired,
    record: Replica,
    engine_of: Callable[[str], Engine],
    *,
    memory: Memory,
    served_name: str,
    form: RequestForm | None,
    prefill_tokens_per_s: float,
) -> RouteReplica:
    lane_plan = desired.plan.lane(record.lane)
    capacity = record.capacity
    slots = capacity.max_num_seqs if capacity else lane_plan.sequences_max
    guard = effective_guard(desired, memory.lanes.get(record.lane, LaneMemory()).evictions)
    continues = visible_engine(engine_of, desired.profile.lane(record.lane)).capabilities.continues_streams
    return RouteReplica(
        id=record.id,
        lane=record.lane,
        host=record.host,
        port=record.port,
        in_rotation=record.state is ReplicaState.READY,
        healthy=_is_healthy(record, memory),
        served_name=served_name,
        form=form,
        concurrency_max=max(1, math.floor(guard.slots * slots)),
        max_model_len=_max_model_len(record, lane_plan),
        kv_tokens=capacity.kv_tokens if capacity else 0,
        kv_share=guard.kv_share,
        prefill_tokens_per_s=prefill_tokens_per_s,
        node_ready=is_node_ready(record),
        priority_sign=capacity.priority_sign if capacity else 0,
        caches_prefixes=capacity.caches_prefixes if capacity else lane_plan.launch.prefix_caching,
        continues=capacity.continues_streams if capacity else continues,
    )


class _Started:
    """The lane and the revision by which each replica was started, where a rollout is between two."""

    def __init__(self, desired: Desired, rollout: Rollout | None) -> None:
        self.desired = desired
        stable = desired.stable if rollout is not None and not rollout.is_over else None
        self.before = by_revision(desired, stable) if stable is not None else None
        self._now = digests(desired.profile, desired.plan) if stable is not None else {}
        self._then = digests(stable.profile, stable.plan) if stable is not None else {}

    @property
    def profile_before(self) -> Profile | None:
        """Return the profile that a rollout comes from. None: none is under way."""
        return self.before.profile if self.before is not None else None

    def outdated_lanes(self, records: Iterable[Replica]) -> frozenset[str]:
        """Return the lanes of which a replica of that revision still serves."""
        return frozenset(r.lane for r in records if r.state is ReplicaState.READY and self.is_before(r))

    def is_before(self, record: Replica) -> bool:
        """Whether a replica is of the revision that a rollout comes from."""
        if self.before is None or record.launch_digest == self._now.get(record.lane):
            return False
        return record.launch_digest == self._then.get(record.lane, "")

    def served_names(self, records: Iterable[Replica]) -> tuple[str, ...]:
        """Return every name that the model has while a rollout changes it; else none."""
        if self.before is None:
            return ()
        own = {record.served_name for record in records if _is_routed(record) and record.served_name}
        today = {model.name for model in self.desired.profile.models}
        names = own | today | {model.name for model in self.before.profile.models}
        return tuple(sorted(names)) if names != today else ()

    def lane_of(self, record: Replica) -> str:
        """Return the lane whose settings a replica was started with: its own, unless it came from another."""
        started = launched_as(record, self.desired) if record.assigned_at is not None else None
        return started.lane if started is not None else record.lane

    def plan(self, lane: str, *, is_before: bool) -> tuple[Plan, LanePlan] | None:
        """Return a revision's plan and its lane's. None: it has none."""
        plan = self.before.plan if is_before and self.before is not None else self.desired.plan
        return next(((plan, planned) for planned in plan.lanes if planned.lane == lane), None)


def _open_lanes(desired: Desired, rollout: Rollout | None, records: tuple[Replica, ...]) -> Desired:
    """Return the fleet as in force, without the new lanes that no replica serves yet."""
    desired = in_force(desired, rollout)
    shown = open_lanes(desired, rollout, records)
    hidden = {spec.name for spec in desired.profile.lanes} - shown
    if not hidden:
        return desired
    lanes = tuple(
        replace(spec, spill_to=tuple(name for name in spec.spill_to if name not in hidden))
        for spec in desired.profile.lanes
        if spec.name not in hidden
    )
    return replace(desired, profile=replace(desired.profile, lanes=lanes))


def _prefill_rates(
    desired: Desired, records: Iterable[Replica], engine_of: Callable[[str], Engine], started: _Started
) -> dict[tuple[str, str, bool], float]:
    """Return what replicas are predicted by: by the lane they serve, and the lane and revision they were started by.

    Once for all that are alike, as a step model takes as long as ten replicas.
    """
    rates = {}
    alike = {(record.lane, started.lane_of(record), started.is_before(record)) for record in records}
    for spec in desired.profile.lanes:
        emulation = engine_of(spec.engine).emulation(spec)
        speed = emulation.speed if emulation else 1.0
        planned = desired.plan.lane(spec.name)
        for lane, by, is_before in sorted(each for each in alike if each[0] == spec.name):
            plan, of_start = started.plan(by, is_before=is_before) or (desired.plan, planned)
            lane_plan = replace(planned if by != lane or not is_before else of_start, launch=of_start.launch)
            rates[lane, by, is_before] = prefill_tokens_per_s(plan, lane_plan, speed=speed)
    return rates


def prefill_tokens_per_s(plan: Plan, lane_plan: LanePlan, *, speed: float) -> float:
    """Return how fast one replica reads mean prompts in its chunks, beside as many decoding sequences as are planned.

    By the performance model; without a model card by the plan's own forecast.
    """
    tokens = max(1, round(lane_plan.prompt_tokens_mean))
    gpu, card = lane_plan.gpu_spec or plan.gpu_spec, plan.card_of(lane_plan)
    if card is None or gpu is None:
        return tokens / max(1e-3, lane_plan.forecast.ttft_p50_s) * speed
    launch = lane_plan.launch
    model = step_model(
        card,
        gpu,
        tensor_parallel=lane_plan.tensor_parallel,
        pipeline_parallel=lane_plan.node_count,
        pipeline_parallel_local=launch.pipeline_parallel_local,
        precision=launch.quantization,
        kv_precision=launch.kv_cache or card.native_precision,
    )
    rate = model.prefill_tokens_per_s(
        batched_tokens_max=launch.max_num_batched_tokens,
        prompt_tokens=tokens,
        decode_seqs=min(
            lane_plan.forecast.concurrency / lane_plan.ranks, launch.max_num_seqs, launch.max_num_batched_tokens / 2
        ),
        decode_context_tokens_each=tokens + lane_plan.output_tokens_mean / 2,
    )
    return round(rate * lane_plan.ranks * speed, 1)
