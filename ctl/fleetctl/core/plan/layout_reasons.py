"""Says why a replica lies over its GPUs as it does: stages, machines, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import weight_bytes
from fleetctl.units import format_bytes, format_count, format_rps, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleetctl.core.plan.sizing import SizingResult
    from fleetctl.model.profile import LaneSpec


def layout_reasons(lane: LaneSpec, chosen: SizingResult, others: Sequence[SizingResult]) -> Iterator[str]:
    """Yield the reasons of the parallel sizes that the plan chose; `others` are the same node's other layouts."""
    yield from _machines(lane, chosen)
    yield from _stages(lane, chosen)
    yield from _ranks(lane, chosen, others)


def _machines(lane: LaneSpec, chosen: SizingResult) -> Iterator[str]:
    spans = chosen.instance.node_count
    if spans == 1:
        return
    yield f"a replica spans {spans} machines, a pipeline stage each, counted one after the other"
    if lane.launch.pipeline_parallel is None:
        yield f"pipeline_parallel {spans}: no layout on one machine on offer holds {_need(chosen)}; {spans} is the fewest that do"


def _stages(lane: LaneSpec, chosen: SizingResult) -> Iterator[str]:
    layout, card = chosen.instance.layout, chosen.instance.card
    if layout.stages == 1 or lane.launch.pipeline_parallel_local is not None:
        return
    yield (
        f"pipeline_parallel_local {layout.stages}: no tensor parallel split of a node on offer holds {_need(chosen)}, for "
        f"{card.num_heads} heads, {card.num_kv_heads} of them with keys and values, leave GPUs idle; stages of "
        f"{layout.tensor_parallel} take {layout.gpus}, counted one after the other"
    )


def _need(chosen: SizingResult) -> str:
    card, precision = chosen.instance.card, chosen.instance.precision
    return f"{format_bytes(weight_bytes(card, precision))} of weights and the longest request"


def _ranks(lane: LaneSpec, chosen: SizingResult, others: Sequence[SizingResult]) -> Iterator[str]:
    """Yield why there are so many ranks, beside what the node would do with fewer or more of them."""
    instance = chosen.instance
    if lane.launch.data_parallel is not None:
        return
    if instance.cheapest.pool_gpus is not None:
        if chosen.needed > 1:
            yield (
                f"data_parallel 1: {chosen.needed} replicas of {format_count(instance.layout.gpus, 'GPU')} each are routed to, "
                f"drained and lost one by one; as ranks of one engine all {chosen.needed} would go with any of them"
            )
        return
    rest = [other for other in others if other.instance.ranks != instance.ranks]
    if instance.ranks > 1:  # held against the fewest: one copy of the model over all GPUs, where that carries the lane
        beside = min(rest, key=lambda other: other.instance.ranks, default=None)
    else:
        beside = min(rest, key=lambda other: (other.needed, -other.knee_rps), default=None)
    if beside is not None:
        sooner = "" if instance.ranks > 1 else "; one copy of the model over all GPUs answers sooner"
        yield f"data_parallel {instance.ranks}: {_carries(chosen)}, {_carries(beside)}{sooner}"


def _carries(result: SizingResult) -> str:
    instance = result.instance
    usd = format_usd(result.needed * instance.cheapest.price_usd_per_hour)
    layout = f"{instance.ranks} x TP {instance.tensor_parallel}"
    return f"{layout} saturates at {format_rps(result.knee_rps)} rps a node and needs {format_count(result.needed, 'node')} ({usd}/h)"
