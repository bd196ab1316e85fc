"""How long one engine iteration takes: a roofline over GEMMs, attention and collectives, with measured efficiencies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from fleetctl.core.perf.frontend import NETWORK_S
from fleetctl.core.perf.kv import (
    activation_bytes_per_token,
    embedding_params,
    expert_params,
    kv_layers,
    kv_shards,
    layer_kv_bytes,
    parameter_bytes,
)
from fleetctl.model.catalogue import GpuSpec, ModelCard, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The achieved share of a datasheet's peaks, and fixed costs.

    Kernel figures are medians over aiconfigurator's measured vLLM 0.19 kernels on H100 SXM (GEMM, attention and
    custom all-reduce; Apache-2.0); other GPUs bring their own (`AchievedShares`).
    """

    memory: float = 0.86  # weights streamed by a GEMM
    memory_quantized: float = 0.86  # the same in less than 16 bits
    flops_16bit: float = 0.79  # bf16 and fp16 GEMM at large M
    flops_8bit: float = 0.62  # fp8 and int8 GEMM at large M: power-limited
    corner: float = 3.0  # p-norm of compute and memory: 1 is no overlap, infinity a sharp roofline
    kernel_s: float = 4.0e-6  # launch and ramp of one GEMM inside a CUDA graph
    kernels_per_layer: float = 6.0  # four projections, norms and activation fused into two
    expert_kernels_per_layer: float = 3.0  # besides: router, top-k and permute, combine; by TPOT of gpt-oss-120b TP2
    # Experts' grouped GEMMs on H100, vLLM 0.24 (aiconfigurator-core 0.12.0): what a token more costs at thousands of them, over
    # gpt-oss-120b's and Qwen3-235B's and TP 1 to 8: share x width / (width + narrow), within 9 %. Little overlaps.
    expert_flops: float = 0.58  # of the 16-bit peak, weights of 16 or 4 bits
    expert_flops_8bit: float = 0.31  # of the 8-bit peak, FP8 in blocks
    expert_narrow: float = 160.0
    expert_corner: float = 1.5
    expert_corner_4bit: float = 1.0
    attention_memory: float = 0.80  # KV streamed by decode attention
    attention_flops: float = 0.72  # flash attention over a prompt, of the 16-bit peak
    attention_kernel_s: float = 10.6e-6
    # All-reduce bus bandwidth over the NVLink figure. The custom kernels reach 0.42; prompt-sized messages go through
    # NCCL, and 0.70 fits the TTFT of Llama-3.1-70B at TP4 and TP8 on H100 (aiconfigurator, silicon rows).
    link: float = 0.70
    pcie_bytes_per_s: float = 12e9  # all-reduce bus bandwidth without NVLink, PCIe 4.0 x16
    collective_s: float = 5.0e-6  # between two ranks; half as much again for every doubling
    pcie_collective_s: float = 25.0e-6
    # Between two machines, a stage to the next: one TCP flow inside an EC2 placement group is held to 10 Gbit/s (AWS, EC2
    # network bandwidth), the floor of what NCCL finds; not measured here.
    stage_bytes_per_s: float = 1.25e9
    # Between two stages of one machine: a peer-to-peer copy and the wake of the next stage's process; not measured here.
    local_stage_s: float = 0.1e-3
    step_s: float = 0.7e-3  # scheduler, input preparation, sampling
    sequence_s: float = 18e-6  # the same, per sequence in the step
    mixed_layer_s: float = 80e-6  # a step with a prompt in it replays its graph in pieces, attention outside them


CALIBRATED = Efficiency()


def efficiency_of(gpu: GpuSpec) -> Efficiency:
    """Return what a GPU's own kernels achieve; an H100's shares where none of its were measured."""
    shares = gpu.achieved
    if shares is None:
        return CALIBRATED
    return replace(
        CALIBRATED,
        memory=shares.gemm_memory_16bit,
        memory_quantized=shares.gemm_memory_8bit or shares.gemm_memory_16bit,
        flops_16bit=shares.gemm_flops_16bit,
        flops_8bit=shares.gemm_flops_8bit or shares.gemm_flops_16bit,
        attention_memory=shares.attention_memory,
        attention_flops=shares.attention_flops,
    )


class StepBatch(NamedTuple):
    """What one iteration computes. Planning passes means, which are fractional."""

    prefill_tokens: float  # prompt tokens in the chunk
    prefill_context_tokens: float  # summed over those tokens: how many tokens each attends to
    decode_seqs: float
    decode_context_tokens: float  # summed over those sequences: tokens resident in the KV cache


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Times iterations of one model on one engine instance; built by `step_model`, all coefficients in seconds."""

    tensor_parallel: int
    fixed_s: float  # launches and latencies of one decode-only iteration
    sequence_s: float
    mixed_s: float  # on top when there are prompt tokens
    dense_read_s: float  # weights every iteration streams
    expert_read_s: float  # all experts' weights; a batch touches a part
    expert_miss: float  # chance that one token leaves a given expert cold; 1: no experts
    expert_flop_s: float  # per token
    expert_corner: float
    token_read_s: float  # activations, per token
    token_flop_s: float  # per token
    head_read_s: float
    head_flop_s: float  # per sampled token
    context_flop_s: float  # prefill attention, per attended token
    context_read_s: float  # decode attention, per resident token
    token_link_s: float  # all-reduce, per token
    corner: float
    window_tokens: float = 0.0  # that some layers attend to at most; 0: none has a window
    window_flop_s: float = 0.0  # prefill attention of those layers, per attended token in the window
    window_read_s: float = 0.0  # decode attention of them, per resident token in the window

    def step_s(self, batch: StepBatch) -> float:
        """Return the iteration's duration; 0 for an empty batch."""
        prefill, prefill_context, seqs, context = batch
        tokens = prefill + seqs
        if not tokens:
            return 0.0
        p = self.corner
        read = self.dense_read_s + tokens * self.token_read_s
        sampled = seqs + 1 if prefill else seqs
        total: float = (
            (read**p + (tokens * self.token_flop_s) ** p) ** (1.0 / p)
            + max(self.head_read_s, sampled * self.head_flop_s)
            + prefill_context * self.context_flop_s
            + context * self.context_read_s
            + tokens * self.token_link_s
            + self.fixed_s
        )
        if self.expert_read_s:
            q = self.expert_corner
            touched_s = self.expert_read_s * (1.0 - self.expert_miss**tokens)
            total += (touched_s**q + (tokens * self.expert_flop_s) ** q) ** (1.0 / q)
        if self.window_tokens:
            # Of means, which is no less than the mean over tokens: a window cuts the long ones only.
            total += min(prefill_context, prefill * self.window_tokens) * self.window_flop_s
            total += min(context, seqs * self.window_tokens) * self.window_read_s
        return total + sampled * self.sequence_s + (self.mixed_s if prefill else 0.0)

    def prefill_s(self, prompt_tokens: int, cached_tokens: int = 0) -> float:
        """Return the duration of one prompt alone in one iteration; cached tokens are attended to, not computed."""
        fresh = max(1, prompt_tokens - cached_tokens)
        return self.step_s(StepBatch(fresh, chunk_context_tokens(prompt_tokens - fresh, fresh), 0, 0))

    def prefill_tokens_per_s(
        self, *, batched_tokens_max: int, prompt_tokens: float, decode_seqs: float, decode_context_tokens_each: float
    ) -> float:
        """Return how fast waiting prompts of this length are read, in chunks beside `decode_seqs` decoding sequences."""
        chunk = max(1.0, batched_tokens_max - decode_seqs)
        context = decode_seqs * decode_context_tokens_each
        return chunk / self.step_s(StepBatch(chunk, chunk * (prompt_tokens + 1) / 2, decode_seqs, context))

    def decode_step_s(self, batch: float, context_tokens_each: float) -> float:
        """Return the duration of an iteration of `batch` decoding sequences with this context each."""
        return self.step_s(StepBatch(0, 0, batch, batch * context_tokens_each))


def chunk_context_tokens(before_tokens: float, chunk_tokens: float) -> float:
    """Return the attended tokens summed over a chunk that follows `before_tokens` of its own prompt (causal)."""
    return chunk_tokens * (before_tokens + (chunk_tokens + 1) / 2)


def step_model(  # noqa: PLR0913  # an instance is named by all of these
    model: ModelCard,
    gpu: GpuSpec,
    *,
    tensor_parallel: int,
    precision: Precision,
    kv_precision: Precision,
    pipeline_parallel: int = 1,
    pipeline_parallel_local: int = 1,
    efficiency: Efficiency | None = None,
) -> StepModel:
    """Return the timer of one engine instance: `tensor_parallel` such GPUs holding the model in these precisions.

    `pipeline_parallel` such machines, of `pipeline_parallel_local` stages each, compute one after the other; that engines
    keep all stages busy with several batches is not counted, so the rates that follow are a lower bound.
    """
    e, tp, layers = efficiency or efficiency_of(gpu), tensor_parallel, model.num_layers
    read_bytes_per_s = gpu.memory_bytes_per_s * e.memory * tp
    weights_bytes_per_s = gpu.memory_bytes_per_s * (e.memory_quantized if precision.is_quantized else e.memory) * tp
    flops_16bit = gpu.flops_per_s(Precision.BF16)
    flops = _gemm_flops_per_s(gpu, precision, e) * tp
    embeddings = embedding_params(model)
    active = model.active_params - embeddings
    dense, experts = _dense_and_expert_params(model)
    kernels = e.kernels_per_layer + (e.expert_kernels_per_layer if experts else 0.0)
    head = model.vocab_size * model.hidden_size
    link_s, link_token_s = _collective(model, gpu, tp, e)
    hops = pipeline_parallel - 1
    hops_local = pipeline_parallel * (pipeline_parallel_local - 1)
    stage_s = hops * NETWORK_S + hops_local * e.local_stage_s
    hidden_bytes = 2.0 * model.hidden_size
    stage_token_s = hops * hidden_bytes / e.stage_bytes_per_s
    stage_token_s += hops_local * hidden_bytes / (gpu.interconnect_bytes_per_s * e.link or e.pcie_bytes_per_s)
    attention = _attention(model, gpu, kv_precision, tp, e)
    whole, windowed = kv_layers(model), model.windowed.layers if model.windowed is not None else 0
    state_bytes = model.recurrent.layers * model.recurrent.state_bytes if model.recurrent is not None else 0
    each = parameter_bytes(model, precision)
    return StepModel(
        tensor_parallel=tp,
        fixed_s=e.step_s + layers * (kernels * e.kernel_s + e.attention_kernel_s) + link_s + stage_s,
        sequence_s=e.sequence_s + 2.0 * state_bytes / read_bytes_per_s,  # a state is read, and written
        mixed_s=layers * e.mixed_layer_s,
        dense_read_s=dense * each.other_bytes / weights_bytes_per_s,
        expert_read_s=experts * each.expert_bytes / weights_bytes_per_s,
        expert_miss=1.0 - (active - dense) / experts if experts else 1.0,
        token_read_s=layers * activation_bytes_per_token(model, tp) / (gpu.memory_bytes_per_s * e.memory),
        token_flop_s=2 * (dense if experts else active) / flops,
        expert_flop_s=2 * (active - dense) / (_expert_flops_per_s(model, gpu, precision, tp, e)) if experts else 0.0,
        expert_corner=e.expert_corner_4bit if precision is Precision.INT4 else e.expert_corner,
        head_read_s=2.0 * head / read_bytes_per_s,
        head_flop_s=2 * head / (flops_16bit * e.flops_16bit * tp),
        context_flop_s=whole * attention.prefill_s,
        context_read_s=whole * attention.decode_s,
        token_link_s=link_token_s + stage_token_s,
        corner=e.corner,
        window_tokens=model.windowed.tokens if model.windowed is not None else 0.0,
        window_flop_s=windowed * attention.prefill_s,
        window_read_s=windowed * attention.decode_s,
    )


class _Attention(NamedTuple):
    """One layer's attention on a rank, per attended token, in seconds."""

    prefill_s: float
    decode_s: float


def _attention(model: ModelCard, gpu: GpuSpec, kv_precision: Precision, tp: int, e: Efficiency) -> _Attention:
    """Return what attention takes: heads are split, and what they read as far as it is.

    Latent attention computes a prompt with keys and values of each head, and decodes with the latent itself, as all
    heads' one key and value (vLLM 0.32, model_executor/layers/attention/mla_attention.py).
    """
    flops_per_s = gpu.flops_per_s(Precision.BF16) * e.attention_flops * tp
    read_s = layer_kv_bytes(model, kv_precision) / kv_shards(model, tp) / (gpu.memory_bytes_per_s * e.attention_memory)
    if (latent := model.latent) is None:
        flop_s = 4 * model.num_heads * model.head_dim / flops_per_s
        return _Attention(flop_s, max(read_s, flop_s))
    prefill = 2 * model.num_heads * (latent.nope_dim + latent.rope_dim + latent.value_dim)
    decode = 2 * model.num_heads * (2 * latent.kv_rank + latent.rope_dim)
    return _Attention(prefill / flops_per_s, max(read_s, decode / flops_per_s))


def _gemm_flops_per_s(gpu: GpuSpec, precision: Precision, e: Efficiency) -> float:
    """Return achieved GEMM FLOP/s; a GPU without the format's tensor cores dequantises and computes in 16 bits."""
    eight_bit = precision in (Precision.FP8, Precision.INT8) and precision.value in gpu.flops
    return gpu.flops_per_s(precision) * (e.flops_8bit if eight_bit else e.flops_16bit)


def _expert_flops_per_s(model: ModelCard, gpu: GpuSpec, precision: Precision, tp: int, e: Efficiency) -> float:
    """Return what experts' GEMMs achieve on all ranks: the narrower a rank's slice of one, the less."""
    eight_bit = precision in (Precision.FP8, Precision.INT8) and precision.value in gpu.flops
    share = e.expert_flops_8bit if eight_bit else e.expert_flops
    if model.expert_width is not None:
        width = model.expert_width / tp
        share *= width / (width + e.expert_narrow)
    return gpu.flops_per_s(precision) * share * tp


def _dense_and_expert_params(model: ModelCard) -> tuple[float, float]:
    """Return (parameters every iteration reads, expert parameters); routers and shared experts count as experts."""
    experts = expert_params(model)
    return model.params - embedding_params(model) - experts, experts


def _collective(model: ModelCard, gpu: GpuSpec, tp: int, e: Efficiency) -> tuple[float, float]:
    """Return (fixed seconds, seconds per token) of an iteration's all-reduces: two a layer, of one hidden state each."""
    if tp == 1:
        return 0.0, 0.0
    calls = 2 * model.num_layers
    link = gpu.interconnect_bytes_per_s
    bytes_per_s, latency_s = (link * e.link, e.collective_s) if link else (e.pcie_bytes_per_s, e.pcie_collective_s)
    latency_s *= (1 + math.log2(tp)) / 2
    return calls * latency_s, calls * 2.0 * model.hidden_size * 2 * (tp - 1) / tp / bytes_per_s
