"""A fleet with one lane on each real engine and one emulated, every figure pinned: golden files hang on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.model.catalogue import Precision
from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
from fleetctl.model.profile import EmulatorSpec, EngineKind, LaneSpec, ModelSpec, Profile
from fleetctl.plugins import load_engine
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.ports.engine import Engine

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
    priority_scheduling=True,
    max_queued_requests=16,
)


def engines() -> dict[EngineKind, Engine]:
    return {kind: load_engine(kind.value) for kind in EngineKind if kind is not EngineKind.EMULATOR}


def lane(name: str, kind: EngineKind, flavour: EngineKind = EngineKind.VLLM) -> LaneSpec:
    return replace(samples.profile().lane("short"), name=name, engine=kind, emulator=EmulatorSpec(flavour=flavour))


def lane_plan(name: str, kind: EngineKind, **launch: Any) -> LanePlan:
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


def one_of_each() -> tuple[Profile, Plan]:
    """Return lanes on vLLM (with secrets and own arguments), TGI, SGLang, and an emulator that wears TGI's flavour."""
    tokens = {
        "HF_TOKEN": "env:HUB_TOKEN",
        "LICENCE_PASSWORD": "file:/run/secrets/licence",
        "S3_KEY": "keyring:s3/me",
        "OMP_NUM_THREADS": "4",
    }
    return fleet(
        (
            lane("short", EngineKind.VLLM),
            lane_plan(
                "short", EngineKind.VLLM, env=tokens, extra_args=("--override-generation-config", '{"top_k": 5}')
            ),
        ),
        (lane("long", EngineKind.TGI), lane_plan("long", EngineKind.TGI, model="/models/llama 70b")),
        (lane("panel", EngineKind.SGLANG), lane_plan("panel", EngineKind.SGLANG, prefix_caching=False)),
        (
            lane("batch", EngineKind.EMULATOR, EngineKind.TGI),
            lane_plan("batch", EngineKind.EMULATOR, extra_args=("--fault", "slow"), shutdown_timeout_s=300.0),
        ),
    )
