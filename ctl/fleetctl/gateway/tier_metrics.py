"""What each tier was offered and got, and each named client, in the Prometheus text format; docs/slo.md has the rules."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import SketchReading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.telemetry.page import MetricsPage

_COUNTERS = (
    ("tier_offered_total", "Requests of a tier that arrived.", "offered"),
    ("tier_good_total", "Requests inside what is promised to their tier.", "good"),
    ("tier_missed_total", "Requests outside of it, refusals among them.", "missed"),
    ("tier_served_tokens_total", "Tokens of prompts and answers that a tier was served.", "served_tokens"),
)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)


class NamedClients:
    """Since the gateway's start, of clients whose keys have names: as many as there are of those."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # by name and verdict
        self.tokens: Counter[str] = Counter()

    def note(self, request: ActiveRequest) -> None:
        """Count a request that is over."""
        watch, name = request.stopwatch, request.client_name
        verdict = "good" if watch.is_good else "refused" if request.refused is not None else "missed"
        if watch.is_good or watch.breach is not None:
            self.requests[name, verdict] += 1
        if request.attempt is not None:
            self.tokens[name] += request.prompt.prompt_tokens + watch.token_count + request.output_tokens_uncounted


def tier_families(page: MetricsPage, lanes: Mapping[str, DispatchLane[ActiveRequest]], now_s: float) -> None:
    """Write the families by lane and tier, where there are tiers; of removed ones what they counted."""
    found = [
        ({"lane": name, "tier": tier.spec.name}, tier, lane.tiers)
        for name, lane in lanes.items()
        if lane.tiers is not None
        for tier in lane.tiers.all
    ]
    former = [
        ({"lane": name, "tier": tier.spec.name}, tier)
        for name, lane in lanes.items()
        for tier in lane.former_tiers.all(now_s)
    ]
    if not (found or former):
        return
    counted = [*((labels, tier) for labels, tier, _ in found), *former]
    stats = [(labels, tier.accounts.lifetime()) for labels, tier in counted]
    for name, text, field in _COUNTERS:
        page.family(name, "counter", text, [(labels, float(getattr(each, field))) for labels, each in stats])
    refused = [
        (labels | {"reason": reason}, float(count))
        for labels, each in stats
        for reason, count in sorted(each.refused.items())
    ]
    page.family("tier_refused_total", "counter", "Requests of a tier that were refused, by reason.", refused)
    slots = [(labels, float(tier.in_flight)) for labels, tier in counted]
    page.family("tier_in_flight", "gauge", "Requests of a tier at replicas.", slots)
    waiting = [(labels, float(tier.waiting)) for labels, tier, _ in found]
    page.family("tier_queued", "gauge", "Requests of a tier that wait.", waiting)
    due = [(labels, tier.share) for labels, tier, _ in found]
    page.family("tier_due_share", "gauge", "Share of the lane's tokens that a tier gets where all want more.", due)
    had = [(labels, tiers.had(tier, now_s)) for labels, tier, tiers in found]
    page.family("tier_token_share", "gauge", "Share of the lane's tokens that a tier had lately.", had)
    samples = []
    for labels, each in stats:
        reading = SketchReading(each.ttft)
        counts = {f"{limit:g}": reading.count_at_most(limit) for limit in _SECONDS} | {"+Inf": reading.count}
        samples.append((labels, counts, each.ttft.sum_s))
    page.histogram("tier_ttft_seconds", "Submission to first content token, by tier.", samples)


def client_families(page: MetricsPage, clients: NamedClients) -> None:
    """Write the families by named client, where there is one."""
    if not clients.requests and not clients.tokens:
        return
    counted = [({"client": name, "verdict": verdict}, n) for (name, verdict), n in sorted(clients.requests.items())]
    page.family("client_requests_total", "counter", "Requests of a named key, by what became of them.", counted)
    tokens = [({"client": name}, n) for name, n in sorted(clients.tokens.items())]
    page.family(
        "client_served_tokens_total", "counter", "Tokens of prompts and answers that a named key was served.", tokens
    )
