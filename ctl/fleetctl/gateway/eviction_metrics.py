"""What KV caches lost, in the Prometheus text format; docs/slo.md has the rule of each figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.eviction import EvictionKind

if TYPE_CHECKING:
    from fleetctl.core.dispatch.eviction_watch import EvictionWatch
    from fleetctl.telemetry.page import MetricsPage


def eviction_families(page: MetricsPage, watch: EvictionWatch, listed: set[str]) -> None:
    """Write the families by lane, replica and cause; `listed` are the replicas of the table, and no others are named."""
    found = [
        ({"lane": lane, "replica": replica, "cause": cause.value}, kind, count, tokens)
        for (lane, replica, kind, cause), (count, tokens) in sorted(watch.counts.items())
        if replica in listed
    ]
    prefixes = [(labels, count, tokens) for labels, kind, count, tokens in found if kind is EvictionKind.PREFIX]
    preempted = [
        ({name: labels[name] for name in ("lane", "replica")}, float(count))
        for labels, kind, count, _ in found
        if kind is EvictionKind.PREEMPTION
    ]
    page.family("preemptions_total", "counter", "Streams that engines preempted, as they count them.", preempted)
    text = "Turns of conversations that found less than half cached of what the turn before had left."
    page.family("prefixes_lost_total", "counter", text, [(labels, float(count)) for labels, count, _ in prefixes])
    text = "Cached tokens of these that had to be computed anew."
    page.family("prefix_tokens_lost_total", "counter", text, [(labels, float(n)) for labels, _, n in prefixes])
    text = "Conversations that are remembered."
    page.family("conversations", "gauge", text, [({}, float(watch.conversations))])
