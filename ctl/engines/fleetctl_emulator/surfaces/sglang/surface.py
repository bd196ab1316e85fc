"""SGLang's surface, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.surfaces.sglang.dialect import SglangDialect
from fleetctl_emulator.surfaces.sglang.metrics import SglangMetrics
from fleetctl_emulator.surfaces.sglang.routes import SglangRoutes

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.instance import EmulatedInstance
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.scheduler import Scheduler
    from fleetctl_emulator.service import EmulatorService


class SglangSurface:
    """Looks like SGLang 0.5.23."""

    def dialect(self, options: EmulatorOptions, instance: EmulatedInstance) -> SglangDialect:
        """Return SGLang's errors and overload."""
        return SglangDialect(options, max_model_len=instance.max_model_len)

    def metrics(
        self, scheduler: Scheduler, options: EmulatorOptions, instance: EmulatedInstance, *, started_s: float
    ) -> SglangMetrics:
        """Return SGLang's /metrics page."""
        return SglangMetrics(
            scheduler,
            model_name=options.served_model_name,
            max_model_len=instance.max_model_len,
            started_s=started_s,
        )

    def routes(self, service: EmulatorService, options: EmulatorOptions) -> list[web.RouteDef]:
        """Return SGLang's routes."""
        return SglangRoutes(service, options).routes()
