"""GPUs and models are known by name, from data that follows from their sources."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import Precision
from fleetctl.model.profile import ModelSpec

if TYPE_CHECKING:
    from pathlib import Path

# What the hub's config.json files say, as far as shape goes.
_LLAMA = {"model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}
_QWEN = {"max_position_embeddings": 32768, "model_type": "qwen2", "vocab_size": 152064}
CONFIGS: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA
    | {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336},
    "meta-llama/Llama-3.1-70B-Instruct": _LLAMA
    | {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "intermediate_size": 28672},
    "meta-llama/Llama-3.2-1B": _LLAMA
    | {"num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "intermediate_size": 8192}
    | {"head_dim": 64, "tie_word_embeddings": True},
    "meta-llama/Llama-3.2-3B": _LLAMA
    | {"num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24, "intermediate_size": 8192}
    | {"head_dim": 128, "tie_word_embeddings": True},
    "meta-llama/Llama-2-70b-hf": _LLAMA
    | {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "intermediate_size": 28672}
    | {"vocab_size": 32000, "max_position_embeddings": 4096, "torch_dtype": "float16"},
    "Qwen/Qwen2.5-7B-Instruct": _QWEN
    | {"num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4}
    | {"intermediate_size": 18944},
    "Qwen/Qwen2.5-32B-Instruct": _QWEN
    | {"num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8}
    | {"intermediate_size": 27648},
    "Qwen/Qwen2.5-72B-Instruct": _QWEN
    | {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8}
    | {"intermediate_size": 29568},
    "Qwen/Qwen3-8B": _QWEN
    | {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936}
    | {"max_position_embeddings": 40960},
    "Qwen/Qwen3-32B": _QWEN
    | {"model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64}
    | {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936}
    | {"max_position_embeddings": 40960},
    "mistralai/Mistral-7B-Instruct-v0.3": _LLAMA
    | {"model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    | {"intermediate_size": 14336, "vocab_size": 32768, "max_position_embeddings": 32768},
    "mistralai/Mixtral-8x7B-Instruct-v0.1": _LLAMA
    | {"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    | {"intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 32768}
    | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "openai/gpt-oss-120b": _LLAMA
    | {"model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "num_attention_heads": 64}
    | {"head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088, "num_local_experts": 128}
    | {"num_experts_per_tok": 4, "attention_bias": True, "quantization_config": {"quant_method": "mxfp4"}},
}
# Parameters as the checkpoints' own index files count them.
PUBLISHED_PARAMS = {
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 46_702_792_704,
    "openai/gpt-oss-120b": 116_829_156_672,
}


def write_config(directory: Path, config: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("model", CONFIGS)
def test_a_catalogue_card_follows_from_the_models_config(model: str, tmp_path: Path) -> None:
    counted = model_card_from_config(write_config(tmp_path, CONFIGS[model]))
    card = load_catalogue().models[model]
    assert counted.params == PUBLISHED_PARAMS[model]
    for key in ("params", "active_params", "num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim"):
        assert getattr(card, key) == getattr(counted, key), key
    for key in ("vocab_size", "context_tokens_max", "tied_embeddings", "native_precision"):
        assert getattr(card, key) == getattr(counted, key), key


def test_a_mixture_runs_a_token_through_the_published_share_of_itself() -> None:
    models = load_catalogue().models
    mixtral, gpt_oss = models["mistralai/Mixtral-8x7B-v0.1"], models["openai/gpt-oss-120b"]
    assert mixtral.active_params == pytest.approx(12.9e9, rel=0.01)
    # The published 5.13 B leaves out the input embedding, of which a token reads one row.
    embedding = gpt_oss.vocab_size * gpt_oss.hidden_size
    assert gpt_oss.active_params - embedding == pytest.approx(5.13e9, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "bandwidth", "bf16", "memory_gb"),
    [
        ("A10G", 600e9, 70e12, 24),
        ("L4", 300e9, 121e12, 24),
        ("L40S", 864e9, 362e12, 48),
        ("A100-40GB", 1555e9, 312e12, 40),
        ("A100-80GB", 2039e9, 312e12, 80),
        ("H100", 3350e9, 989e12, 80),
        ("H200", 4800e9, 989e12, 141),
        ("B200", 8000e9, 2250e12, 180),
        ("RTX PRO 6000", 1792e9, 500e12, 96),
    ],
)
def test_gpus_have_their_datasheets_dense_figures(gpu: str, bandwidth: float, bf16: float, memory_gb: float) -> None:
    spec = load_catalogue().gpus[gpu]
    assert spec.memory_bytes_per_s == bandwidth
    assert spec.flops_per_s(Precision.BF16) == pytest.approx(bf16, rel=0.01)
    assert spec.memory_bytes == pytest.approx(memory_gb * 1e9, rel=0.08)
    assert spec.source


def test_every_gpu_has_a_source_and_doubles_throughput_at_half_the_bits() -> None:
    for spec in load_catalogue().gpus.values():
        assert spec.source, spec.name
        assert spec.flops_per_s(Precision.FP16) > 0, spec.name
        if "fp8" in spec.flops:
            assert spec.flops["fp8"] == pytest.approx(2 * spec.flops["bf16"], rel=0.02), spec.name


def test_a_users_own_files_add_to_the_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "fleetctl" / "profiles"
    own.mkdir(parents=True)
    (own / "gpus.yaml").write_text(
        "MI300X: {memory_mib: 196608, memory_gb_per_s: 5300, tflops: {bf16: 1307}}\n"
        "L4: {memory_mib: 1, memory_gb_per_s: 1, tflops: {fp16: 1}}\n"
    )
    gpus = load_catalogue().gpus
    assert gpus["MI300X"].flops_per_s(Precision.FP8) == 1307e12
    assert gpus["L4"].memory_bytes == 1024**2
    assert "H100" in gpus


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X: {memory_mib: 1, memory_gb_per_s: 1}", "tflops"),
        ("X: {memory_mib: 1, memory_gb_per_s: 1, tflops: {fp17: 1}}", "fp17"),
        ("X: {memory_mib: 1, memory_gb_per_s: 1, tflops: {fp16: 1}, typo: 1}", "typo"),
        ("X: {memory_mib: 0, memory_gb_per_s: 1, tflops: {fp16: 1}}", "more than zero"),
        ("X: {memory_mib: lots, memory_gb_per_s: 1, tflops: {fp16: 1}}", "memory_mib"),
        ("X: 5", "object"),
        ("[1]", "not a section"),
        ("X: [", "YAML"),
        (
            "X: {memory_mib: 1, memory_gb_per_s: 1, tflops: {fp16: 1}, achieved: {gemm_memory_16bit: 1, gemm_flops_16bit: 62, attention_memory: 1, attention_flops: 1}}",
            "achieved.gemm_flops_16bit is 62: it is a share of the peak",
        ),
    ],
)
def test_a_users_broken_entry_is_named_with_its_file(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "fleetctl" / "profiles"
    own.mkdir(parents=True)
    (own / "gpus.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_catalogue()
    assert str(own / "gpus.yaml") in caught.value.message
    assert message in caught.value.message


def test_a_profiles_model_comes_from_the_catalogue_or_from_its_own_directory(tmp_path: Path) -> None:
    catalogue = load_catalogue()
    hub = resolve_model(ModelSpec(id="Qwen/Qwen3-8B"), catalogue)
    assert hub.num_layers == 36
    tiny = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 512,
    }
    tiny |= {"num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 1024, "dtype": "float32"}
    write_config(tmp_path / "tiny", tiny)
    local = resolve_model(ModelSpec(id="me/tiny", path=str(tmp_path / "tiny")), catalogue)
    assert local.id == "me/tiny"
    assert local.head_dim == 16
    assert local.params == 512 * 64 * 2 + 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 128) + 64
    assert local.native_precision is Precision.BF16


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match=r"did you mean 'meta-llama/Llama-3\.1-8B-Instruct'"):
        resolve_model(ModelSpec(id="meta-llama/Llama-3.1-8b-instruct"), load_catalogue())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "family 'mamba' is not known"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"hidden_size": "big"}, "hidden_size must be a whole number"),
        ({"num_hidden_layers": None}, "num_hidden_layers must be"),
        ({"vocab_size": 0}, "vocab_size must be"),
    ],
)
def test_a_config_that_cannot_be_counted_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, CONFIGS["meta-llama/Llama-3.1-8B-Instruct"] | change)
    with pytest.raises(ConfigError) as caught:
        model_card_from_config(path)
    assert message in caught.value.message


def test_a_missing_or_broken_config_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        model_card_from_config(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        model_card_from_config(tmp_path / "config.json")


def test_the_catalogue_is_light() -> None:
    check = (
        "import sys, fleetctl.catalogue.known as c; c.load_catalogue();"
        "sys.exit(', '.join(m for m in ('pydantic', 'httpx', 'asyncio', 'jsonschema') if m in sys.modules) or None)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
