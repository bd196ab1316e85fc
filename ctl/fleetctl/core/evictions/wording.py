"""Evictions in words: the journal, `why` and `diagnose` all use these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.evictions.kv_record import KV_FULL
from fleetctl.model.eviction import EvictionCause, EvictionKind
from fleetctl.units import format_count, format_duration, format_fraction

if TYPE_CHECKING:
    from fleetctl.model.eviction import Eviction, KvFiller


def eviction_text(found: Eviction) -> str:
    """Return an eviction in one line."""
    return "; ".join(part for part in (_what(found), cause_text(found)) if part)


def _what(found: Eviction) -> str:
    if found.kind is EvictionKind.PREEMPTION:
        return f"{found.replica} preempted {format_count(found.preempted, 'stream')}{_kv(found)}{_filled(found)}"
    lost = f"{found.cached_tokens_before:,} cached tokens -> {found.cached_tokens:,}"
    what = f"turn {found.turn} of {found.conversation}: {lost}{_ttft(found)}, replica {found.replica}"
    return what + (_kv(found) + _came(found) + _filled(found) if found.cause is EvictionCause.KV_PRESSURE else "")


def _ttft(found: Eviction) -> str:
    if found.ttft_s is None:
        return ""
    before = f"{format_duration(found.ttft_s_before)} -> " if found.ttft_s_before is not None else ""
    return f", TTFT {before}{format_duration(found.ttft_s)}"


def _kv(found: Eviction) -> str:
    if found.kv_usage is None:
        return ""
    level = f", its KV at {format_fraction(round(found.kv_usage, 3))}"
    if found.kv_since is None or found.kv_until is None:
        return level
    if found.kv_since == found.kv_until:
        return f"{level} at {found.kv_since:%H:%M:%S}"
    return f"{level} between {found.kv_since:%H:%M:%S} and {found.kv_until:%H:%M:%S}"


def _came(found: Eviction) -> str:
    """Return why a cache that was never read as full is taken to have been: what no request uses any more, engines count as free."""
    if found.kv_usage is None or found.kv_usage >= KV_FULL:
        return ""
    return " (of requests alone), and since the turn before as many tokens came as it had free"


def _filled(found: Eviction) -> str:
    if not found.fillers:
        return ""
    return f", filled by {', '.join(map(filler_text, found.fillers[:2]))}"


def filler_text(filler: KvFiller) -> str:
    """Return who took how much: "key shop's 14 prompts in long (31,200 tokens)"."""
    return f"{filler.client}'s {format_count(filler.prompts, 'prompt')} in {filler.lane} ({filler.tokens:,} tokens)"


_CAUSES = {
    EvictionCause.KV_PRESSURE: "",
    EvictionCause.ROUTED: "{} had it, and another was predicted to answer sooner",
    EvictionCause.FAILOVER: "{} had it, and failed",
    EvictionCause.DRAINED: "{} had it, and takes no new requests",
    EvictionCause.REPLACED: "{} had it, and is gone",
    EvictionCause.RESTARTED: "its engine has begun anew since",
    EvictionCause.UNKNOWN: "nothing that was seen explains it",
}


def cause_text(found: Eviction) -> str:
    """Return why it was, where the figures have not said it."""
    return _CAUSES[found.cause].format(found.replica_before)
