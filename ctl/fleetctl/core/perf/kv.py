"""How much memory weights and KV cache take, and how many tokens fit beside the weights."""

from __future__ import annotations

import math

from fleetctl.model.catalogue import CheckpointWeights, GpuSpec, ModelCard, Precision

# What the driver keeps of a GPU's memory (0.46 GiB of an H100's 79.65), CUDA context (0.25 GiB) and CUDA graphs (0.5 to 1.9 GiB,
# 1.04 on average), which newer releases count inside the engine's share: llm-d-planner's logs of vLLM 0.19 on H100 (July 2026).
RUNTIME_BYTES = 2.0e9
# Of a tensor-parallel rank, as those logs have it at TP 2 and 4 over NVLink: 2.07 to 2.13 GiB, the context's 0.25 aside. Without
# NVLink there are NCCL's own buffers alone: 342-392 MiB (aiconfigurator, systems/h100_sxm.yaml).
COLLECTIVE_NVLINK_BYTES = 2.0e9
COLLECTIVE_BYTES = 0.4e9
# An engine measures its memory by a step of all the tokens and sequences it may batch, and samples from it. Sorted for top-k and
# top-p, a logit takes so much (by the peaks of Llama-3.1-8B and Gemma-2-9B there, 1,024 sequences); releases up to 0.16 took 38.5.
LOGIT_BYTES = 14.3
SEQS_RESERVED = 256  # sequences whose logits are reckoned with at least: a plan's batches hold no more
BLOCK_TOKENS = 16  # vLLM's KV block; TGI counts single tokens, so this never flatters it


def kv_precision_of(model: ModelCard, kv_cache: Precision | None) -> Precision:
    """Return the KV cache's number format; None is the engine's "auto": the activations' format, 16 bits wide."""
    if kv_cache is not None:
        return kv_cache
    native = model.native_precision
    return native if native in (Precision.BF16, Precision.FP16) else Precision.BF16


def kv_cache_bytes_per_token(model: ModelCard, kv_precision: Precision) -> float:
    """Return the KV-cache bytes one token occupies across the layers that keep every token; of one copy.

    MHA, MQA and GQA: 2 * num_kv_heads * head_dim a layer; latent attention: kv_lora_rank + qk_rope_head_dim, and the
    indexer's bytes (vLLM 0.32, v1/kv_cache_interface.py, FullAttentionSpec and MLAAttentionSpec).
    """
    return kv_layers(model) * layer_kv_bytes(model, kv_precision)


def kv_layers(model: ModelCard) -> int:
    """Return how many layers keep keys and values of every token."""
    return model.num_layers if model.kv_layers is None else model.kv_layers


def layer_kv_bytes(model: ModelCard, kv_precision: Precision) -> float:
    """Return the KV-cache bytes one token occupies in one layer."""
    if model.latent is None:
        return 2 * model.num_kv_heads * model.head_dim * kv_precision.bytes_per_element
    latent = model.latent.kv_rank + model.latent.rope_dim
    return latent * kv_precision.bytes_per_element + model.latent.index_bytes


def kv_shards(model: ModelCard, tensor_parallel: int) -> int:
    """Return into how many parts ranks split a KV cache.

    Beyond one KV head per rank the heads are replicated, and a latent, which is one head, always is.
    """
    return 1 if model.latent is not None else min(tensor_parallel, model.num_kv_heads)


def kv_cache_bytes_per_token_per_gpu(model: ModelCard, kv_precision: Precision, tensor_parallel: int) -> float:
    """Return the share of one rank."""
    return kv_cache_bytes_per_token(model, kv_precision) / kv_shards(model, tensor_parallel)


def embedding_params(model: ModelCard) -> int:
    """Return the parameters of the token embedding and the output head."""
    return model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)


def weight_bytes(model: ModelCard, precision: Precision) -> float:
    """Return the bytes of all weights; quantised checkpoints keep embeddings and output head in 16 bits."""
    experts, each = expert_params(model), parameter_bytes(model, precision)
    embeddings = embedding_params(model)
    others = model.params - embeddings - experts
    images = 2.0 * (model.encoder_params or 0)
    return experts * each.expert_bytes + others * each.other_bytes + 2.0 * embeddings + images


def parameter_bytes(model: ModelCard, precision: Precision) -> CheckpointWeights:
    """Return what a parameter takes; a checkpoint's own figures where it is loaded in its own format."""
    if model.weights is not None and precision is model.native_precision:
        return model.weights
    return CheckpointWeights(expert_bytes=precision.bytes_per_element, other_bytes=precision.bytes_per_element)


def stage_weight_bytes(model: ModelCard, precision: Precision, pipeline_parallel: int, data_parallel: int = 1) -> float:
    """Return the bytes of the heaviest pipeline stage: most of the layers, and one end's embedding or output head.

    Data parallel ranks share the experts of a mixture out among them, and each has all the rest.
    """
    experts = expert_params(model) * parameter_bytes(model, precision).expert_bytes
    shared = experts * (1.0 - 1.0 / data_parallel)
    if pipeline_parallel == 1:
        return weight_bytes(model, precision) - shared
    body = weight_bytes(model, precision) - 2.0 * embedding_params(model) - shared
    return body * stage_share(model, pipeline_parallel) + 2.0 * model.vocab_size * model.hidden_size


def expert_params(model: ModelCard) -> float:
    """Return the parameters of all experts; 0: the model has none. Routers count as such where the card says no better."""
    if model.routed_params is not None:
        return float(model.routed_params)
    if model.active_params >= model.params:
        return 0.0
    return float(model.params - embedding_params(model) - model.num_layers * attention_params(model))


def stage_share(model: ModelCard, pipeline_parallel: int) -> float:
    """Return the share of the layers that the longest pipeline stage holds, 0-1."""
    return math.ceil(model.num_layers / pipeline_parallel) / model.num_layers


def activation_bytes_per_token(model: ModelCard, tensor_parallel: int = 1) -> float:
    """Return the peak activation bytes one batched token needs on a rank: residual, and the widest layer's in and out."""
    widest = 3 * mlp_width(model) + (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    return 2.0 * (2 * model.hidden_size + widest / tensor_parallel)


def mlp_width(model: ModelCard) -> float:
    """Return the intermediate size of the MLP a token runs through, from the active parameter count."""
    per_layer = (model.active_params - embedding_params(model)) / model.num_layers
    return max(0.0, per_layer - attention_params(model)) / (3 * model.hidden_size)


def attention_params(model: ModelCard) -> int:
    """Return one layer's query, key, value and output projection parameters."""
    return model.hidden_size * model.head_dim * 2 * (model.num_heads + model.num_kv_heads)


def adapter_bytes(model: ModelCard, tensor_parallel: int) -> float:
    """Return the 16-bit buffers that a rank keeps for LoRA adapters, in every layer, whichever modules they change.

    A module's two matrices are rank x in and out x rank. What a rank holds of its module's width is split with that, the other
    side is whole on each (vLLM without fully sharded LoRAs).
    """
    heads = (2 * model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    split = heads + 3 * mlp_width(model)  # out of q, k, v, gate and up; in of o and down
    whole = 7 * model.hidden_size
    return 2.0 * model.adapter_slots * model.adapter_rank * model.num_layers * (whole + split / tensor_parallel)


def peak_bytes(model: ModelCard, *, tensor_parallel: int, max_num_batched_tokens: int, max_num_seqs: int) -> float:
    """Return what a rank's largest step takes beside weights and cache: its widest layer, or the sampling that follows it.

    The step's last hidden states are still there when every sequence's logits, whole on each rank, are sampled from.
    """
    forward = max_num_batched_tokens * activation_bytes_per_token(model, tensor_parallel)
    logits = min(max(max_num_seqs, SEQS_RESERVED), max_num_batched_tokens) * model.vocab_size * LOGIT_BYTES
    return max(forward, logits + 4.0 * model.hidden_size * max_num_batched_tokens)


def runtime_bytes(
    model: ModelCard,
    gpu: GpuSpec,
    *,
    tensor_parallel: int,
    max_num_batched_tokens: int,
    max_num_seqs: int = SEQS_RESERVED,
) -> float:
    """Return what an engine needs on a rank besides weights and KV cache."""
    shared = COLLECTIVE_NVLINK_BYTES if gpu.interconnect_bytes_per_s else COLLECTIVE_BYTES
    peak = peak_bytes(
        model,
        tensor_parallel=tensor_parallel,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
    )
    return RUNTIME_BYTES + (shared if tensor_parallel > 1 else 0.0) + peak


def kv_capacity_tokens(  # noqa: PLR0913  # an instance is named by all of these
    model: ModelCard,
    gpu: GpuSpec,
    *,
    tensor_parallel: int,
    precision: Precision,
    kv_precision: Precision,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    gpu_memory_utilization: float = 0.92,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = SEQS_RESERVED,
) -> int:
    """Return how many tokens of KV cache one rank holds, in whole blocks; 0 when the weights leave no room.

    A token is what it takes in the layers that keep all of them, as vLLM counts blocks of a hybrid model; what a sequence takes
    besides is `sequence_kv`'s. `pipeline_parallel` counts stages, wherever they are.
    """
    share = gpu.memory_bytes * gpu_memory_utilization
    share -= stage_weight_bytes(model, precision, pipeline_parallel, data_parallel) / tensor_parallel
    share -= runtime_bytes(
        model,
        gpu,
        tensor_parallel=tensor_parallel,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
    )
    if model.adapter_slots:
        share -= adapter_bytes(model, tensor_parallel) * stage_share(model, pipeline_parallel)
    per_token = kv_cache_bytes_per_token_per_gpu(model, kv_precision, tensor_parallel)
    tokens = share / (per_token * stage_share(model, pipeline_parallel))
    return max(0, math.floor(tokens / BLOCK_TOKENS) * BLOCK_TOKENS)
