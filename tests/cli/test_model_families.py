"""Published configs give the published numbers of parameters, and name what is not counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.errors import ConfigError
from fleetctl.operations.model_reading import understood

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
MAMBA: dict[str, Any] = {
    "layer_types": ["mamba", "mamba", "attention", "mamba"], "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_n_groups": 1,
    "mamba_d_state": 64, "mamba_d_conv": 4,
}  # fmt: skip
GRANITE = [("attention" if number in (5, 15, 25, 35) else "mamba") for number in range(40)]
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
    "LiquidAI/LFM2-1.2B": (
        config("lfm2", 16, 2048, 12288, "32/8/64", 65536, block_ffn_dim_multiplier=1.0, full_attn_idxs=[2, 5, 8, 10, 12, 14]), 1_170_340_608,
    ),
    "microsoft/Phi-3.5-MoE-instruct": (
        config(
            "phimoe", 32, 4096, 6400, "32/8/128", 32064, num_local_experts=16, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
        ), 41_873_153_344,
    ),
    "tencent/Hunyuan-A13B-Instruct": (
        config(
            "hunyuan_v1_moe", 32, 4096, 3072, "32/8/128", 128167, num_experts=64, moe_topk=[8] * 32, num_shared_expert=[1] * 32,
            moe_intermediate_size=[3072] * 32, tie_word_embeddings=True,
        ), 80_393_183_232,
    ),
    "rednote-hilab/dots.llm1.inst": (
        config(
            "dots1", 62, 4096, 10944, "32/32/128", 152064, moe_intermediate_size=1408, n_routed_experts=128, num_experts_per_tok=6,
            n_shared_experts=2, first_k_dense_replace=1,
        ), 142_774_381_696,
    ),
    "ibm-granite/granite-4.0-h-small": (
        config(
            "granitemoehybrid", 40, 4096, 768, "32/8/128", 100352, shared_intermediate_size=1536, num_local_experts=72,
            num_experts_per_tok=10, tie_word_embeddings=True,
            **MAMBA | {"layer_types": GRANITE, "mamba_n_heads": 128, "mamba_d_state": 128},
        ), 32_207_337_984,
    ),
    "ibm-ai-platform/Bamba-9B-v1": (
        config(
            "bamba", 32, 4096, 14336, "32/8/128", 128256, attn_layer_indices=[9, 18, 27],
            **MAMBA | {"mamba_n_heads": 128, "mamba_d_state": 128},
        ), 9_780_235_392,
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
    (small("hunyuan_v1_dense"), 12_301_312),
    # As a Hunyuan-A13B has them: a number for each layer.
    (small("hunyuan_v1_moe", num_experts=8, moe_topk=[2] * 4, num_shared_expert=[1] * 4, moe_intermediate_size=[1408] * 4), 81_523_712),
    (
        small("dots1", n_routed_experts=16, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=96, first_k_dense_replace=1),
        13_800_448 + 3 * 16,
    ),
    (small("phimoe", num_local_experts=8, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True), 72_883_176),
    (
        small("granitemoehybrid", num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=256, **MAMBA), 77_439_504,
    ),
    (small("bamba", attn_layer_indices=[1], **MAMBA), 15_294_992),
    (small("falcon_h1", mamba_d_ssm=1024, **MAMBA), 18_910_400),
    (small("falcon_h1", mamba_d_ssm=1024, mamba_rms_norm=True, **MAMBA), 18_914_496),
    (small("lfm2", layer_types=["conv", "full_attention", "conv", "conv"], block_ff_dim=1408, tie_word_embeddings=True), 10_613_888),
    (
        small("lfm2_moe", full_attn_idxs=[1], num_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, num_dense_layers=1),
        10_036_352 + 3 * 8,
    ),
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


def test_a_hybrid_keeps_keys_and_values_in_few_layers_and_a_state_in_the_others(tmp_path: Path) -> None:
    content, _ = PUBLISHED["ibm-granite/granite-4.0-h-small"]
    card = model_card_from_config(written(tmp_path, content))
    assert card.kv_layers == 4
    assert card.recurrent is not None
    # A convolution over 8,192 + 2 x 128 numbers that keeps three, and 8,192 x 128 of the recurrence, in 16 bits.
    assert (card.recurrent.layers, card.recurrent.state_bytes) == (36, 2 * 8448 * 3 + 2 * 8192 * 128)
    assert 8e9 < card.active_params < 10e9  # its publisher says 9 billion
    without_experts = {**content, "num_local_experts": 0, "shared_intermediate_size": 8192}
    dense = model_card_from_config(written(tmp_path, without_experts))
    assert dense.params == dense.active_params
    content, _ = PUBLISHED["LiquidAI/LFM2-1.2B"]
    card = model_card_from_config(written(tmp_path, content))
    assert card.recurrent is not None
    assert (card.kv_layers, card.recurrent.layers, card.recurrent.state_bytes) == (6, 10, 2 * 2 * 2048)


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


def test_layers_of_attention_and_recurrence_side_by_side_are_counted_as_both(tmp_path: Path) -> None:
    card = model_card_from_config(written(tmp_path, small("falcon_h1", mamba_d_ssm=1024, **MAMBA)))
    assert card.recurrent is not None
    # A convolution over 1,024 + 2 x 64 numbers that keeps three, and 1,024 x 64 of the recurrence, in 16 bits.
    assert (card.kv_layers, card.recurrent.layers, card.recurrent.state_bytes) == (
        None,
        4,
        2 * 1152 * 3 + 2 * 1024 * 64,
    )
    assert "without either" not in " ".join(understood(card))
