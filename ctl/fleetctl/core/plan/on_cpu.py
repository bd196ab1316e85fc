"""What a plan says of lanes on a machine without GPUs: nobody has measured its CPU, so nothing is forecast."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.plan import LanePlan

_SETTINGS = ("max_num_seqs ", "max_num_batched_tokens ", "max_model_len ", "gpu_memory_utilization ", "pinned by ")


def without_forecast(plan: LanePlan) -> LanePlan:
    """Return a lane's plan with reasons that claim nothing of a CPU; one on GPUs as it is."""
    if not plan.offering.is_on_cpu:
        return plan
    count = f"{format_count(plan.replicas, 'replica')} on this machine's CPU, of which nothing is forecast"
    of_card = f"settings as for a {plan.gpu}, which stands in for it: pin what the CPU asks for (launch)"
    kept = (reason for reason in plan.reasons if reason.startswith(_SETTINGS))
    return replace(plan, reasons=(count, of_card, *kept))


def cpu_cautions(lanes: Sequence[LanePlan]) -> tuple[str, ...]:
    """Return that lanes run without a GPU, and what follows; empty: none does."""
    names = [lane.lane for lane in lanes if lane.offering.is_on_cpu]
    if not names:
        return ()
    noun = "lane" if len(names) == 1 else "lanes"
    where = f"this machine has no GPU: {noun} {', '.join(names)} would run on its CPU"
    price = "at $0 unless capacity.gpu_per_hour says what a replica costs"
    return (f"{where}, {price}; no latency is forecast and no promise was checked: measure with `fleetctl load`",)
