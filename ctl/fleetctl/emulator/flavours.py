"""Puts an engine together: scheduler, metrics, dialect and routes of one flavour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleetctl.emulator.blocks import BLOCK_TOKENS
from fleetctl.emulator.cards import Instance, limits
from fleetctl.emulator.dialect import Dialect
from fleetctl.emulator.engine_metrics import EngineMetrics
from fleetctl.emulator.scheduler import Scheduler
from fleetctl.emulator.sglang import SglangDialect, SglangRoutes
from fleetctl.emulator.sglang_metrics import SglangMetrics
from fleetctl.emulator.tgi import TgiDialect
from fleetctl.emulator.tgi_metrics import TgiMetrics
from fleetctl.emulator.tgi_routes import TgiRoutes
from fleetctl.emulator.vllm import VllmDialect
from fleetctl.emulator.vllm_metrics import CacheConfig, VllmMetrics
from fleetctl.emulator.vllm_routes import VllmRoutes
from fleetctl.model.profile import EngineKind

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl.emulator.front import Front
    from fleetctl.emulator.options import Options


class Routes(Protocol):
    """Is a group of HTTP routes."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a flavour is made of."""

    scheduler: Scheduler
    metrics: EngineMetrics
    dialect: Dialect


def make_parts(options: Options, instance: Instance, *, started_s: float) -> Parts:
    """Return the parts of the wished flavour."""
    scheduler = Scheduler(limits(options, instance), instance.timer.duration_s)
    name, max_len = options.served_model_name, instance.max_model_len
    if options.flavour is EngineKind.TGI:
        metrics: EngineMetrics = TgiMetrics(
            scheduler,
            kv_tokens=instance.kv_blocks * BLOCK_TOKENS,
            max_input_tokens=max_len - 1,
            max_total_tokens=max_len,
        )
        return Parts(scheduler=scheduler, metrics=metrics, dialect=TgiDialect(options))
    if options.flavour is EngineKind.SGLANG:
        metrics = SglangMetrics(scheduler, model_name=name, max_model_len=max_len, started_s=started_s)
        return Parts(scheduler=scheduler, metrics=metrics, dialect=SglangDialect(options, max_model_len=max_len))
    cache = CacheConfig(
        kv_blocks=instance.kv_blocks,
        gpu_memory_utilization=options.gpu_memory_utilization,
        cache_dtype=options.kv_cache.value if options.kv_cache else "auto",
        prefix_caching=options.prefix_caching,
        max_model_len=max_len,
    )
    metrics = VllmMetrics(scheduler, model_name=name, cache=cache, started_s=started_s)
    return Parts(scheduler=scheduler, metrics=metrics, dialect=VllmDialect(options, max_model_len=max_len))


def make_routes(front: Front, options: Options) -> Routes:
    """Return the routes of the front's flavour."""
    if isinstance(front.dialect, TgiDialect):
        return TgiRoutes(front, options, concurrent_max=front.dialect.concurrent_max)
    if isinstance(front.dialect, SglangDialect):
        return SglangRoutes(front, options)
    return VllmRoutes(front, options)
