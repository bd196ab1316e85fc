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
}  # fmt: skip


def written(path: Path, content: dict[str, Any]) -> Path:
    file = path / "config.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_published_config_gives_the_published_number_of_parameters(model: str, tmp_path: Path) -> None:
    content, params = PUBLISHED[model]
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
