"""Whether a replica may be assigned to a lane: what it can hold, and how fast it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.perf.step import StepBatch, step_model
from fleetctl.core.plan.launch_identity import launched_as
from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.replica import Replica


def assignment_refusal(record: Replica, lane: str, plan: Plan) -> str:
    """Return why a replica cannot serve a lane of this plan, one clause; empty when it can.

    Fewer requests at once than the lane was planned with are no reason: routing goes by what the replica holds.
    """
    lane_plan = next((each for each in plan.lanes if each.lane == lane), None)
    if lane_plan is None:
        return f"there is no lane {lane!r}"
    held, launch = record.capacity, lane_plan.launch
    if different := _of_another_kind(record, lane_plan, plan):
        return different
    if held is None:
        return f"what {record.id} can hold was not recorded when it was launched"
    if held.max_model_len < launch.max_model_len:
        return (
            f"lane {lane!r} takes requests of {launch.max_model_len} tokens, and {record.id} holds {held.max_model_len}"
        )
    if held.precision is not launch.quantization:
        return f"lane {lane!r} runs {launch.quantization}, and {record.id} was started with {held.precision}"
    return ""


def kind_of(record: Replica) -> tuple[object, ...]:
    """Return all of a replica that an assignment is refused for: of replicas of one kind a lane may have each, or none."""
    return record.lane, record.launch_digest, record.engine, record.served_name, record.capacity


def _of_another_kind(record: Replica, lane_plan: LanePlan, plan: Plan) -> str:
    """Return which engine or model of another lane it runs, one clause; a name that no lane has any more is no other model."""
    lane, name = lane_plan.lane, lane_plan.launch.served_name
    if record.served_name in {each.launch.served_name for each in plan.lanes} - {name, ""}:
        return f"lane {lane!r} serves {name}, and {record.id} {record.served_name}"
    if record.engine != lane_plan.engine:
        return f"lane {lane!r} runs on {lane_plan.engine}, and {record.id} is {record.engine}"
    return ""


def reassignment_refusal(record: Replica, lane: str, desired: Desired) -> str:
    """Return why the controller gives a replica to no such lane by itself, one clause; empty when it may.

    Beyond what it must hold, its settings are today's of some lane, it runs on what the lane was planned on, and its chunks
    keep the lane's ITL.
    """
    if why := assignment_refusal(record, lane, desired.plan):
        return why
    started = launched_as(record, desired)
    if started is None:
        return f"{record.id} was started with settings that no lane has today"
    planned, spec = desired.plan.lane(lane), desired.profile.lane(lane)
    if _plays(desired.profile.lane(started.lane)) != _plays(spec):
        return f"{record.id} plays another engine than lane {lane!r} has"
    if _runs_on(started) != _runs_on(planned):
        return (
            f"lane {lane!r} was planned on {planned.gpu} x {planned.gpu_count} with other settings than {record.id} has"
        )
    if not _keeps_itl(started, planned, spec, desired.plan):
        tokens = started.launch.max_num_batched_tokens
        return f"chunks of {tokens} tokens, as {record.id} computes them, would break the ITL of lane {lane!r}"
    return ""


def _plays(spec: LaneSpec) -> tuple[object, ...]:
    return (spec.engine, spec.emulator.flavour, spec.emulator.speed)


def _runs_on(planned: LanePlan) -> tuple[object, ...]:
    """Return what makes two lanes' replicas alike but for how much they take at once."""
    launch = planned.launch
    hardware = (planned.gpu, planned.tensor_parallel, planned.node_count, planned.stages, planned.ranks)
    return (*hardware, launch.model, launch.quantization, launch.kv_cache, launch.extra_args, launch.env)


def _keeps_itl(started: LanePlan, planned: LanePlan, spec: LaneSpec, plan: Plan) -> bool:
    """Whether a whole chunk beside as many decoding sequences as planned for the lane fits the gap that it promises."""
    tokens = started.launch.max_num_batched_tokens
    promised = spec.slo.strictest(Metric.ITL)
    if promised is None or tokens <= planned.launch.max_num_batched_tokens:
        return True
    gpu, card = planned.gpu_spec or plan.gpu_spec, plan.card_of(planned)
    if card is None or gpu is None:
        return False
    model = step_model(
        card,
        gpu,
        tensor_parallel=planned.tensor_parallel,
        pipeline_parallel=planned.node_count,
        pipeline_parallel_local=planned.launch.pipeline_parallel_local,
        precision=planned.launch.quantization,
        kv_precision=planned.launch.kv_cache or card.native_precision,
    )
    seqs = min(planned.forecast.concurrency / planned.ranks, planned.launch.max_num_seqs, tokens / 2)
    resident = planned.prompt_tokens_mean + planned.output_tokens_mean / 2
    chunk = tokens - seqs
    step_s = model.step_s(StepBatch(chunk, chunk * planned.prompt_tokens_mean / 2, seqs, seqs * resident))
    return step_s <= promised.limit_s
