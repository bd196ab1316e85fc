"""TGI's surface, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.blocks import BLOCK_TOKENS
from fleetctl_emulator.surfaces.tgi.dialect import TgiDialect, concurrent_requests_max
from fleetctl_emulator.surfaces.tgi.metrics import TgiMetrics
from fleetctl_emulator.surfaces.tgi.routes import TgiRoutes

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.instance import EmulatedInstance
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.scheduler import Scheduler
    from fleetctl_emulator.service import EmulatorService


class TgiSurface:
    """Looks like TGI 3.3.7."""

    def dialect(self, options: EmulatorOptions, instance: EmulatedInstance) -> TgiDialect:
        """Return TGI's errors and overload."""
        del instance
        return TgiDialect(concurrent_max=concurrent_requests_max(options))

    def metrics(
        self, scheduler: Scheduler, options: EmulatorOptions, instance: EmulatedInstance, *, started_s: float
    ) -> TgiMetrics:
        """Return TGI's /metrics page; it has no dates."""
        del options, started_s
        return TgiMetrics(
            scheduler,
            kv_tokens=instance.kv_blocks * BLOCK_TOKENS,
            max_input_tokens=instance.max_model_len - 1,
            max_total_tokens=instance.max_model_len,
        )

    def routes(self, service: EmulatorService, options: EmulatorOptions) -> list[web.RouteDef]:
        """Return TGI's routes."""
        return TgiRoutes(service, options, concurrent_max=concurrent_requests_max(options)).routes()
