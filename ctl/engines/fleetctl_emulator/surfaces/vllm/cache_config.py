"""vllm:cache_config_info, whose labels are the cache's launch settings."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl_emulator.blocks import BLOCK_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """What vllm:cache_config_info says of the launch settings."""

    kv_blocks: int
    gpu_memory_utilization: float
    cache_dtype: str
    prefix_caching: bool
    max_model_len: int


def cache_labels(cache: CacheConfig) -> dict[str, str]:
    """Return the labels of vllm:cache_config_info, as vLLM 0.32 has them."""
    tokens = cache.kv_blocks * BLOCK_TOKENS
    return {
        "_block_size_resolved": "True",
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": cache.cache_dtype,
        "cache_hit_alignment_tokens": "None",
        "effective_attention_block_size": str(BLOCK_TOKENS),
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": str(cache.prefix_caching),
        "engine": "0",
        "gpu_memory_utilization": str(cache.gpu_memory_utilization),
        "hash_block_size": "None",
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_layout": "None",
        "kv_cache_max_concurrency": str(tokens / cache.max_model_len),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(tokens),
        "kv_offloading_backend": "native",
        "kv_offloading_size": "None",
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "float32",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(cache.kv_blocks),
        "num_gpu_blocks_override": "None",
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": "None",
        "replayssm_buffer_len": "16",
        "skip_page_size_padded": "None",
        "sliding_window": "None",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": "False",
    }
