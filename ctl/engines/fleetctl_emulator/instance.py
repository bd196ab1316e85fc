"""The GPU and the model that time this engine, and what fits them."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fleetctl import codec
from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.core.perf.kv import kv_capacity_tokens, kv_precision_of
from fleetctl.core.perf.sequence_kv import SequenceKv, sequence_kv
from fleetctl.core.perf.step import step_model
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import GpuSpec, ModelCard
from fleetctl.ports.engine import PriorityOrder, ShutdownBehaviour
from fleetctl_emulator.blocks import BLOCK_TOKENS
from fleetctl_emulator.scheduler import Order, SchedulerLimits
from fleetctl_emulator.timing import StepTimer

T = TypeVar("T", GpuSpec, ModelCard)

if TYPE_CHECKING:
    from fleetctl.ports.engine import EngineCapabilities
    from fleetctl_emulator.options import EmulatorOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedInstance:
    """An engine's size and pace."""

    model: ModelCard
    gpu: GpuSpec
    kv_blocks: int
    sequence_kv: SequenceKv
    max_model_len: int
    timer: StepTimer


def size_instance(options: EmulatorOptions) -> EmulatedInstance:
    """Return the instance. Raises NotFoundError for unknown names, ConfigError if the model or one request cannot fit."""
    model, gpu = _model(options), _gpu(options)
    kv_precision = kv_precision_of(model, options.kv_cache)
    capacity = kv_capacity_tokens(
        model,
        gpu,
        tensor_parallel=options.tensor_parallel,
        pipeline_parallel=options.nodes * options.pipeline_parallel,
        precision=options.quantization,
        kv_precision=kv_precision,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_num_seqs=options.max_num_seqs,
    )
    held = sequence_kv(model, kv_precision, options.tensor_parallel)
    timer = StepTimer(
        step_model(
            model,
            gpu,
            tensor_parallel=options.tensor_parallel,
            pipeline_parallel=options.nodes,
            pipeline_parallel_local=options.pipeline_parallel,
            precision=options.quantization,
            kv_precision=kv_precision,
        ),
        speed=options.speed,
        rng=random.Random(f"steps/{options.seed}"),
    )
    return EmulatedInstance(
        model=model,
        gpu=gpu,
        kv_blocks=capacity // BLOCK_TOKENS,
        sequence_kv=held,
        max_model_len=_max_model_len(options, model, held.longest(capacity)),
        timer=timer,
    )


def limits(options: EmulatorOptions, instance: EmulatedInstance, capabilities: EngineCapabilities) -> SchedulerLimits:
    """Return what bounds a step of this engine, by its launch settings and what the engine it plays can do."""
    return SchedulerLimits(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        kv_blocks=instance.kv_blocks,
        sequence_kv=instance.sequence_kv,
        watermark_blocks=int(instance.kv_blocks * options.watermark),
        order=_order(options, capabilities.priority_order),
        prefix_caching=options.prefix_caching,
        reserves_output=capabilities.reserves_output,
    )


def shutdown_behaviour(options: EmulatorOptions, capabilities: EngineCapabilities) -> ShutdownBehaviour:
    """Return what SIGTERM does: as the engine it plays, within the timeout it was launched with."""
    if options.shutdown_timeout_s is None:
        return capabilities.shutdown
    return dataclasses.replace(capabilities.shutdown, drain_s=options.shutdown_timeout_s)


def _order(options: EmulatorOptions, order: PriorityOrder) -> Order:
    if not options.priority_scheduling or order is PriorityOrder.NONE:
        return Order.ARRIVAL
    is_high_first = order is PriorityOrder.HIGH_FIRST and not options.low_values_first
    return Order.HIGH_FIRST if is_high_first else Order.LOW_FIRST


def _max_model_len(options: EmulatorOptions, model: ModelCard, capacity: int) -> int:
    if capacity < BLOCK_TOKENS:
        raise ConfigError(
            f"{model.id} in {options.quantization} leaves no room for a KV cache on "
            f"{options.tensor_parallel * options.pipeline_parallel * options.nodes} x {options.gpu}",
            hint="use more GPUs (--tensor-parallel), a smaller format, or a larger --gpu-memory-utilization",
        )
    if options.max_model_len is None:
        return min(model.context_tokens_max, capacity)
    if options.max_model_len > capacity:
        raise ConfigError(
            f"the KV cache holds {capacity} tokens, less than one request of --max-model-len {options.max_model_len}",
            hint="lower --max-model-len or raise --gpu-memory-utilization",
        )
    return options.max_model_len


def _model(options: EmulatorOptions) -> ModelCard:
    if options.model_card:
        return _from_json(ModelCard, options.model_card, "--model-card")
    config = Path(options.model) / "config.json"
    if config.is_file():
        return dataclasses.replace(model_card_from_config(config), id=options.model)
    models = load_catalogue().models
    if options.model not in models:
        raise NotFoundError(
            f"--model {options.model!r} is neither in the catalogue nor a directory with a config.json",
            hint=f"known: {', '.join(sorted(models))}",
        )
    return models[options.model]


def _gpu(options: EmulatorOptions) -> GpuSpec:
    if options.gpu_spec:
        return _from_json(GpuSpec, options.gpu_spec, "--gpu-spec")
    gpus = load_catalogue().gpus
    if options.gpu not in gpus:
        raise NotFoundError(f"--gpu {options.gpu!r} is not in the catalogue", hint=f"known: {', '.join(sorted(gpus))}")
    return gpus[options.gpu]


def _from_json(kind: type[T], text: str, flag: str) -> T:
    try:
        return codec.decode(kind, text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{flag}: {error}", hint="write it as the plan file does") from error
