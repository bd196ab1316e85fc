"""The http_* series of vLLM's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl_emulator.page import Page

HTTP_FINE_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60,
)  # fmt: skip


class HttpMetrics:
    """What prometheus-fastapi-instrumentator adds to vLLM's page."""

    def __init__(self, page: Page) -> None:
        self._requests = page.family(
            "http_requests_total", "counter", "Total number of requests by method, status and handler."
        )
        only = "Only value of header is respected. Otherwise ignored. No percentile calculated. "
        self._sizes = [
            page.family(f"http_{way}_size_bytes", "summary", f"Content length of {what} by handler. {only}")
            for way, what in (("request", "incoming requests"), ("response", "outgoing responses"))
        ]
        self._fine = page.family(
            "http_request_duration_highr_seconds",
            "histogram",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            bounds=HTTP_FINE_BOUNDS,
        ).summary({})
        self._by_route = page.family(
            "http_request_duration_seconds",
            "histogram",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            bounds=(0.1, 0.5, 1),
        )

    def answered(self, *, route: str, method: str, status: int, took_s: float, sizes: tuple[int, int]) -> None:
        """Count an HTTP exchange."""
        self._requests.value({"handler": route, "method": method, "status": f"{status // 100}xx"}).add()
        for family, size in zip(self._sizes, sizes, strict=True):
            family.summary({"handler": route}).observe(size)
        self._fine.observe(took_s)
        self._by_route.summary({"handler": route, "method": method}).observe(took_s)
