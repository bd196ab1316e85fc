"""How a replica is laid over GPUs: heads split inside a stage, stages one after the other, ranks side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.errors import InfeasiblePlanError
from fleetctl.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleetctl.model.catalogue import ModelCard, Offering
    from fleetctl.model.profile import LaneSpec

SPLITS = (1, 2, 4, 8, 16)  # of a stage's layers, unless the profile names another lawful one
EXPERT_GPUS_MIN = 8  # of a stage: from here a slice of every expert is too thin for the kernels, and they stay whole
_MACHINES_MAX = 8  # of a replica, where the plan chooses: the field's largest groups of one stage each


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRules:
    """What of a lane's replicas its engine and its provider can do."""

    has_stages: bool = False  # the engine runs several pipeline stages on one machine
    has_ranks: bool = False  # the engine runs several data parallel ranks
    spans_machines: bool = False  # provider and engine can have a replica over several machines
    has_fp8_kv: bool = False  # the engine keeps an FP8 KV cache


ONE_STAGE = LayoutRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLayout:
    """Over which GPUs a replica lies."""

    tensor_parallel: int
    stages: int = 1  # on each machine
    machines: int = 1
    ranks: int = 1

    @property
    def gpus(self) -> int:
        """Return the GPUs of one machine that it takes."""
        return self.tensor_parallel * self.stages * self.ranks


def is_divisible(card: ModelCard, gpu_count: int, *, whole_experts: bool = False) -> bool:
    """Whether engines split a model over so many GPUs.

    Each takes as many heads as any other; heads of keys and values are dealt out, or each is on as many GPUs as any other.
    Of quantized weights no group that shares a scale is cut; experts may lie whole on one GPU each.
    """
    heads = card.num_kv_heads
    if card.num_heads % gpu_count or (heads % gpu_count and gpu_count % heads):
        return False
    return not cuts_groups(card, gpu_count, whole_experts=whole_experts)


def cuts_groups(card: ModelCard, gpu_count: int, *, whole_experts: bool) -> bool:
    """Whether a split would cut groups of quantized weights, at which engines end at their start."""
    groups = (card.mlp_groups, None if whole_experts else card.expert_groups)
    return any(each is not None and each % gpu_count for each in groups)


def _splits(lane: LaneSpec, card: ModelCard, gpu_count: int) -> bool:
    pinned = lane.launch.expert_parallel
    is_whole = gpu_count * (lane.launch.data_parallel or 1) >= EXPERT_GPUS_MIN if pinned is None else pinned
    return is_divisible(card, gpu_count, whole_experts=is_whole)


def layouts(lane: LaneSpec, card: ModelCard, offering: Offering, rules: LayoutRules) -> Iterator[GpuLayout]:
    """Yield how a replica may lie on one node of this type; nothing where it has too few GPUs for what is pinned.

    A node carries one replica, so it takes all of its GPUs, as far as the attention heads divide. Of a node that is sold
    whole, ranks may take what tensor parallelism would spread thin; where the GPUs of a machine are sold by share, or
    replicas share a machine, replicas of their own do. The ranks of a mixture of experts wait for each other in every layer: they are never chosen unasked.
    """
    pinned, there = lane.launch, offering.gpu_count
    machines, stages = pinned.pipeline_parallel or 1, pinned.pipeline_parallel_local or 1
    split = _split(lane, card, there // (stages * (pinned.data_parallel or 1)))
    if split == 0:
        return
    yield GpuLayout(tensor_parallel=split, stages=stages, machines=machines, ranks=pinned.data_parallel or 1)
    is_free = pinned.data_parallel is None and machines == 1 and offering.pool_gpus is None
    if offering.is_shareable:
        narrower = (n for n in SPLITS if n < split and is_divisible(card, n)) if is_free else ()
        if pinned.tensor_parallel is None:
            yield from (GpuLayout(tensor_parallel=narrow, stages=stages) for narrow in narrower)
        return
    if not (is_free and rules.has_ranks and card.active_params == card.params):
        return
    for narrow in SPLITS if pinned.tensor_parallel is None else (pinned.tensor_parallel,):
        ranks = there // (narrow * stages)
        if narrow <= split and ranks > 1 and _splits(lane, card, narrow):
            yield GpuLayout(tensor_parallel=narrow, stages=stages, ranks=ranks)


def staged_layouts(lane: LaneSpec, card: ModelCard, offering: Offering) -> Iterator[GpuLayout]:
    """Yield the layouts with several stages on one machine that take more of its GPUs than tensor parallelism can."""
    pinned, there = lane.launch, offering.gpu_count
    # Who pins how the heads are split has laid the replica out by hand.
    if pinned.pipeline_parallel_local is not None or pinned.tensor_parallel is not None:
        return
    ranks = pinned.data_parallel or 1
    whole = _split(lane, card, there // ranks)
    for stages in range(2, min(there // ranks, card.num_layers) + 1):
        split = _split(lane, card, there // (stages * ranks))
        if split * stages > whole:
            machines = pinned.pipeline_parallel or 1
            yield GpuLayout(tensor_parallel=split, stages=stages, machines=machines, ranks=ranks)


def spanning_layouts(lane: LaneSpec, card: ModelCard, offering: Offering) -> Iterator[GpuLayout]:
    """Yield the layouts over several machines, each a stage, the fewest first."""
    pinned = lane.launch
    if pinned.pipeline_parallel is not None or (pinned.data_parallel or 1) > 1 or offering.pool_gpus is not None:
        return
    stages = pinned.pipeline_parallel_local or 1
    split = _split(lane, card, offering.gpu_count // stages)
    for machines in range(2, min(_MACHINES_MAX, card.num_layers // stages) + 1):
        if split:
            yield GpuLayout(tensor_parallel=split, stages=stages, machines=machines)


def _split(lane: LaneSpec, card: ModelCard, gpu_count: int) -> int:
    """Return over how many of so many GPUs the heads are split; 0 where they are too few for what is pinned."""
    pinned = lane.launch.tensor_parallel
    if pinned is not None:
        return pinned if pinned <= gpu_count else 0
    return max((count for count in SPLITS if count <= gpu_count and _splits(lane, card, count)), default=0)


def pin_errors(lane: LaneSpec, card: ModelCard) -> Iterator[InfeasiblePlanError]:
    """Yield the pinned sizes that no instance could have."""
    pinned = lane.launch
    if pinned.tensor_parallel and not _splits(lane, card, pinned.tensor_parallel):
        yield _undivided(lane, card, pinned.tensor_parallel)
    stages = (pinned.pipeline_parallel or 1) * (pinned.pipeline_parallel_local or 1)
    if stages > card.num_layers:
        yield _too_many_stages(lane, card, stages)
    if (pinned.data_parallel or 1) > 1 and (pinned.pipeline_parallel or 1) > 1:
        yield InfeasiblePlanError(
            f"lane {lane.name}: data_parallel is pinned to {pinned.data_parallel}, and pipeline_parallel to "
            f"{pinned.pipeline_parallel}: ranks of one replica lie on one machine",
            hint="leave data_parallel out: more replicas are planned, placed and routed to one by one",
            key=("lanes", lane.name, "launch", "data_parallel"),
        )


def too_few_gpus(lane: LaneSpec, allowed: Sequence[Offering]) -> InfeasiblePlanError:
    """Return the error for sizes that are pinned and that no node on offer has the GPUs for."""
    pinned = lane.launch
    sizes = ("tensor_parallel", "pipeline_parallel_local", "data_parallel")
    given = {name: value for name in sizes if (value := getattr(pinned, name)) is not None}
    pins = " and ".join(f"{name} is pinned to {value}" for name, value in given.items())
    most = max(offering.gpu_count for offering in allowed)
    hint = "leave it out, or span several machines (pipeline_parallel) where provider and engine can"
    return InfeasiblePlanError(
        f"lane {lane.name}: {pins}, and a node on offer has {format_count(most, 'GPU')} at most",
        hint=hint if len(given) == 1 else f"one of them lower: a node takes their product; {hint}",
        key=("lanes", lane.name, "launch", next(iter(given), "tensor_parallel")),
    )


def _undivided(lane: LaneSpec, card: ModelCard, pinned: int) -> InfeasiblePlanError:
    lawful = ", ".join(str(count) for count in SPLITS if _splits(lane, card, count))
    what = (
        f"the {card.num_heads} attention heads of {card.id}, {card.num_kv_heads} of them with keys and values, so"
        if not is_divisible(replace(card, mlp_groups=None, expert_groups=None), pinned)
        else f"the {card.expert_groups or card.mlp_groups} groups of quantized weights across {'an expert' if card.expert_groups else 'an MLP'} "
        f"of {card.id} so: each shares a scale, and none is cut"
    )
    experts = ", or keep experts whole (expert_parallel: true)" if card.expert_groups else ""
    return InfeasiblePlanError(
        f"lane {lane.name}: tensor_parallel is pinned to {pinned}, and no engine splits {what}",
        hint=f"leave it out, or take one of {lawful}{experts}",
        key=("lanes", lane.name, "launch", "tensor_parallel"),
    )


def _too_many_stages(lane: LaneSpec, card: ModelCard, stages: int) -> InfeasiblePlanError:
    name = "pipeline_parallel" if lane.launch.pipeline_parallel is not None else "pipeline_parallel_local"
    return InfeasiblePlanError(
        f"lane {lane.name}: {name} is pinned to {stages}, and {card.id} has {format_count(card.num_layers, 'layer')}",
        hint="each stage needs one at least; leave it out, or lower it",
        key=("lanes", lane.name, "launch", name),
    )
