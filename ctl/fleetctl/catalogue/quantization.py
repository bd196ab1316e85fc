"""How a checkpoint's weights are quantized, by what the tools that make them write beside or into its config.json."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import CheckpointWeights, Precision

if TYPE_CHECKING:
    from pathlib import Path

_MODELOPT_FILE = "hf_quant_config.json"  # of its checkpoints whose config.json says nothing


def quantization_section(config: dict[str, Any], path: Path) -> object:
    """Return what a config.json, or ModelOpt's own file beside it, says of quantization; None: nothing."""
    section = config.get("quantization_config", config.get("compression_config"))
    beside = path.parent / _MODELOPT_FILE
    if section or not beside.is_file():
        return section
    try:
        read = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{beside}: cannot be read as JSON: {error}") from error
    inner = read.get("quantization") if isinstance(read, dict) else None
    return {"quant_method": "modelopt", **inner} if isinstance(inner, dict) else None


def weight_groups(section: object) -> tuple[int | None, int | None]:
    """Return how many inputs of an MLP, and of an expert, share a scale: no split between GPUs may cut such a group.

    Engines re-group the rows of 4-bit experts where a split would; blocks of FP8 they do not.
    """
    if not isinstance(section, dict):
        return None, None
    groups = section.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    inner = weights if isinstance(weights, dict) else {}
    block = section.get("weight_block_size") or inner.get("block_structure")
    if isinstance(block, list) and block:
        return _size(block[-1]), _size(block[-1])
    return _size(section.get("group_size", inner.get("group_size"))), None


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 1 else None


def native_precision(config: dict[str, Any], section: object, path: Path) -> Precision:
    """Return the number format of most weights, by what quantization tools write into a config.json.

    Raises ConfigError for a section that says none that is known: 16 bits would be up to five times too much.
    """
    found = _quantised(section) if isinstance(section, dict) else None
    if found is not None:
        return found
    if section and not (isinstance(section, dict) and _quantises_no_weights(section)):
        raise ConfigError(f"{path}: its quantization is not known: {str(section)[:_SHOWN_MAX]}", hint=_NAME_IT)
    is_fp16 = config.get("torch_dtype", config.get("dtype")) == "float16"
    return Precision.FP16 if is_fp16 else Precision.BF16


def kv_cache_precision(section: object) -> Precision | None:
    """Return FP8 where the checkpoint has scales for such a KV cache, as ModelOpt and compressed-tensors say it."""
    if not isinstance(section, dict):
        return None
    inner = section.get("quantization")
    for each in (inner, section) if isinstance(inner, dict) else (section,):
        scheme = each.get("kv_cache_scheme")
        if isinstance(scheme, dict) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
            return None if scheme.get("dynamic") is True else Precision.FP8
        if str(each.get("kv_cache_quant_algo", "")).upper() == "FP8":
            return Precision.FP8
    return None


def checkpoint_weights(
    section: object, native: Precision, *, expert_width: int | None = None
) -> CheckpointWeights | None:
    """Return what a quantized checkpoint's parameters take, scales included; None: it has 16 bits, or says nothing more.

    What a tool leaves in 16 bits it lists. Of MXFP4 experts, `expert_width` wide, engines' kernels pad one side to a multiple of
    256 (gpt-oss-120b: "Model loading took 64.38 GiB", vLLM 0.14.1 on H100; 59 GiB on disk).
    """
    if not isinstance(section, dict) or not native.is_quantized:
        return None
    method, algorithm = str(section.get("quant_method", "")).lower(), str(section.get("quant_algo", "")).upper()
    if method == "mxfp4":
        padded = math.ceil((expert_width or _PADDED) / _PADDED) * _PADDED / (expert_width or _PADDED)
        return CheckpointWeights(expert_bytes=(4 + 8 / 32) / 8 * padded, other_bytes=2.0)
    scale_bits = _scale_bits(section, native, is_nvfp4="NVFP4" in algorithm)
    each = native.bytes_per_element + scale_bits / 8
    left = [
        str(name) for key in ("ignore", "modules_to_not_convert", "exclude_modules") for name in section.get(key) or ()
    ]
    is_attention_left = any("attn" in name or "attention" in name for name in left)
    return CheckpointWeights(expert_bytes=each, other_bytes=2.0 if expert_width and is_attention_left else each)


def _scale_bits(section: dict[str, Any], native: Precision, *, is_nvfp4: bool) -> float:
    """Return the bits of scales (and zero points) a weight: 16 a group, 32 a block, 8 for each 16 of NVFP4."""
    if is_nvfp4:
        return 8 / 16
    group, _ = weight_groups(section)
    if group is None:
        return 0.0
    return 32 / group**2 if native is Precision.FP8 else 16 / group


def _quantised(section: dict[str, Any]) -> Precision | None:
    """Return the format of a quantization section; None: it says none that is known."""
    method, algorithm = str(section.get("quant_method", "")).lower(), str(section.get("quant_algo", "")).upper()
    if method in {"compressed-tensors", "compressed_tensors"}:
        return _of_groups(section)
    if method in {"fp8", "fbgemm_fp8"} or algorithm.startswith("FP8"):
        return Precision.FP8
    if method == "mxfp4" or section.get("load_in_4bit") or "FP4" in algorithm or algorithm.startswith(("W4", "INT4")):
        return Precision.INT4
    if section.get("load_in_8bit"):
        return Precision.INT8
    return _BITS.get(section.get("bits", section.get("w_bit")))  # AWQ, GPTQ and their kin


def _quantises_no_weights(section: dict[str, Any]) -> bool:
    """Whether a section may be about the KV cache alone: these tools write one for that too."""
    method = str(section.get("quant_method", "")).lower()
    says_more = section.get("config_groups") or section.get("quant_algo")
    return method in {"compressed-tensors", "compressed_tensors", "modelopt"} and not says_more


def _of_groups(section: dict[str, Any]) -> Precision | None:
    """Return the format of the first group of layers that says one, as compressed-tensors and llm-compressor write it."""
    groups = section.get("config_groups")
    weights = (
        [each.get("weights") for each in groups.values() if isinstance(each, dict)] if isinstance(groups, dict) else []
    )
    for each in weights:
        if isinstance(each, dict):
            is_float8 = each.get("type") == "float" and each.get("num_bits") == 8
            return Precision.FP8 if is_float8 else _BITS.get(each.get("num_bits"))
    return None


_PADDED = 256
_SHOWN_MAX = 160
_NAME_IT = "known are AWQ, GPTQ and their kin of 4 or 8 bits, FP8, MXFP4, NVFP4, compressed-tensors, bitsandbytes; or write a card in models.yaml in your profiles directory"
_BITS: dict[Any, Precision] = {4: Precision.INT4, 8: Precision.INT8}
