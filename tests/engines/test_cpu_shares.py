"""What replicas are to have of a machine without GPUs: by each lane's own model, with room for a rollout's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.core.perf.kv import weight_bytes
from fleetctl.engine_kit.cpu_shares import cpu_share
from fleetctl.model.profile import ReplicaShare, RolloutSpec
from fleetctl.plugins import load_engine
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.model.cpu_share import CpuShare

MODELS = load_catalogue().models
SMALL, LARGE = MODELS["meta-llama/Llama-3.2-1B-Instruct"], MODELS["meta-llama/Llama-3.1-8B-Instruct"]


def shares(rollout: RolloutSpec) -> tuple[CpuShare, CpuShare]:
    """Return those of two lanes of vLLM: two replicas of a small model, one of a large one."""
    plan = samples.plan()
    short = replace(plan.lane("short"), engine="vllm", replicas=2, model_card=SMALL)
    long = replace(plan.lane("long"), engine="vllm", replicas=1, model_card=LARGE)
    plan = replace(plan, lanes=(short, long), model_card=SMALL)
    found = [cpu_share(load_engine, plan, lane, rollout) for lane in plan.lanes]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def test_each_lane_is_reckoned_with_by_its_own_model() -> None:
    small, large = shares(RolloutSpec())
    use = load_engine("vllm").capabilities.cpu
    assert use is not None
    precision = samples.plan().lane("long").launch.quantization
    assert large.fixed_bytes - use.process_bytes - weight_bytes(LARGE, precision) in range(2)
    assert small.fixed_bytes < large.fixed_bytes
    assert small.parts == large.parts == 3
    assert small.fixed_bytes_all == large.fixed_bytes_all == 2 * small.fixed_bytes + large.fixed_bytes


def test_a_rollouts_replicas_are_reckoned_with_lane_by_lane() -> None:
    small, large = shares(RolloutSpec())
    assert (small.surge, small.surge_fixed_bytes) == (2, small.fixed_bytes + large.fixed_bytes)
    none, _ = shares(RolloutSpec(max_surge=ReplicaShare(), max_unavailable=ReplicaShare(count=1)))
    assert (none.surge, none.surge_fixed_bytes) == (0, 0)
