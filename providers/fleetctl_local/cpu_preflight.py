"""Whether the processors and the memory of a machine without GPUs suffice for a plan's engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.preflight import Finding, Verdict
from fleetctl.units import format_bytes
from fleetctl_local.cpus import cores_each, left_for_kv_bytes, surges_fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_local.cpus import CpuReading
    from fleetctl_local.gpus import GpuReading

_NAME = "CPUs"
_LEAST_KV_BYTES = 2**30  # a KV cache is sized in whole GiB


def judge(nodes: tuple[PlannedNodes, ...], *, gpus: GpuReading, cpus: CpuReading) -> Iterator[Finding]:
    """Yield the finding about CPUs and memory, where engines that would use GPUs are to run without."""
    shares = [each.cpu for each in nodes if each.cpu is not None and each.gpu_count]
    if gpus.gpus or not shares:
        return
    share = max(shares, key=lambda each: each.fixed_bytes + each.kv_bytes_min)
    least_kv = max(share.kv_bytes_min, _LEAST_KV_BYTES if share.kv_space_env else 0)
    left = left_for_kv_bytes(share, cpus)
    each = cores_each(share, cpus)
    found = f"{cpus.count} CPUs and {format_bytes(cpus.memory_bytes)}, shared out to {share.parts} replicas"
    if cpus.memory_bytes and left < least_kv:
        found += (
            f": {format_bytes(share.fixed_bytes)} for one's weights and process and {format_bytes(least_kv)} for its KV "
            f"cache do not fit in its part"
        )
        hint = "plan fewer replicas, a smaller model, or a shorter launch.max_model_len"
        yield Finding(name=_NAME, verdict=Verdict.FAIL, detail=found, hint=hint)
    elif cpus.memory_bytes and not surges_fit(share, cpus):
        found += f": a rollout's replica beside them would lack {format_bytes(share.fixed_bytes)} and its KV cache"
        hint = "set control.rollout.max_surge: 0 and max_unavailable: 1, or plan fewer replicas"
        yield Finding(name=_NAME, verdict=Verdict.WARN, detail=found, hint=hint)
    elif not each:
        hint = f"they get in each other's way: plan at most {cpus.count} replicas"
        yield Finding(name=_NAME, verdict=Verdict.WARN, detail=f"{found}: none has one to itself", hint=hint)
    else:
        found += f": {each} each, and {format_bytes(left)} for KV cache" if cpus.memory_bytes else f": {each} each"
        yield Finding(name=_NAME, verdict=Verdict.OK, detail=found)
