"""In which format the KV cache is kept: as the profile says, as the checkpoint has scales for, or what FP8 would buy."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.known import resolve_model
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.core.plan import make_plan
from fleetctl.core.plan.layouts import LayoutRules
from fleetctl.model.catalogue import ModelCard, Precision
from tests.plan.profiles import CATALOGUE, OFFERINGS, profile_with

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import Profile

LONG: dict[str, Any] = {
    "prompt": (6000, 30000),
    "output": (400, 1500),
    "rps": 4,
    "slo": "ttft: {p99: 20s}, itl: {p99: 200ms}",
}


def lane_of(profile: Profile, *, card: ModelCard | None = None, has_fp8_kv: bool = True) -> LanePlan:
    """Return the plan of a profile's only lane, on an engine that keeps FP8 or does not."""
    plan = make_plan(
        profile,
        model_card=card or resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=OFFERINGS,
        profile_hash="",
        layouts={"all": LayoutRules(has_fp8_kv=has_fp8_kv)},
    )
    return plan.lanes[0]


def kv_reason(lane: LanePlan) -> str:
    return "".join(reason for reason in lane.reasons if reason.startswith("kv_cache "))


def scaled(profile: Profile) -> ModelCard:
    return replace(resolve_model(profile.model, CATALOGUE), kv_cache=Precision.FP8)


def test_what_fp8_would_buy_is_told_and_left_to_the_user() -> None:
    lane = lane_of(profile_with(**LONG))
    assert lane.launch.kv_cache is None
    assert "fp8 would buy" in kv_reason(lane)
    assert "model.kv_cache: fp8" in kv_reason(lane)
    given = lane_of(profile_with(kv="fp8", **LONG))
    assert given.launch.kv_cache is Precision.FP8
    assert not kv_reason(given)
    bought = lane.replicas - given.replicas
    assert (f"{bought} replica" in kv_reason(lane)) == (bought > 0)


def test_nothing_is_told_where_it_buys_nothing_or_cannot_be_had() -> None:
    assert not kv_reason(lane_of(profile_with(rps=0.1, prompt=(100, 200), output=(20, 40), slo="ttft: {p99: 5s}")))
    assert not kv_reason(lane_of(profile_with(**LONG), has_fp8_kv=False))
    assert not kv_reason(lane_of(profile_with(gpus="A10G", **LONG | {"prompt": (600, 3000)})))  # computes no FP8


def test_a_checkpoint_with_scales_has_its_cache_in_their_format() -> None:
    profile = profile_with(**LONG)
    plain, lane = lane_of(profile), lane_of(profile, card=scaled(profile))
    assert lane.launch.kv_cache is Precision.FP8
    assert kv_reason(lane) == "kv_cache fp8: calibrated in the checkpoint"
    assert lane.replicas <= plain.replicas
    assert lane_of(profile_with(kv="bf16", **LONG), card=scaled(profile)).launch.kv_cache is Precision.BF16


def test_scales_are_of_no_use_to_a_gpu_that_computes_no_fp8() -> None:
    profile = profile_with(gpus="A10G", **LONG | {"prompt": (600, 3000)})
    lane = lane_of(profile, card=scaled(profile))
    assert lane.launch.kv_cache is Precision.BF16
    assert kv_reason(lane) == "kv_cache bf16: A10G computes no FP8"


_FLOAT8 = {"type": "float", "num_bits": 8}


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": _FLOAT8 | {"dynamic": False}}, Precision.FP8),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": _FLOAT8 | {"dynamic": True}}, None),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, Precision.FP8),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, Precision.FP8),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, None),
        ({"quant_method": "awq", "bits": 4}, None),
        (None, None),
    ],
)  # fmt: skip
def test_scales_are_read_from_the_checkpoints_own_config(
    tmp_path: Path, section: dict[str, Any] | None, found: Precision | None
) -> None:
    config: dict[str, Any] = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 256,
        "intermediate_size": 128, "max_position_embeddings": 2048,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config if section is None else config | {"quantization_config": section}))
    assert model_card_from_config(file).kv_cache is found


@pytest.mark.parametrize(
    ("gpu", "words"), [("V100-32GB", "ends at its start"), ("A100-80GB", "weight-only kernels"), ("H100", "")]
)
def test_where_fp8_is_not_computed_the_plan_says_what_becomes_of_it(gpu: str, words: str) -> None:
    profile = profile_with(precision="fp8", rps=1, gpus=gpu, slo="ttft: {p99: 5s}, itl: {p99: 200ms}")
    lane = make_plan(
        profile,
        model_card=resolve_model(profile.model, CATALOGUE),
        catalogue=CATALOGUE,
        offerings=tuple(replace(each, gpu=gpu) for each in OFFERINGS if each.gpu == "L40S"),
        profile_hash="",
    ).lanes[0]
    found = [reason for reason in lane.reasons if "computes no FP8" in reason]
    assert (words in found[0]) if words else not found
