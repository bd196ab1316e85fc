"""Which instances could carry a lane: a GPU, how many, on how many machines, where, at what price; whole machines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_capacity_tokens, kv_precision_of, weight_bytes
from fleetctl.core.perf.sequence_kv import SequenceKv, sequence_kv
from fleetctl.core.perf.step import StepModel, step_model
from fleetctl.core.placement import ruled_out
from fleetctl.core.plan.layouts import (
    ONE_STAGE,
    GpuLayout,
    LayoutRules,
    layouts,
    pin_errors,
    spanning_layouts,
    staged_layouts,
    too_few_gpus,
)
from fleetctl.core.plan.margin import NO_MARGIN, ForecastMargin, model_margin
from fleetctl.core.plan.offers import offer_errors
from fleetctl.errors import InfeasiblePlanError, joined
from fleetctl.model.catalogue import Catalogue, GpuSpec, Market, ModelCard, Offering, Precision
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fleetctl.model.profile import CapacitySpec, LaneSpec, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A node type with one engine over its GPUs: what a replica is, (GPUs, layout, precision, KV format) included."""

    gpu: GpuSpec
    layout: GpuLayout
    precision: Precision
    kv_precision: Precision
    card: ModelCard
    on_demand: Offering | None
    spot: Offering | None
    step: StepModel  # of one rank
    kv_cache: Precision | None = None  # as the engine is told; None: its "auto"
    has_fp8_kv: bool = False  # GPU and engine keep an FP8 KV cache
    margin: ForecastMargin = NO_MARGIN  # that promises need above what is forecast of it
    reserves_context: bool = False  # each sequence of a batch has room for the longest request, used or not

    @property
    def tensor_parallel(self) -> int:
        """Return over how many GPUs each stage's layers are split."""
        return self.layout.tensor_parallel

    @property
    def node_count(self) -> int:
        """Return the machines of one replica."""
        return self.layout.machines

    @property
    def replicas_each_machine(self) -> int:
        """Return how many replicas share one machine; 1: each has its own."""
        return self.cheapest.replicas_max(self.layout.gpus) if self.node_count == 1 else 1

    def machines(self, replicas: int) -> int:
        """Return how many machines so many replicas of one market take."""
        return -(-replicas // self.replicas_each_machine) * self.node_count

    @property
    def ranks(self) -> int:
        """Return how many copies of the model one replica is."""
        return self.layout.ranks

    @property
    def alike(self) -> tuple[object, ...]:
        """Return what a replica is, wherever its GPUs are bought: instances of one lane that agree in it are sized alike."""
        return self.gpu.name, self.layout, self.margin, self.has_fp8_kv, self.cheapest.is_on_cpu

    @property
    def label(self) -> str:
        """Return how messages name it: "L40S", "2x H100"."""
        one = self.gpu.name if self.layout.gpus == 1 else f"{self.layout.gpus}x {self.gpu.name}"
        return one if self.node_count == 1 else f"{self.node_count} nodes of {one}"

    @property
    def memory_bytes(self) -> float:
        """Return the memory of all its GPUs."""
        return float(self.gpu.memory_bytes * self.layout.gpus * self.node_count)

    @property
    def cheapest(self) -> Offering:
        """Return the on-demand offering, or the spot one where nothing else is sold."""
        found = self.on_demand or self.spot
        if found is None:
            raise ValueError("an instance is sold under some market")
        return found

    @property
    def sequence_kv(self) -> SequenceKv:
        """Return what a sequence takes of a rank's KV cache besides a token for each of its own."""
        return sequence_kv(self.card, self.kv_precision, self.tensor_parallel)

    def kv_tokens(self, *, gpu_memory_utilization: float, max_num_batched_tokens: int, max_num_seqs: int = 0) -> int:
        """Return how many tokens of KV cache fit one rank; 0 when the weights do not."""
        return kv_capacity_tokens(
            self.card,
            self.gpu,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.node_count * self.layout.stages,
            data_parallel=self.ranks,
            precision=self.precision,
            kv_precision=self.kv_precision,
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
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
    has_margin: bool = False,
    rules: LayoutRules = ONE_STAGE,
    fits: Callable[[Instance], bool] = lambda _: True,
) -> tuple[Instance, ...]:
    """Return every node type this lane may use, by every layout, cheapest first. Raises InfeasiblePlanError when there is none.

    Stages are planned only where no tensor parallel split of a node `fits` the model and its longest request, several
    machines only where no layout on one of them does. `has_margin`: promises are held at the upper end of forecasts.
    """
    if absent := offer_errors(capacity, catalogue, offerings):
        raise joined(absent)
    if unlawful := tuple(pin_errors(lane, card)):
        raise joined(unlawful)
    allowed = [o for o in offerings if ruled_out(o, capacity) is None and o.gpu in catalogue.gpus]
    kinds = [_sold(allowed, name) for name in sorted({o.instance_type for o in allowed})]

    def laid(find: Callable[[Offering], Iterable[GpuLayout]]) -> list[Instance]:
        made = (
            _instance(layout, sold, model, card, catalogue.gpus[sold[0].gpu])
            for sold in kinds
            for layout in find(sold[0])
        )
        return [
            replace(
                instance,
                reserves_context=reserves_context,
                margin=model_margin(instance.gpu) if has_margin and not instance.cheapest.is_on_cpu else NO_MARGIN,
                has_fp8_kv=rules.has_fp8_kv and Precision.FP8.value in instance.gpu.flops,
            )
            for instance in made
        ]

    found = laid(lambda offering: layouts(lane, card, offering, rules))
    if rules.has_stages and not any(map(fits, found)):
        found += filter(fits, laid(lambda offering: staged_layouts(lane, card, offering)))
    if rules.spans_machines and not any(map(fits, found)):
        found += _fewest_machines(filter(fits, laid(lambda offering: spanning_layouts(lane, card, offering))))
    if not found:
        raise too_few_gpus(lane, allowed)
    return tuple(sorted(found, key=lambda i: (i.cheapest.price_usd_per_hour, i.cheapest.key, i.ranks, i.layout.stages)))


def _sold(allowed: Sequence[Offering], instance_type: str) -> list[Offering]:
    """Return the offerings of a type, cheapest first."""
    return sorted((o for o in allowed if o.instance_type == instance_type), key=lambda o: (o.price_usd_per_hour, o.key))


def _instance(layout: GpuLayout, sold: Sequence[Offering], model: ModelSpec, card: ModelCard, gpu: GpuSpec) -> Instance:
    precision, kv_cache = card.loaded_as(model.quantization), model.kv_cache or _scaled_kv_cache(card, gpu)
    kv_precision = kv_precision_of(card, kv_cache)
    return Instance(
        gpu=gpu,
        layout=layout,
        precision=precision,
        kv_precision=kv_precision,
        kv_cache=kv_cache,
        card=card,
        on_demand=next((o for o in sold if o.market is Market.ON_DEMAND), None),
        spot=next((o for o in sold if o.market is Market.SPOT), None),
        step=step_model(
            card,
            gpu,
            tensor_parallel=layout.tensor_parallel,
            pipeline_parallel=layout.machines,
            pipeline_parallel_local=layout.stages,
            precision=precision,
            kv_precision=kv_precision,
        ),
    )


def _scaled_kv_cache(card: ModelCard, gpu: GpuSpec) -> Precision | None:
    """Return the format that the checkpoint has scales for, 16 bits where the GPU computes none such. None: it has none."""
    if card.kv_cache is None or card.kv_cache.value in gpu.flops:
        return card.kv_cache
    return kv_precision_of(card, None)


def _fewest_machines(found: Iterable[Instance]) -> list[Instance]:
    """Return of each node type the instance of the fewest machines."""
    fewest: dict[str, Instance] = {}
    for instance in found:
        known = fewest.setdefault(instance.cheapest.instance_type, instance)
        if instance.node_count < known.node_count:
            fewest[instance.cheapest.instance_type] = instance
    return list(fewest.values())


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
