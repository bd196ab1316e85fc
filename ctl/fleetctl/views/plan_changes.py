"""What `up` would change, as text."""

from __future__ import annotations

from fleetctl.core.plan.changes import InstanceChoice, ModelVariant, PlanField, PlanValue, ReplicaSplit
from fleetctl.units import format_duration, format_usd

_FLOATS = {PlanField.TTFT_P99: format_duration, PlanField.ITL_P99: format_duration, PlanField.COST: format_usd}


def format_plan_value(field: PlanField, value: PlanValue | None) -> str:
    """Return one side of a plan's change; empty where that plan has no such lane."""
    text = "" if value is None else str(value)
    match value:
        case ReplicaSplit():
            text = f"{value.replicas} ({value.on_demand} on-demand, {value.spot} spot)"
        case InstanceChoice():
            spans = f", PP {value.stages}" if value.stages > 1 else ""
            spans += f", DP {value.ranks}" if value.ranks > 1 else ""
            text = f"{value.instance_type} ({value.gpu_count}x {value.gpu}, TP {value.tensor_parallel}{spans})"
        case ModelVariant():
            text = f"{value.model} {value.quantization} (KV {value.kv_cache or 'auto'})"
        case tuple():
            text = " ".join(value)
        case float():
            text = _FLOATS.get(field, "{:g}".format)(value)
        case _:
            pass  # plain numbers and names read as they are
    return text
