"""Step times: published kernel measurements, and what physics forbids."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from fleetctl.catalogue.known import load_catalogue
from fleetctl.core.perf.frontend import forecast_errors
from fleetctl.core.perf.step import StepBatch, StepModel, chunk_context_tokens, efficiency_of, step_model
from fleetctl.model.catalogue import Precision

CATALOGUE = load_catalogue()


def instance(
    model: str = "meta-llama/Llama-3.1-8B-Instruct",
    gpu: str = "H100",
    *,
    tp: int = 1,
    precision: Precision = Precision.BF16,
    kv: Precision = Precision.BF16,
) -> StepModel:
    return step_model(
        CATALOGUE.models[model], CATALOGUE.gpus[gpu], tensor_parallel=tp, precision=precision, kv_precision=kv
    )


LLAMA_70B_FP8 = instance("meta-llama/Llama-3.1-70B-Instruct", precision=Precision.FP8, kv=Precision.FP8)


# Sums of aiconfigurator's measured kernels, Llama-3.1-70B FP8 on one H100; a step adds the scheduler's cost to them.
@pytest.mark.parametrize(("batch", "kernels_ms"), [(1, 24.9), (32, 28.3), (48, 29.7)])
def test_llama_70b_decode_steps_are_near_the_measured_kernels(batch: int, kernels_ms: float) -> None:
    assert LLAMA_70B_FP8.decode_step_s(batch, 768) * 1e3 == pytest.approx(kernels_ms, rel=0.15)


@pytest.mark.parametrize(("prompt", "kernels_ms"), [(512, 55.5), (1024, 112), (2048, 232), (4096, 499), (8192, 877)])
def test_llama_70b_prefills_are_near_the_measured_kernels(prompt: int, kernels_ms: float) -> None:
    assert LLAMA_70B_FP8.prefill_s(prompt) * 1e3 == pytest.approx(kernels_ms, rel=0.30)


# inference-perf, KubeCon 2025: vLLM 0.11, Llama-3.1-8B on one H100; TPOT of a lone request, 204 + 62 tokens.
def test_llama_8b_alone_decodes_as_measured() -> None:
    assert instance().decode_step_s(1, 235) * 1e3 == pytest.approx(7.22, rel=0.10)


# aiconfigurator, vLLM, Llama-3.1-70B FP8, 1,024 + 1,024 tokens, 4 clients: TPOT by tensor parallelism.
@pytest.mark.parametrize(("tp", "measured_ms"), [(2, 17.4), (4, 11.8), (8, 9.1)])
def test_tensor_parallel_decode_is_near_the_measured(tp: int, measured_ms: float) -> None:
    step = instance("meta-llama/Llama-3.1-70B-Instruct", tp=tp, precision=Precision.FP8)
    assert step.decode_step_s(4, 1536) * 1e3 == pytest.approx(measured_ms, rel=0.15)


# What 6,144 more tokens (8,192 less 2,048) cost in the GEMMs of Llama-3.1-8B: aiconfigurator's kernels of vLLM 0.24 (A100: 0.14).
@pytest.mark.parametrize(
    ("gpu", "precision", "measured_ms"),
    [
        ("H200", Precision.BF16, 120.4), ("H200", Precision.FP8, 66.2), ("B200", Precision.BF16, 55.6),
        ("B200", Precision.FP8, 40.0), ("A100-80GB", Precision.BF16, 328), ("H100", Precision.BF16, 119.1),
        ("H100", Precision.FP8, 73.4), ("L40S", Precision.BF16, 403), ("L40S", Precision.FP8, 263),
    ],
)  # fmt: skip
def test_gemms_of_each_gpu_take_what_its_own_kernels_were_measured_to(
    gpu: str, precision: Precision, measured_ms: float
) -> None:
    step = instance(gpu=gpu, precision=precision)
    more_s = step.step_s(StepBatch(8192, 0, 0, 0)) - step.step_s(StepBatch(2048, 0, 0, 0))
    assert more_s * 1e3 == pytest.approx(measured_ms, rel=0.12)


def test_a_gpu_without_measured_kernels_has_an_h100s_shares_and_wider_errors() -> None:
    own, none = CATALOGUE.gpus["H200"], replace(CATALOGUE.gpus["H200"], achieved=None)
    assert efficiency_of(none) == efficiency_of(CATALOGUE.gpus["H100"])
    assert all(wide > narrow for wide, narrow in zip(forecast_errors(none), forecast_errors(own), strict=True))


def test_an_empty_batch_takes_no_time() -> None:
    assert LLAMA_70B_FP8.step_s(StepBatch(0, 0, 0, 0)) == 0.0


def test_no_decode_step_beats_streaming_the_weights_once() -> None:
    floor_s = 70.55e9 / 3.35e12
    assert LLAMA_70B_FP8.decode_step_s(1, 1) > floor_s


def test_cached_prompt_tokens_are_attended_to_but_not_computed() -> None:
    step = instance()
    whole, half, fresh = step.prefill_s(4096), step.prefill_s(4096, cached_tokens=2048), step.prefill_s(2048)
    assert fresh < half < whole


def test_a_wholly_cached_prompt_still_computes_one_token() -> None:
    assert instance().prefill_s(512, cached_tokens=512) == instance().prefill_s(512, cached_tokens=511)


def test_a_gpu_without_fp8_cores_gains_bandwidth_but_no_compute() -> None:
    bf16, fp8 = instance(gpu="A100-80GB"), instance(gpu="A100-80GB", precision=Precision.FP8)
    assert fp8.decode_step_s(1, 512) < 0.7 * bf16.decode_step_s(1, 512)
    assert fp8.prefill_s(8192) == pytest.approx(bf16.prefill_s(8192), rel=0.05)


def test_a_larger_batch_touches_more_experts() -> None:
    step = instance("mistralai/Mixtral-8x7B-Instruct-v0.1", tp=2)
    dense = instance(tp=2)
    growth = step.decode_step_s(16, 256) / step.decode_step_s(1, 256)
    assert growth > 2 * dense.decode_step_s(16, 256) / dense.decode_step_s(1, 256)
    # Beyond that nearly every expert is read anyway.
    assert step.decode_step_s(64, 256) < 1.3 * step.decode_step_s(16, 256)


@pytest.mark.parametrize("gpu", sorted(CATALOGUE.gpus))
@pytest.mark.parametrize("model", sorted(CATALOGUE.models))
def test_every_known_pair_has_finite_step_times(gpu: str, model: str) -> None:
    step = instance(model, gpu, tp=2, precision=CATALOGUE.models[model].native_precision)
    assert 0 < step.decode_step_s(1, 100) < step.decode_step_s(64, 4000) < 60


def test_chunks_of_a_prompt_read_as_much_context_as_the_whole() -> None:
    chunks = [chunk_context_tokens(i * 512, 512) for i in range(8)]
    assert sum(chunks) == chunk_context_tokens(0, 4096)


batches = st.builds(
    StepBatch,
    st.integers(0, 16384), st.integers(0, 10_000_000), st.integers(0, 512), st.integers(0, 2_000_000),
)  # fmt: skip


@given(batch=batches, field=st.integers(0, 3), more=st.integers(1, 4096), tp=st.sampled_from([1, 2, 4, 8]))
def test_more_work_never_takes_less_time(batch: StepBatch, field: int, more: int, tp: int) -> None:
    step = instance("openai/gpt-oss-120b", tp=tp, precision=Precision.INT4)
    grown = batch._replace(**{batch._fields[field]: batch[field] + more})
    assert step.step_s(grown) >= step.step_s(batch)


@given(batch=batches.filter(lambda b: b.prefill_tokens > 0))
def test_a_chunked_prompt_never_beats_the_whole_one(batch: StepBatch) -> None:
    step = instance()
    half = StepBatch(batch.prefill_tokens / 2, batch.prefill_context_tokens / 2, 0, 0)
    whole = StepBatch(batch.prefill_tokens, batch.prefill_context_tokens, 0, 0)
    assert 2 * step.step_s(half) >= step.step_s(whole) * (1 - 1e-9)
