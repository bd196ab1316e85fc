"""Says in which format a lane's KV cache is kept, and what FP8 would buy where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.step import step_model
from fleetctl.core.plan.sizing import size
from fleetctl.model.catalogue import Precision
from fleetctl.units import format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.plan.instances import Instance
    from fleetctl.core.plan.sizing import SizingResult
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec


def kv_reasons(lane: LaneSpec, result: SizingResult, demand: LaneDemand, *, is_given: bool) -> Iterator[str]:
    """Yield the reason of the KV cache's format; nothing where FP8 would buy nothing, or neither GPU nor engine has it.

    FP8 is taken where the checkpoint brings the scales it was calibrated with. Without them it may cost accuracy (by 4
    points on long derivations in the field's own tests, by none in most), which is the user's to give.
    """
    instance = result.instance
    if is_given:
        return
    if instance.card.kv_cache is not None:
        why = (
            "calibrated in the checkpoint"
            if instance.kv_cache is Precision.FP8
            else f"{instance.gpu.name} computes no FP8"
        )
        yield f"kv_cache {instance.kv_precision}: {why}"
        return
    if not instance.has_fp8_kv or instance.kv_precision.bytes_per_element <= Precision.FP8.bytes_per_element:
        return
    halved = size(lane, _with_fp8(instance), demand)
    gains = list(_gains(result, halved)) if halved is not None else []
    if gains:
        yield (
            f"kv_cache auto ({instance.kv_precision}): fp8 would buy {', '.join(gains)}; the checkpoint brings no scales for it, "
            "so what it costs in accuracy is yours to judge (model.kv_cache: fp8)"
        )


def _gains(result: SizingResult, halved: SizingResult) -> Iterator[str]:
    before, after = result.settings, halved.settings
    if halved.needed < result.needed:
        fewer = result.needed - halved.needed
        usd = fewer * result.instance.node_count * result.instance.cheapest.price_usd_per_hour
        yield f"{format_count(fewer, 'replica')} less" + (f" ({format_usd(usd)}/h)" if usd else "")
    if after.running_max > before.running_max and halved.needed <= result.needed:
        yield f"{after.running_max} sequences in a batch in place of {before.running_max}"
    if after.model_len > before.model_len:
        yield f"requests of {after.model_len:,} tokens in place of {before.model_len:,}"


def _with_fp8(instance: Instance) -> Instance:
    layout = instance.layout
    step = step_model(
        instance.card,
        instance.gpu,
        tensor_parallel=layout.tensor_parallel,
        pipeline_parallel=layout.machines,
        pipeline_parallel_local=layout.stages,
        precision=instance.precision,
        kv_precision=Precision.FP8,
    )
    return replace(instance, kv_cache=Precision.FP8, kv_precision=Precision.FP8, step=step)
