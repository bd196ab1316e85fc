"""vLLM's surface, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.surfaces.vllm.cache_config import CacheConfig
from fleetctl_emulator.surfaces.vllm.dialect import VllmDialect
from fleetctl_emulator.surfaces.vllm.metrics import VllmMetrics
from fleetctl_emulator.surfaces.vllm.routes import VllmRoutes

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.instance import EmulatedInstance
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.scheduler import Scheduler
    from fleetctl_emulator.service import EmulatorService


class VllmSurface:
    """Looks like vLLM 0.32."""

    def dialect(self, options: EmulatorOptions, instance: EmulatedInstance) -> VllmDialect:
        """Return vLLM's errors and overload."""
        return VllmDialect(options, max_model_len=instance.max_model_len)

    def metrics(
        self, scheduler: Scheduler, options: EmulatorOptions, instance: EmulatedInstance, *, started_s: float
    ) -> VllmMetrics:
        """Return vLLM's /metrics page."""
        cache = CacheConfig(
            kv_blocks=instance.kv_blocks,
            gpu_memory_utilization=options.gpu_memory_utilization,
            cache_dtype=options.kv_cache.value if options.kv_cache else "auto",
            prefix_caching=options.prefix_caching,
            max_model_len=instance.max_model_len,
        )
        return VllmMetrics(scheduler, model_name=options.served_model_name, cache=cache, started_s=started_s)

    def routes(self, service: EmulatorService, options: EmulatorOptions) -> list[web.RouteDef]:
        """Return vLLM's routes."""
        return VllmRoutes(service, options).routes()
