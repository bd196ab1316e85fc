"""Published configs give the published numbers of parameters, and name what is not counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def config(kind: str, layers: int, hidden: int, inner: int, heads: str, vocab: int, **more: Any) -> dict[str, Any]:
    """Return a config.json; `heads` are all, those with keys and values, and their width: "32/8/128"."""
    query, keys, width = (int(number) for number in heads.split("/"))
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": query,
        "num_key_value_heads": keys, "head_dim": width, "vocab_size": vocab, "max_position_embeddings": 8192, **more,
    }  # fmt: skip


GLM_AIR = config(
    "glm4_moe", 46, 4096, 10944, "96/8/128", 151552, moe_intermediate_size=1408, n_routed_experts=128, num_experts_per_tok=8,
    n_shared_experts=1, first_k_dense_replace=1, attention_bias=True, use_qk_norm=False,
)  # fmt: skip
# As the hub shows them (Safetensors, model size); of those that see images too, the language model's.
PUBLISHED = {
    "google/gemma-2-9b-it": (config("gemma2", 42, 3584, 14336, "16/8/256", 256000), 9_241_705_984),
    "google/gemma-2-27b-it": (config("gemma2", 46, 4608, 36864, "32/16/128", 256000), 27_227_128_320),
    "google/gemma-3-1b-it": (config("gemma3_text", 26, 1152, 6912, "4/1/256", 262144), 999_885_952),
    "microsoft/phi-4": (config("phi3", 40, 5120, 17920, "40/10/128", 100352), 14_659_507_200),
    "mistralai/Mistral-Small-24B-Instruct-2501": (config("mistral", 40, 5120, 32768, "32/8/128", 131072), 23_572_403_200),
    "CohereLabs/c4ai-command-r-v01": (config("cohere", 40, 8192, 22528, "64/64/128", 256000), 34_980_831_232),
    "CohereLabs/c4ai-command-r-plus": (
        config("cohere", 64, 12288, 33792, "96/8/128", 256000, use_qk_norm=True), 103_810_674_688,
    ),
    "CohereLabs/c4ai-command-r7b-12-2024": (config("cohere2", 32, 4096, 14336, "32/8/128", 256000), 8_028_033_024),
    "zai-org/GLM-4.5-Air": (GLM_AIR, 106_852_251_264),
    "zai-org/GLM-4-9B-0414": (config("glm4", 40, 4096, 13696, "32/2/128", 151552, attention_bias=True), 9_400_279_040),
    "HuggingFaceTB/SmolLM3-3B": (config("smollm3", 36, 2048, 11008, "16/4/128", 128256), 3_075_098_624),
    "ByteDance-Seed/Seed-OSS-36B-Instruct": (config("seed_oss", 64, 5120, 27648, "80/8/128", 155136, attention_bias=True, attention_out_bias=False), 36_151_104_512),
    "allenai/OLMo-2-1124-7B": (config("olmo2", 32, 4096, 11008, "32/32/128", 100352), 7_298_617_344),
    "allenai/OLMoE-1B-7B-0924": (config("olmoe", 16, 2048, 1024, "16/16/128", 50304, num_experts=64, num_experts_per_tok=8), 6_919_161_856),
    "LGAI-EXAONE/EXAONE-4.0-32B": (config("exaone4", 64, 5120, 27392, "40/8/128", 102400), 32_003_216_384),
    "bigcode/starcoder2-7b": (config("starcoder2", 32, 4608, 18432, "36/4/128", 49152, use_bias=True), 7_173_923_840),
    "stabilityai/stablelm-2-1_6b": (config("stablelm", 24, 2048, 5632, "32/32/64", 100352, use_qkv_bias=True), 1_644_515_328),
    "baidu/ERNIE-4.5-21B-A3B-PT": (
        config(
            "ernie4_5_moe", 28, 2560, 12288, "20/4/128", 103424, moe_intermediate_size=1536, moe_num_experts=64, moe_k=6,
            moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=27, moe_layer_interval=1,
        ), 21_825_437_888,
    ),
}  # fmt: skip


def written(path: Path, content: dict[str, Any]) -> Path:
    file = path / "config.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_published_config_gives_the_published_number_of_parameters(model: str, tmp_path: Path) -> None:
    content, params = PUBLISHED[model]
    assert model_card_from_config(written(tmp_path, content)).params == params


def small(kind: str, **more: Any) -> dict[str, Any]:
    return config(kind, 4, 512, 1408, "8/2/64", 1000, **more)


# As transformers 5.19 makes them without weights, `sum(p.numel() for p in model.parameters())`, and each router's bias, a buffer there.
MADE = [
    (small("apertus"), 9_417_736 - 8),  # two numbers of each layer's activation are left out
    (small("arcee"), 9_417_216),
    (small("exaone_moe", num_experts=64, num_experts_per_tok=8, num_shared_experts=1, moe_intermediate_size=96, mlp_layer_types=["dense", *["sparse"] * 31]), 34_665_472),
    (
        small(
            "glm4_moe_lite", n_routed_experts=64, num_experts_per_tok=4, n_shared_experts=1, moe_intermediate_size=96, q_lora_rank=768,
            kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=192, v_head_dim=256, mlp_layer_types=["dense", *["sparse"] * 46],
        ), 52_626_944 + 3 * 64,
    ),
    (small("granitemoe", num_local_experts=8, num_experts_per_tok=2), 72_872_448),
    (small("ministral3"), 12_300_800),
    (small("olmo3"), 12_303_360),
]  # fmt: skip


@pytest.mark.parametrize(("content", "params"), MADE, ids=[content["model_type"] for content, _ in MADE])
def test_a_family_has_the_parameters_that_transformers_makes(
    content: dict[str, Any], params: int, tmp_path: Path
) -> None:
    assert model_card_from_config(written(tmp_path, content)).params == params


def test_a_model_of_many_small_experts_has_its_published_size(tmp_path: Path) -> None:
    minimax = config(
        "minimax_m2", 62, 3072, 1536, "48/8/128", 200064, num_local_experts=256, num_experts_per_tok=8, use_qk_norm=True,
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(minimax))
    card = model_card_from_config(tmp_path / "config.json")
    # MiniMax-M2.5 on the hub: 229B params, 10B of them active, the embeddings left out.
    assert card.params == pytest.approx(228.7e9, rel=1e-3)
    assert card.active_params - 2 * 200064 * 3072 == pytest.approx(10e9, rel=0.05)


def test_of_experts_those_a_token_passes_are_active(tmp_path: Path) -> None:
    card = model_card_from_config(written(tmp_path, GLM_AIR))
    assert 11e9 < card.active_params < 14e9  # its publisher says 12 billion
    assert card.num_kv_heads == 8


def test_a_nested_config_that_leaves_out_what_is_usual_is_read_as_its_publisher_means(tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    whole = {
        "model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": text, "vision_config": {"hidden_size": 1152},
        "quantization_config": {"quant_method": "gptq", "bits": 4},
    }  # fmt: skip
    card = model_card_from_config(written(tmp_path, whole))
    assert card.params == 3_880_263_168
    assert (card.num_heads, card.num_kv_heads, card.head_dim, card.context_tokens_max) == (8, 4, 256, 131072)
    assert card.native_precision.value == "int4"


def test_a_family_that_no_plan_counts_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cross-attention layers keep keys and values of images"):
        model_card_from_config(written(tmp_path, config("mllama", 40, 4096, 14336, "32/8/128", 128256)))
