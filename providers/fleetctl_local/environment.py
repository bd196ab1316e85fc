"""What an engine gets of the environment it is started from: what it needs to run, and no secret of its starter's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.secret_shapes import names_a_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

# Whatever else an engine needs is named in its lane's `launch.env`: NAME: env:NAME.
_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        # Libraries, interpreters and compilers: kernels are compiled as an engine starts.
        "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CC", "CXX", "CFLAGS", "CXXFLAGS",
        "LDFLAGS", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE",
        "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
        # Models: where they lie, and whether the network may be asked.
        "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE",
        "HF_HUB_ENABLE_HF_TRANSFER", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE",
        # The network.
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    }
)  # fmt: skip
_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "CUBLAS_", "CUDNN_", "HIP_", "ROCR_", "ROCM_", "HSA_", "RCCL_", "MIOPEN_", "ONEAPI_",
    "VLLM_", "SGLANG_", "SGL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "FLASHINFER_", "RAY_",
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NUMEXPR_", "GLOO_", "UCX_", "MALLOC_",
)  # fmt: skip


def engine_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that engines get; a name like a secret's is left out under any prefix."""
    return {name: value for name, value in inherited.items() if _is_passed_on(name)}


def _is_passed_on(name: str) -> bool:
    return name in _NAMES or (name.startswith(_PREFIXES) and not names_a_secret(name))
