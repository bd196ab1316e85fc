"""Acme as fleetctl's emulator plays it: SGLang's routes and refusals, and a metrics page of Acme's own series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.page import Page
from fleetctl_emulator.sequence import SequenceStatus
from fleetctl_emulator.surfaces.sglang.surface import SglangSurface

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.dialect import Dialect
    from fleetctl_emulator.instance import EmulatedInstance
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.scheduler import Scheduler, StepResult
    from fleetctl_emulator.service import EmulatorService


class AcmeMetrics:
    """Counts as Acme does."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._page = Page()
        self._page.family("acme_slots_busy", "gauge", "Busy slots.").value({}, read=lambda: scheduler.running)
        self._page.family("acme_backlog", "gauge", "Waiting.").value({}, read=lambda: scheduler.waiting)
        fill = self._page.family("acme_cache_fill_percent", "gauge", "Cache in use.")
        fill.value({}, read=lambda: 100 * scheduler.kv_usage)
        self._read = self._page.family("acme_tokens_read_total", "counter", "Prompt tokens.").value({})
        self._written = self._page.family("acme_tokens_written_total", "counter", "Output tokens.").value({})

    def stepped(self, result: StepResult) -> None:
        """Count the sequences that an ended step finished."""
        for sequence in result.sampled:
            if sequence.status is SequenceStatus.FINISHED:
                self._read.add(sequence.prompt.tokens)
                self._written.add(sequence.generated)

    def received(self, *, prompt_tokens: int, max_tokens: int) -> None:
        """Count nothing yet."""

    def rejected(self) -> None:
        """Count nothing."""

    def failed(self, kind: str) -> None:
        """Count nothing."""

    def answered(self, *, route: str, method: str, status: int, took_s: float, sizes: tuple[int, int]) -> None:
        """Count nothing."""

    def page(self, *, as_nan: bool = False) -> str:
        """Return the metrics page."""
        return self._page.write(as_nan=as_nan)


class AcmeSurface:
    """Looks like Acme to whoever reads its figures."""

    def __init__(self) -> None:
        self._sglang = SglangSurface()

    def dialect(self, options: EmulatorOptions, instance: EmulatedInstance) -> Dialect:
        """Return how SGLang refuses."""
        return self._sglang.dialect(options, instance)

    def metrics(
        self, scheduler: Scheduler, options: EmulatorOptions, instance: EmulatedInstance, *, started_s: float
    ) -> AcmeMetrics:
        """Return Acme's metrics page."""
        del options, instance, started_s
        return AcmeMetrics(scheduler)

    def routes(self, service: EmulatorService, options: EmulatorOptions) -> list[web.RouteDef]:
        """Return SGLang's routes."""
        return self._sglang.routes(service, options)
