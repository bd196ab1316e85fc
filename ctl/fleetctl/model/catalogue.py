"""The things a plan chooses among: GPUs, models, offerings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Market(StrEnum):
    """How capacity is bought."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class GpuVendor(StrEnum):
    """Whose GPU it is: what counts it on a node, and which builds of an engine run on it, follow from that."""

    NVIDIA = "nvidia"  # CUDA
    AMD = "amd"  # ROCm


class Precision(StrEnum):
    """Weight or KV-cache number format."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bytes_per_element(self) -> float:
        """Return storage per number, in bytes."""
        return {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}[self.value]

    @property
    def is_quantized(self) -> bool:
        """Whether it has fewer than 16 bits."""
        return self not in {Precision.BF16, Precision.FP16}


@dataclass(frozen=True, slots=True, kw_only=True)
class AchievedShares:
    """What measured kernels reach of a GPU's datasheet peaks, 0-1; 8-bit figures are 0 where it has no such tensor cores."""

    gemm_memory_16bit: float  # weights streamed by a GEMM
    gemm_flops_16bit: float  # at many tokens
    attention_memory: float  # KV cache streamed by decode attention
    attention_flops: float  # over a prompt, of the 16-bit peak
    gemm_memory_8bit: float = 0.0
    gemm_flops_8bit: float = 0.0
    source: str = ""
    # Of a calibration: by how much forecasts missed its own rows that were held out; None: as for any measured GPU.
    tpot_error: float | None = None
    ttft_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One GPU's datasheet; dense figures, no sparsity."""

    name: str  # "H100", "L40S"
    memory_bytes: int
    memory_bytes_per_s: float
    flops: dict[str, float]  # dense FLOP/s by Precision value, on the tensor cores; int4 weights compute in bf16
    interconnect_bytes_per_s: float = 0.0  # per GPU, one direction; 0: PCIe only
    source: str = ""
    achieved: AchievedShares | None = None  # None: none are known, and an H100's stand in
    vendor: GpuVendor = GpuVendor.NVIDIA  # whose device plugin counts it, and whose builds run on it

    def flops_per_s(self, precision: Precision) -> float:
        """Return dense FLOP/s; a precision the GPU lacks computes in bf16 (or fp16)."""
        for key in (precision.value, Precision.BF16.value, Precision.FP16.value):
            if key in self.flops:
                return self.flops[key]
        raise ValueError(f"{self.name} has no FLOP/s figures")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): a token leaves one latent vector and one rotary key a layer, on every GPU."""

    kv_rank: int  # kv_lora_rank
    rope_dim: int  # qk_rope_head_dim
    nope_dim: int  # qk_nope_head_dim
    value_dim: int  # v_head_dim
    index_bytes: int = 0  # a token's, in each layer's indexer; 0: attention is not sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedLayers:
    """Layers that attend to the last tokens only, or to those of the same chunk, and keep no others."""

    layers: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayers:
    """Layers of linear attention or a state-space model: a state of constant size a sequence, split like the heads."""

    layers: int
    state_bytes: int  # of one layer and sequence, on all GPUs together


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWeights:
    """What a parameter takes in a checkpoint's own format, scales included; embeddings are 16 bits beside it."""

    expert_bytes: float
    other_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A decoder-only model's shape, from its config.json."""

    id: str
    params: int  # all parameters, embeddings included
    active_params: int  # per token; less than `params` for mixtures of experts
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context_tokens_max: int
    tied_embeddings: bool = False
    native_precision: Precision = Precision.BF16
    kv_cache: Precision | None = None  # that the checkpoint has scales for; None: it says nothing of its KV cache
    mlp_groups: int | None = (
        None  # of quantized weights that share a scale, across an MLP: a split cuts none; null: any may
    )
    expert_groups: int | None = None  # the same, across an expert
    kv_layers: int | None = None  # that keep keys and values of every token; None: all do
    latent: LatentAttention | None = None
    windowed: WindowedLayers | None = None
    recurrent: RecurrentLayers | None = None
    routed_params: int | None = None  # of the experts that a router chooses among; None: by attention and embeddings
    expert_width: int | None = None  # an expert's intermediate size; None: not known, and taken for wide
    encoder_params: int | None = None  # of what sees images, in 16 bits; loaded, and in neither count above
    weights: CheckpointWeights | None = None  # in the native precision; None: every parameter takes its bits
    source: str = ""
    adapter_rank: int = 0  # LoRA adapters up to it have room beside the weights; 0: none have
    adapter_slots: int = 0  # of adapters that one batch may use

    def loaded_as(self, precision: Precision) -> Precision:
        """Return in which precision its weights are in memory where a profile says this one.

        Engines quantize what has 16 bits; a checkpoint that is quantized stays as it is, for nothing makes 16 bits of it.
        """
        return precision if precision.is_quantized or not self.native_precision.is_quantized else self.native_precision


CPU_ZONE = "cpu"  # of offerings on a machine without GPUs: their GPU's figures only stand in for those of its CPU


class OfferingKey(NamedTuple):
    """An offering's name in logs, journals and orders, taken apart: `type/zone/market`. A type may contain slashes."""

    instance_type: str
    zone: str
    market: str

    @classmethod
    def parse(cls, text: str) -> OfferingKey:
        """Return a key's parts; of a name in another shape all is the type, and the rest is empty: not said."""
        parts = text.rsplit("/", 2)
        return cls(*parts) if len(parts) == len(cls._fields) else cls(text, "", "")

    def __str__(self) -> str:
        """Return `type/zone/market`."""
        return "/".join(self)

    @property
    def is_on_cpu(self) -> bool:
        """Whether what runs there has no GPU."""
        return self.zone == CPU_ZONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """Something a provider sells: an instance type in a place, under a market."""

    provider: str
    instance_type: str
    gpu: str
    gpu_count: int
    region: str
    zone: str
    market: Market
    price_usd_per_hour: float
    boot_s: float = 120.0  # create call -> engine process may start
    notice_s: float = 0.0  # spot only: warning before it is taken
    is_emulated: bool = False  # only an emulator can run on it: nobody sells it
    # GPUs there are in all, where it is a share of one machine or cluster and other shares take from the same; None: each is a
    # machine of its own, and there are as many as are paid for.
    pool_gpus: int | None = None
    is_pool_of_all_zones: bool = False  # shares of every zone and market take from the same: of a cluster
    zone_gpus: int | None = None  # of those, the GPUs in its own zone and market; None: not told
    gpu_spec: GpuSpec | None = None  # what the provider knows of the GPU, for the case that no catalogue does
    # Several replicas of a lane run on one machine of it, each with GPUs of its own; the machine is paid for once.
    is_shareable: bool = False
    # Of a share: an order of an earlier lane that finds no free GPU has its provider end a replica of a later one.
    is_preemptive: bool = False

    @property
    def is_on_cpu(self) -> bool:
        """Whether the machine has no GPU: engines run on its CPU, and nothing is forecast of them."""
        return self.zone == CPU_ZONE

    def replicas_max(self, gpus: int) -> int:
        """Return how many replicas of so many GPUs one machine of it carries."""
        return max(1, self.gpu_count // gpus) if self.is_shareable and gpus > 0 else 1

    @property
    def key(self) -> str:
        """Return the name used in logs and journals: type/zone/market."""
        return str(OfferingKey(self.instance_type, self.zone, self.market.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferList:
    """What a provider sells, and how that is known."""

    offerings: tuple[Offering, ...]  # one whose zone is empty is of some zone, which is not known
    source: str  # of the prices: "the Pricing API and the spot price history"
    is_live: bool = True  # False: of a packaged list with a date, which the source names
    cautions: tuple[str, ...] = ()  # what is not as it should be, a sentence each


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything known at planning time, by name."""

    gpus: dict[str, GpuSpec] = field(default_factory=dict)
    models: dict[str, ModelCard] = field(default_factory=dict)
