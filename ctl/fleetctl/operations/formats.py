"""What a plan's GPUs do not compute in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Precision
from fleetctl.model.preflight import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import Plan


def format_findings(plan: Plan) -> Iterator[Finding]:
    """Yield a warning for each GPU from before Ampere that is to run bfloat16: engines end at their start there."""
    for gpu, spec in {
        lane.gpu: lane.gpu_spec or plan.gpu_spec for lane in plan.lanes if not lane.offering.is_on_cpu
    }.items():
        lanes = [lane.lane for lane in plan.lanes if lane.gpu == gpu and lane.launch.quantization is Precision.BF16]
        if spec is None or not lanes or Precision.BF16.value in spec.flops or Precision.FP16.value not in spec.flops:
            continue
        yield Finding(
            name="bfloat16",
            verdict=Verdict.WARN,
            detail=f"a {gpu} does not compute in bfloat16, which came with Ampere, and lanes {', '.join(lanes)} are planned in it",
            hint="set model.quantization to fp16, or plan on newer GPUs: capacity.gpus",
        )
