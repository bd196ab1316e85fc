"""A fleet with one lane on each real engine and one emulated, every figure pinned: golden files hang on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fleetctl.model.catalogue import Precision
from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
from fleetctl.model.profile import EmulatorSpec, LaneSpec, ModelSpec, Profile
from fleetctl.testing import samples

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
LAUNCH = LaunchSettings(
    model=MODEL,
    served_name="chat",
    tensor_parallel=2,
    quantization=Precision.FP8,
    kv_cache=Precision.FP8,
    max_num_seqs=32,
    max_model_len=8192,
    max_num_batched_tokens=4096,
    gpu_memory_utilization=0.9,
)


def lane(name: str, kind: str, flavour: str = "vllm") -> LaneSpec:
    return replace(samples.profile().lane("short"), name=name, engine=kind, emulator=EmulatorSpec(flavour=flavour))


def lane_plan(name: str, kind: str, **launch: Any) -> LanePlan:
    settings = replace(LAUNCH, **launch)
    base = samples.lane_plan(name, on_demand=1, spot=2)
    return replace(base, engine=kind, gpu="H100", tensor_parallel=settings.tensor_parallel, launch=settings)


def fleet(*lanes: tuple[LaneSpec, LanePlan], name: str = "support-chat", model: str = MODEL) -> tuple[Profile, Plan]:
    profile = replace(
        samples.profile(name),
        model=ModelSpec(id=model, quantization=Precision.FP8, served_name="chat"),
        lanes=tuple(spec for spec, _ in lanes),
    )
    return profile, replace(samples.plan(name), profile_hash="5eed" * 16, lanes=tuple(plan for _, plan in lanes))


def on_gpu(fleet: tuple[Profile, Plan], gpu: str) -> tuple[Profile, Plan]:
    """Return a fleet whose lanes are all planned for another GPU."""
    profile, plan = fleet
    return profile, replace(plan, lanes=tuple(replace(each, gpu=gpu) for each in plan.lanes))


def one_of_each() -> tuple[Profile, Plan]:
    """Return lanes on vLLM (with secrets and own arguments), TGI, SGLang, and an emulator that plays TGI."""
    tokens = {
        "HF_TOKEN": "env:HUB_TOKEN",
        "LICENCE_PASSWORD": "file:/run/secrets/licence",
        "S3_KEY": "keyring:s3/me",
        "OMP_NUM_THREADS": "4",
    }
    return fleet(
        (
            lane("short", "vllm"),
            lane_plan("short", "vllm", env=tokens, extra_args=("--override-generation-config", '{"top_k": 5}')),
        ),
        (lane("long", "tgi"), lane_plan("long", "tgi", model="/models/llama 70b")),
        (lane("panel", "sglang"), lane_plan("panel", "sglang", prefix_caching=False)),
        (
            lane("batch", "emulator", "tgi"),
            lane_plan("batch", "emulator", extra_args=("--fault", "slow"), shutdown_timeout_s=300.0),
        ),
    )
