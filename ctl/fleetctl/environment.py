"""Which variables of the shell that ran `up` reach which process: one list, from what engines get to what the controller gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.secret_shapes import names_a_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# To run at all: where things lie, who we are, how text is written; libraries and interpreters.
_COMMON = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH",
        "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS",
        "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_MESSAGES",
        "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME",
        "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    }
)  # fmt: skip
_COMMON_PREFIXES = ("MALLOC_",)
# Whatever else an engine needs is named in its lane's `launch.env`: NAME: env:NAME.
_ENGINE = frozenset(
    {
        # Compilers: kernels are compiled as an engine starts.
        "LIBRARY_PATH", "CPATH", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS",
        # Models: where they lie, and whether the network may be asked.
        "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE",
        "HF_HUB_ENABLE_HF_TRANSFER", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE",
        # The network.
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    }
)  # fmt: skip
_ENGINE_PREFIXES = (
    "CUDA_", "NVIDIA_", "NCCL_", "CUBLAS_", "CUDNN_", "HIP_", "ROCR_", "ROCM_", "HSA_", "RCCL_", "MIOPEN_", "ONEAPI_",
    "VLLM_", "SGLANG_", "SGL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "FLASHINFER_", "RAY_",
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NUMEXPR_", "GLOO_", "UCX_",
)  # fmt: skip
# Our own processes: where the state lies, and where earlier versions had their locks.
ON_HEAD = "FLEETCTL_ON_HEAD"  # set on a head: its fleet's host is that machine
ON_HOST = (
    "FLEETCTL_ON_HOST"  # set where a host has placed a fleet's processes: whose place that is; unset: this machine's
)
STATE_URL = (
    "FLEETCTL_STATE"  # s3://... or kubernetes://..., where machines share the state; empty: this machine's own file
)
_OWN = frozenset({"XDG_STATE_HOME", "XDG_RUNTIME_DIR", STATE_URL})
# What those read who keep a shared state; a fleet whose state is a file gets none of it.
_STATE_KEEPERS = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
        "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
        "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_STS_REGIONAL_ENDPOINTS",
        "AWS_CONTAINER_CREDENTIALS_*", "AWS_CONTAINER_AUTHORIZATION_TOKEN*", "AWS_EC2_METADATA_*", "AWS_USE_FIPS_ENDPOINT",
    ),
    # The last ones are of the programs by which kubeconfigs log in to clouds.
    "kubernetes": (
        "KUBECONFIG", "FLEETCTL_KUBE_CONTEXT", "KUBERNETES_SERVICE_*", "AWS_*", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_*",
        "AZURE_*", "AAD_*",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEnvironment:
    """What the processes of one fleet get of the shell that ran `up`, whoever starts them again later."""

    inherited: dict[str, str] = field(
        repr=False
    )  # the controller's environment; a gateway's and an engine's are parts of it
    variables: dict[str, str] = field(repr=False)  # what the profile's `env:NAME` lead to; in nobody's environment


def state_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of what the keeper of the state at FLEETCTL_STATE reads; `*` at the end: all that begin so."""
    return _STATE_KEEPERS.get(environ.get(STATE_URL, "").partition("://")[0], ())


def engine_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that engines get; a name like a secret's is left out under any prefix."""
    return {name: value for name, value in inherited.items() if _is_engines(name)}


def gateway_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the part that the gateway gets: it speaks to engines and clients alone, through no proxy, with no key."""
    return {name: value for name, value in inherited.items() if _is_common(name) or name in _OWN}


def controller_environment(inherited: Mapping[str, str], *, declared: Iterable[str]) -> dict[str, str]:
    """Return the part that the controller gets: what it hands on, and what the fleet's plugins declare that they read.

    A declared name that ends in `*` stands for all that begin so.
    """
    names = frozenset(declared)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in inherited.items()
        if name in names or (prefixes and name.startswith(prefixes)) or name in _OWN or _is_engines(name)
    }


def _is_engines(name: str) -> bool:
    return name in _ENGINE or _is_common(name) or (name.startswith(_ENGINE_PREFIXES) and not names_a_secret(name))


def _is_common(name: str) -> bool:
    return name in _COMMON or (name.startswith(_COMMON_PREFIXES) and not names_a_secret(name))
