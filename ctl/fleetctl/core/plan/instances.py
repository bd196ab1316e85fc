"""Which instances could carry a lane: a GPU, how many, on how many machines, where, at what price; whole machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_capacity_tokens, kv_precision_of, weight_bytes
from fleetctl.core.perf.step import StepModel, step_model
from fleetctl.core.placement import ruled_out
from fleetctl.core.plan.offers import offer_errors
from fleetctl.errors import InfeasiblePlanError, joined
from fleetctl.model.catalogue import Catalogue, GpuSpec, Market, ModelCard, Offering, Precision
from fleetctl.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.profile import CapacitySpec, LaneSpec, ModelSpec


_SPLITS = (1, 2, 4, 8, 16)  # of a node's GPUs, unless the profile names another lawful one


def is_divisible(card: ModelCard, gpu_count: int) -> bool:
    """Whether engines split a model's attention over so many GPUs.

    Each takes as many heads as any other; heads of keys and values are dealt out, or each is on as many GPUs as any other.
    """
    heads = card.num_kv_heads
    return card.num_heads % gpu_count == 0 and (heads % gpu_count == 0 or gpu_count % heads == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A node type with one engine over its GPUs: what a replica is, (GPUs, TP, PP, precision, KV format) included."""

    gpu: GpuSpec
    tensor_parallel: int
    node_count: int  # such machines, a pipeline stage each
    precision: Precision
    kv_precision: Precision
    card: ModelCard
    on_demand: Offering | None
    spot: Offering | None
    step: StepModel
    reserves_context: bool = False  # each sequence of a batch has room for the longest request, used or not

    @property
    def label(self) -> str:
        """Return how messages name it: "L40S", "2x H100"."""
        one = self.gpu.name if self.tensor_parallel == 1 else f"{self.tensor_parallel}x {self.gpu.name}"
        return one if self.node_count == 1 else f"{self.node_count} nodes of {one}"

    @property
    def memory_bytes(self) -> float:
        """Return the memory of all its GPUs."""
        return float(self.gpu.memory_bytes * self.tensor_parallel * self.node_count)

    @property
    def cheapest(self) -> Offering:
        """Return the on-demand offering, or the spot one where nothing else is sold."""
        found = self.on_demand or self.spot
        if found is None:
            raise ValueError("an instance is sold under some market")
        return found

    def kv_tokens(self, *, gpu_memory_utilization: float, max_num_batched_tokens: int) -> int:
        """Return how many tokens of KV cache fit; 0 when the weights do not."""
        return kv_capacity_tokens(
            self.card,
            self.gpu,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.node_count,
            precision=self.precision,
            kv_precision=self.kv_precision,
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_batched_tokens=max_num_batched_tokens,
        )


def instances(  # noqa: PLR0913  # a lane, what it loads, and all that may carry it
    lane: LaneSpec,
    model: ModelSpec,
    card: ModelCard,
    *,
    capacity: CapacitySpec,
    catalogue: Catalogue,
    offerings: Sequence[Offering],
    reserves_context: bool = False,
) -> tuple[Instance, ...]:
    """Return every node type this lane may use, cheapest first. Raises InfeasiblePlanError when there is none."""
    if absent := offer_errors(capacity, catalogue, offerings):
        raise joined(absent)
    pinned = lane.launch.tensor_parallel
    if pinned and not is_divisible(card, pinned):
        raise _undivided(lane, card, pinned)
    if (stages := lane.launch.pipeline_parallel or 1) > card.num_layers:
        raise _too_many_stages(lane, card, stages)
    allowed = [o for o in offerings if ruled_out(o, capacity) is None and o.gpu in catalogue.gpus]
    kv_precision = kv_precision_of(card, model.kv_cache)
    found = []
    for instance_type in sorted({o.instance_type for o in allowed}):
        sold = sorted(
            (o for o in allowed if o.instance_type == instance_type), key=lambda o: (o.price_usd_per_hour, o.key)
        )
        tensor_parallel = _tensor_parallel(lane, card, sold[0].gpu_count)
        if tensor_parallel == 0:
            continue
        gpu = catalogue.gpus[sold[0].gpu]
        node_count = lane.launch.pipeline_parallel or 1
        found.append(
            Instance(
                gpu=gpu,
                tensor_parallel=tensor_parallel,
                node_count=node_count,
                precision=card.loaded_as(model.quantization),
                kv_precision=kv_precision,
                card=card,
                on_demand=next((o for o in sold if o.market is Market.ON_DEMAND), None),
                spot=next((o for o in sold if o.market is Market.SPOT), None),
                step=step_model(
                    card,
                    gpu,
                    tensor_parallel=tensor_parallel,
                    pipeline_parallel=node_count,
                    precision=card.loaded_as(model.quantization),
                    kv_precision=kv_precision,
                ),
                reserves_context=reserves_context,
            )
        )
    if not found:
        raise _too_few_gpus(lane, allowed)
    return tuple(sorted(found, key=lambda i: (i.cheapest.price_usd_per_hour, i.cheapest.key)))


def _undivided(lane: LaneSpec, card: ModelCard, pinned: int) -> InfeasiblePlanError:
    lawful = ", ".join(str(count) for count in _SPLITS if is_divisible(card, count))
    return InfeasiblePlanError(
        f"lane {lane.name}: tensor_parallel is pinned to {pinned}, and no engine splits the {card.num_heads} attention heads "
        f"of {card.id}, {card.num_kv_heads} of them with keys and values, so",
        hint=f"leave it out, or take one of {lawful}",
        key=("lanes", lane.name, "launch", "tensor_parallel"),
    )


def _too_many_stages(lane: LaneSpec, card: ModelCard, stages: int) -> InfeasiblePlanError:
    return InfeasiblePlanError(
        f"lane {lane.name}: pipeline_parallel is pinned to {stages}, and {card.id} has {format_count(card.num_layers, 'layer')}",
        hint="each stage needs one at least; leave it out, or lower it",
        key=("lanes", lane.name, "launch", "pipeline_parallel"),
    )


def _too_few_gpus(lane: LaneSpec, allowed: Sequence[Offering]) -> InfeasiblePlanError:
    most = max(offering.gpu_count for offering in allowed)
    return InfeasiblePlanError(
        f"lane {lane.name}: tensor_parallel is pinned to {lane.launch.tensor_parallel}, and a node on offer has "
        f"{format_count(most, 'GPU')} at most",
        hint="leave it out, or span several machines (pipeline_parallel) where provider and engine can",
        key=("lanes", lane.name, "launch", "tensor_parallel"),
    )


def _tensor_parallel(lane: LaneSpec, card: ModelCard, gpu_count: int) -> int:
    """Return over how many of a node's GPUs the model is split; 0 where the node has fewer than the user pinned.

    A node carries one replica, so it is split over all of them, as far as the attention heads divide.
    """
    pinned = lane.launch.tensor_parallel
    if pinned is not None:
        return pinned if pinned <= gpu_count else 0
    return max(count for count in _SPLITS if count <= gpu_count and is_divisible(card, count))


def too_small(lane: LaneSpec, found: Sequence[Instance]) -> InfeasiblePlanError:
    """Return the error for a model no instance holds."""
    largest = max(found, key=lambda i: i.memory_bytes)
    need = format_bytes(weight_bytes(largest.card, largest.precision))
    have = format_bytes(largest.memory_bytes)
    return InfeasiblePlanError(
        f"lane {lane.name}: {largest.card.id} in {largest.precision} needs {need} for its weights, "
        f"and the largest instance on offer, {largest.label}, has {have} in all",
        key=("capacity", "gpus"),
        hint="quantise the model (fp8, int4), allow instances with more or larger GPUs, or span several machines "
        "(launch: {pipeline_parallel: 2}) where provider and engine can",
    )
