"""The most used open models, by the shapes in their own config.json: parameters, KV cache, weights, and plans that use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.cli.main import main
from fleetctl.core.perf.kv import (
    kv_cache_bytes_per_token,
    kv_cache_bytes_per_token_per_gpu,
    kv_capacity_tokens,
    weight_bytes,
)
from fleetctl.core.perf.sequence_kv import ALIKE, sequence_kv
from fleetctl.core.perf.step import StepBatch, step_model
from fleetctl.model.catalogue import ModelCard, Precision

CONFIGS = Path(__file__).parent / "open_models"
CATALOGUE = load_catalogue()


class Published(NamedTuple):
    params: float  # in billions, without layers that only guess ahead (MTP) and without encoders
    active: float | None  # as its publisher says; None: all
    kv_elements: int  # a token's, in the layers that keep every token


# Totals: transformers 5.19 made without weights (`torch.device("meta")`), which the publishers' own figures round.
OPEN = {
    "deepseek-ai/DeepSeek-R1": Published(671.026, 37, 61 * 576),
    "deepseek-ai/DeepSeek-V3.2": Published(671.878, 37, 61 * 576),
    "moonshotai/Kimi-K2-Instruct-0905": Published(1026.408, 32, 61 * 576),
    "zai-org/GLM-4.5": Published(352.798, 32, 92 * 2048),
    "zai-org/GLM-5": Published(743.911, 40, 78 * 576),
    "MiniMaxAI/MiniMax-M2.5": Published(228.690, 10, 62 * 2048),
    "Qwen/Qwen3-235B-A22B": Published(235.094, 22, 94 * 1024),
    "Qwen/Qwen3-30B-A3B": Published(30.532, 3.3, 48 * 1024),
    "Qwen/Qwen3.5-35B-A3B": Published(34.661, 3, 10 * 1024),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": Published(79.674, 3, 12 * 1024),
    "Qwen/Qwen3-32B": Published(32.762, None, 64 * 2048),
    "openai/gpt-oss-120b": Published(116.829, 5.1, 18 * 1024),
    "openai/gpt-oss-20b": Published(20.915, 3.6, 12 * 1024),
    "meta-llama/Llama-3.3-70B-Instruct": Published(70.554, None, 80 * 2048),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": Published(107.770, 17, 12 * 2048),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": Published(400.712, 17, 12 * 2048),
    "google/gemma-3-27b-it": Published(27.009, None, 10 * 4096),
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": Published(23.572, None, 40 * 2048),
    "microsoft/phi-4": Published(14.660, None, 40 * 2560),
    "Qwen/Qwen2.5-VL-7B-Instruct": Published(7.616, None, 28 * 1024),
    "tiiuae/falcon-40b": Published(41.303, None, 60 * 1024),
    "nvidia/Nemotron-H-8B-Base-8K": Published(8.101, None, 4 * 2048),
    "ai21labs/AI21-Jamba-Mini-1.5": Published(51.570, 12, 4 * 2048),
}


def card_of(model: str) -> ModelCard:
    return model_card_from_config(CONFIGS / f"{model.replace('/', '__')}.json")


@pytest.mark.parametrize("model", OPEN)
def test_parameters_are_counted_as_transformers_has_them_and_the_publisher_says(model: str) -> None:
    card, published = card_of(model), OPEN[model]
    assert card.params == pytest.approx(published.params * 1e9, abs=5e5)
    # Publishers round, and some leave embeddings out of what is active.
    low = card.active_params - card.vocab_size * card.hidden_size * (1 if card.tied_embeddings else 2)
    active = (published.active or published.params) * 1e9
    assert low * 0.92 <= active <= card.active_params * 1.05


@pytest.mark.parametrize("model", OPEN)
def test_a_token_takes_what_its_layers_keep_of_it(model: str) -> None:
    card, index = card_of(model), 132 * (card_of(model).num_layers)
    more = index if model.endswith(("V3.2", "GLM-5")) else 0
    assert kv_cache_bytes_per_token(card, Precision.BF16) == 2 * OPEN[model].kv_elements + more


@pytest.mark.parametrize("model", sorted(set(OPEN) & set(CATALOGUE.models)))
def test_the_catalogue_has_what_follows_from_the_config(model: str) -> None:
    known, read = CATALOGUE.models[model], card_of(model)
    assert (known.params, known.active_params, known.windowed, known.recurrent, known.latent) == (
        read.params, read.active_params, read.windowed, read.recurrent, read.latent,
    )  # fmt: skip
    assert weight_bytes(known, known.native_precision) == pytest.approx(
        weight_bytes(read, read.native_precision), rel=1e-5
    )


def test_a_latent_is_on_every_gpu_and_heads_are_not() -> None:
    latent, heads = card_of("deepseek-ai/DeepSeek-R1"), card_of("meta-llama/Llama-3.3-70B-Instruct")
    one = kv_cache_bytes_per_token(latent, Precision.BF16)
    assert kv_cache_bytes_per_token_per_gpu(latent, Precision.BF16, 8) == one
    assert 8 * kv_cache_bytes_per_token_per_gpu(heads, Precision.BF16, 8) == kv_cache_bytes_per_token(
        heads, Precision.BF16
    )


def test_windows_bound_what_a_sequence_takes() -> None:
    card = card_of("google/gemma-3-27b-it")
    held = sequence_kv(card, Precision.BF16, 1)
    # 52 windowed layers in groups of ten are six groups beside one: seven blocks where one would do, until 1,024 tokens.
    assert held.held(512) == 7 * 512
    assert held.held(10_000) - held.held(9_000) == 1_000
    assert held.held(10_000) == 10_000 + 6 * 1024
    for tokens in (600, 5_000, 70_000):
        assert held.held(held.longest(tokens)) <= tokens < held.held(held.longest(tokens) + 2)


def test_a_state_is_the_same_for_short_and_long_sequences_and_split_like_heads() -> None:
    card = card_of("Qwen/Qwen3-Next-80B-A3B-Instruct")
    held = sequence_kv(card, Precision.BF16, 1)
    assert held.besides(10) == held.besides(100_000) > 0
    assert card.recurrent is not None
    states = card.recurrent.layers * card.recurrent.state_bytes
    token = kv_cache_bytes_per_token(card, Precision.BF16)
    assert states <= held.constant_tokens * token <= 1.25 * states
    # Of two KV heads, four GPUs keep each twice, and a fourth of the state each.
    assert sequence_kv(card, Precision.BF16, 4).constant_tokens == pytest.approx(held.constant_tokens / 2)


def test_a_model_whose_layers_are_alike_takes_nothing_besides() -> None:
    assert sequence_kv(card_of("meta-llama/Llama-3.3-70B-Instruct"), Precision.BF16, 2) is ALIKE


def test_experts_of_gpt_oss_are_padded_and_its_attention_has_16_bits() -> None:
    card = card_of("openai/gpt-oss-120b")
    assert card.native_precision is Precision.INT4
    # vLLM 0.14.1 on H100: "Model loading took 64.38 GiB memory" (vllm-project/vllm issue 33155).
    assert weight_bytes(card, Precision.INT4) == pytest.approx(64.38 * 2**30, rel=0.01)


def test_a_long_context_costs_a_windowed_model_less_time() -> None:
    windowed = card_of("google/gemma-3-27b-it")
    gpu = CATALOGUE.gpus["H200"]

    def more_s(card: ModelCard, tokens: int) -> float:
        step = step_model(card, gpu, tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16)
        return step.step_s(StepBatch(0, 0, 8, 8 * tokens)) - step.step_s(StepBatch(0, 0, 8, 8))

    inside, outside = more_s(windowed, 1024), more_s(windowed, 11 * 1024) - more_s(windowed, 1024)
    assert outside == pytest.approx(10 * inside * 10 / 62, rel=0.02)


def test_a_latent_cache_is_read_once_by_all_heads() -> None:
    card, gpu = card_of("deepseek-ai/DeepSeek-R1"), CATALOGUE.gpus["H200"]
    step = step_model(card, gpu, tensor_parallel=8, precision=Precision.FP8, kv_precision=Precision.BF16)
    read_s = kv_cache_bytes_per_token(card, Precision.BF16) / (gpu.memory_bytes_per_s * 0.75)
    assert step.context_read_s == pytest.approx(read_s, rel=0.01)


@pytest.mark.parametrize("model", OPEN)
def test_some_number_of_h200s_holds_it(model: str) -> None:
    card = card_of(model)
    held = [
        kv_capacity_tokens(
            card, CATALOGUE.gpus["H200"], tensor_parallel=tp, pipeline_parallel=stages, precision=card.native_precision,
            kv_precision=Precision.BF16,
        )
        for tp, stages in ((1, 1), (8, 1), (8, 2))
    ]  # fmt: skip
    assert held[-1] > 32_768
    assert held == sorted(held)


PROFILE = """
apiVersion: fleetctl/v1
name: any
model: {id: %s}
engine: emulator
provider: local
workload: {peak_rps: 2, prompt_tokens: {p50: 400, p99: 2000}, output_tokens: {p50: 100, p99: 400}}
slo: {objective: 99.5%%, window: 7d}
lanes:
  all: {slo: {ttft: {p99: 4s}, itl: {p99: 200ms}}, max_wait: 1s}
"""


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-R1", "google/gemma-3-27b-it", "Qwen/Qwen3.5-35B-A3B"])
def test_it_is_added_in_one_command_which_says_what_it_understood_and_planned(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = CONFIGS / f"{model.replace('/', '__')}.json"
    assert main(["model", "add", str(file), "--id", "mine/it", "-o", "json"]) == 0
    understood = " ".join(json.loads(capsys.readouterr().out)["understood"])
    card = card_of(model)
    for kind, words in (("latent", "latent attention"), ("windowed", "to a window of"), ("recurrent", "recurrent")):
        assert (words in understood) == (getattr(card, kind) is not None)
    (tmp_path / "profile.yaml").write_text(PROFILE % "mine/it")
    assert main(["plan", "profile.yaml", "-o", "json"]) == 0
    (lane,) = json.loads(capsys.readouterr().out)["lanes"]
    held = sequence_kv(card, Precision.BF16, lane["tensor_parallel"])
    assert lane["launch"]["quantization"] == card.native_precision
    assert held.held(lane["launch"]["max_model_len"]) > 0
