"""What a lane loads its model from: refused where its engine cannot, planned by what the file holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.core.plan.kv import replica_kv_tokens
from fleetctl.operations.planning import try_planning
from tests.engines import tiny_gguf
from tests.sites import plugins_site

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.plan import Plan

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 16384, "vocab_size": 512, "torch_dtype": "bfloat16",
}  # fmt: skip
LANE = "slo: {ttft: {p99: 2s}}, max_wait: 10s, spot: none"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tiny_gguf.write(tmp_path / "tiny.gguf")
    tiny_gguf.write(tmp_path / "eight.gguf", kind=tiny_gguf.Q8_0)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


async def planned(place: Path, model: str, lanes: str) -> tuple[Plan | None, list[str]]:
    text = f"""
apiVersion: fleetctl/v1
name: two
model: {{id: tiny, {model}}}
engine: llamacpp
provider: local
workload: {{peak_rps: 1, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 30, p99: 60}}}}
lanes:
{lanes}
capacity: {{gpus: [L40S]}}
"""
    found = await try_planning(plugins_site(), parse_profile(text, source="p", base_dir=place))
    return found.plan, [f"{'.'.join(map(str, error.key))}: {error.message}" for error in found.errors]


async def test_a_gguf_file_is_planned_by_its_own_header(place: Path) -> None:
    plan, errors = await planned(place, "path: tiny.gguf", f"  all: {{{LANE}}}")
    assert not errors
    assert plan is not None
    assert plan.model_card is not None
    assert (plan.model_card.id, plan.model_card.num_layers, plan.model_card.context_tokens_max) == ("tiny", 2, 16384)
    assert plan.lanes[0].launch.model == str(place / "tiny.gguf")


async def test_every_slot_has_room_for_the_longest_request(place: Path) -> None:
    plan, _ = await planned(place, "path: tiny.gguf", f"  all: {{{LANE}, launch: {{max_model_len: 16384}}}}")
    assert plan is not None
    launch = plan.lanes[0].launch
    assert launch.max_num_seqs * launch.max_model_len <= replica_kv_tokens(plan, plan.lanes[0])
    longer, errors = await planned(
        place, "path: tiny.gguf", f"  all: {{{LANE}, launch: {{max_model_len: 16384, gpu_memory_utilization: 6%}}}}"
    )
    assert not errors
    assert longer is not None
    assert 1 <= longer.lanes[0].launch.max_num_seqs < launch.max_num_seqs
    assert longer.lanes[0].launch.max_num_seqs * 16384 <= replica_kv_tokens(longer, longer.lanes[0])


async def test_a_request_may_be_as_long_as_expected_and_no_slot_is_spent_on_more(place: Path) -> None:
    plan, _ = await planned(place, "path: tiny.gguf", f"  all: {{{LANE}}}")
    other, _ = await planned(place, "path: tiny", f"  all: {{{LANE}, engine: vllm}}")
    assert plan is not None
    assert other is not None
    assert plan.lanes[0].launch.max_model_len < other.lanes[0].launch.max_model_len == 16384


async def test_two_engines_load_one_model_from_two_places(place: Path) -> None:
    lanes = f"""
  short: {{{LANE}, match: {{uncached_prompt_tokens: "< 100"}}, weights: {{path: eight.gguf, quantization: int8}}}}
  long: {{{LANE}, engine: vllm}}
"""
    plan, errors = await planned(place, "path: tiny", lanes)
    assert not errors
    assert plan is not None
    short, long = plan.lanes
    assert (short.engine, short.launch.model, short.launch.quantization) == (
        "llamacpp",
        str(place / "eight.gguf"),
        "int8",
    )
    assert (long.engine, long.launch.model, long.launch.quantization) == ("vllm", str(place / "tiny"), "bf16")
    assert short.launch.served_name == long.launch.served_name == "tiny"


@pytest.mark.parametrize(
    ("model", "lane", "refusal"),
    [
        ("path: tiny", "", "model.path: lane all: llamacpp loads a GGUF file, and is given {place}/tiny"),
        ("path: tiny.gguf", "engine: vllm", ("model.path: lane all: vllm loads a hub id, or a directory with a config.json and "
         "safetensors, and is given {place}/tiny.gguf")),
        ("path: none.gguf", "", "model.path: no model at {place}/none.gguf"),
        ("path: eight.gguf", "", ("model.quantization: lane all: {place}/eight.gguf is int8 for the most part, and the profile "
         "says bf16")),
        ("path: tiny", "weights: {path: eight.gguf}", ("lanes.all.weights.quantization: lane all: {place}/eight.gguf is int8 for "
         "the most part, and the profile says bf16")),
        ("path: tiny.gguf, kv_cache: fp8", "", "model.kv_cache: llamacpp has no fp8 KV cache"),
        ("path: other", "weights: {path: tiny.gguf}", ("lanes.all.weights.path: lane all: {place}/tiny.gguf is another model than "
         "the lane's: num_layers 2 for 3, context_tokens_max 16384 for 8192")),
        ("path: tiny.gguf", "launch: {extra_args: [--frobnicate]}", ("lanes.all.launch.extra_args.0: lane all: llamacpp has no flag "
         "--frobnicate")),
    ],
)  # fmt: skip
async def test_what_cannot_be_loaded_is_refused_with_its_key(place: Path, model: str, lane: str, refusal: str) -> None:
    (place / "other").mkdir()
    other = CONFIG | {"num_hidden_layers": 3, "max_position_embeddings": 8192}
    (place / "other" / "config.json").write_text(json.dumps(other))
    plan, errors = await planned(place, model, f"  all: {{{', '.join(filter(None, (LANE, lane)))}}}")
    assert plan is None
    assert errors == [refusal.format(place=place)]
