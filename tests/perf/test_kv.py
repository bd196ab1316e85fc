"""Memory: the figures engines report, and what must hold for any model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from fleetctl.catalogue.known import load_catalogue
from fleetctl.core.perf.kv import (
    BLOCK_TOKENS,
    adapter_bytes,
    kv_cache_bytes_per_token,
    kv_cache_bytes_per_token_per_gpu,
    kv_capacity_tokens,
    kv_precision_of,
    runtime_bytes,
    weight_bytes,
)
from fleetctl.model.catalogue import ModelCard, Precision

CATALOGUE = load_catalogue()
LLAMA_70B = CATALOGUE.models["meta-llama/Llama-3.1-70B-Instruct"]
LLAMA_8B = CATALOGUE.models["meta-llama/Llama-3.1-8B-Instruct"]
H100 = CATALOGUE.gpus["H100"]


def test_llama_70b_takes_160_kib_of_fp8_kv_cache_per_token() -> None:
    assert kv_cache_bytes_per_token(LLAMA_70B, Precision.FP8) == 160 * 1024
    assert kv_cache_bytes_per_token(LLAMA_70B, Precision.BF16) == 320 * 1024


def test_quantised_weights_keep_their_embeddings_in_16_bits() -> None:
    assert weight_bytes(LLAMA_70B, Precision.FP8) == pytest.approx(72.7e9, rel=0.002)
    assert weight_bytes(LLAMA_70B, Precision.BF16) == pytest.approx(2 * 70.55e9, rel=0.001)


def test_llama_70b_fp8_on_one_h100_leaves_room_for_39700_tokens() -> None:
    tokens = kv_capacity_tokens(
        LLAMA_70B, H100, tensor_parallel=1, precision=Precision.FP8, kv_precision=Precision.FP8,
        gpu_memory_utilization=0.95,
    )  # fmt: skip
    assert tokens == pytest.approx(39_700, rel=0.08)


def test_llama_70b_fp8_holds_about_15_sequences_of_768_tokens_at_90_percent() -> None:
    tokens = kv_capacity_tokens(
        LLAMA_70B, H100, tensor_parallel=1, precision=Precision.FP8, kv_precision=Precision.FP8,
        gpu_memory_utilization=0.90,
    )  # fmt: skip
    assert tokens / 768 == pytest.approx(15, abs=3)


def test_a_model_that_does_not_fit_has_no_kv_capacity() -> None:
    assert (
        kv_capacity_tokens(LLAMA_70B, H100, tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16)
        == 0
    )


def test_more_ranks_than_kv_heads_replicate_the_cache() -> None:
    at_8 = kv_cache_bytes_per_token_per_gpu(LLAMA_8B, Precision.BF16, 8)
    assert kv_cache_bytes_per_token_per_gpu(LLAMA_8B, Precision.BF16, 16) == at_8


@pytest.mark.parametrize(("requested", "expected"), [(None, Precision.BF16), (Precision.FP8, Precision.FP8)])
def test_auto_kv_precision_is_16_bits_unless_another_is_requested(
    requested: Precision | None, expected: Precision
) -> None:
    assert kv_precision_of(CATALOGUE.models["openai/gpt-oss-120b"], requested) is expected


@given(
    model=st.sampled_from(sorted(CATALOGUE.models)),
    gpu=st.sampled_from(sorted(CATALOGUE.gpus)),
    tp=st.sampled_from([1, 2, 4, 8]),
    precision=st.sampled_from(list(Precision)),
    share=st.floats(0.5, 0.98),
    chunk=st.sampled_from([256, 2048, 8192]),
)
def test_weights_cache_and_runtime_never_exceed_their_share_of_the_memory(
    model: str, gpu: str, tp: int, precision: Precision, share: float, chunk: int
) -> None:
    card, spec = CATALOGUE.models[model], CATALOGUE.gpus[gpu]
    tokens = kv_capacity_tokens(
        card, spec, tensor_parallel=tp, precision=precision, kv_precision=Precision.BF16,
        gpu_memory_utilization=share, max_num_batched_tokens=chunk,
    )  # fmt: skip
    assert tokens >= 0
    assert tokens % BLOCK_TOKENS == 0
    if tokens:
        used = weight_bytes(card, precision) / tp
        used += tokens * kv_cache_bytes_per_token_per_gpu(card, Precision.BF16, tp)
        used += runtime_bytes(card, spec, tensor_parallel=tp, max_num_batched_tokens=chunk)
        assert used <= spec.memory_bytes * share * (1 + 1e-9)


def test_adapters_take_room_that_the_kv_cache_has_not():
    # Llama-3.1-8B: q, k, v, o, gate, up and down are 2.62 million wide together, in and out, in 32 layers of 16 bits.
    card = replace(CATALOGUE.models["meta-llama/Llama-3.1-8B-Instruct"], adapter_rank=64, adapter_slots=4)
    assert adapter_bytes(card, 1) == pytest.approx(4 * 64 * 2.62e6 * 2, rel=0.01)
    assert adapter_bytes(card, 4) < adapter_bytes(card, 1)
    gpu = CATALOGUE.gpus["L40S"]

    def held(card: ModelCard) -> int:
        return kv_capacity_tokens(card, gpu, tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16)

    lost = (held(replace(card, adapter_slots=0)) - held(card)) * kv_cache_bytes_per_token(card, Precision.BF16)
    assert lost == pytest.approx(adapter_bytes(card, 1), rel=0.01)
