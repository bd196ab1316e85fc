"""What one profile says otherwise than another, by the keys people write."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING

from fleetctl.config.section import key_of
from fleetctl.core.slo.wording import format_limit
from fleetctl.model.profile import LaneMatch, LaneSpec, Objective, Profile
from fleetctl.model.slo import LaneSlo, Metric
from fleetctl.model.tiers import TierSpec
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind
from fleetctl.units import format_bytes, format_duration, format_fraction, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPELLINGS = {"_s": format_duration, "_bytes_max": format_bytes, "_usd_per_hour": format_usd}
# The keys that are not called as their fields are.
_RENAMED = {
    (Profile, "objective"): "slo",
    (Profile, "provider_settings"): "provider",
    (Profile, "host_choice"): "host",
    (Objective, "fraction"): "objective",
    (WorkflowKind, "targets"): "slo",
    (LaneSpec, "engine_version"): "engine.version",
    (LaneSpec, "engine_executable"): "engine.executable",
}
# A fleet's name is its identity; and where a port came from is nothing that a profile says.
_UNSAID = {"name", "port_is_given"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileChange:
    """One key that two profiles give different values, each as people write it; empty: not given."""

    key: str  # "lanes.short.slo.ttft.p99"
    old: str
    new: str


def diff_profiles(old: Profile, new: Profile) -> tuple[ProfileChange, ...]:
    """Return every key whose value differs, in the profile's order; those only the old one has come last."""
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    keys = [*after, *(key for key in before if key not in after)]
    return tuple(
        ProfileChange(key=key, old=before.get(key, ""), new=after.get(key, ""))
        for key in keys
        if before.get(key, "") != after.get(key, "")
    )


def _leaves(noun: object, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield every key below a noun with its value as text."""
    for field in fields(noun):  # type: ignore[arg-type]  # the nouns are dataclasses
        if field.name not in _UNSAID:
            key = _RENAMED.get((type(noun), field.name), key_of(field.name))
            yield from _values(field.name, getattr(noun, field.name), prefix + key)


def _values(field: str, value: object, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, LaneSlo):
        yield from _promises(value, key)
    elif isinstance(value, LaneMatch):
        yield from _match(value, key)
    elif is_dataclass(value):
        yield from _leaves(value, f"{key}.")
    elif isinstance(value, tuple) and any(isinstance(each, LaneSpec | TierSpec | WorkflowKind) for each in value):
        yield key, " ".join(each.name for each in value)  # tried, or ranked, in this order
        for each in value:
            yield from _leaves(each, f"{key}.{each.name}.")
    elif isinstance(value, tuple) and any(isinstance(each, ElapsedTarget) for each in value):
        for target in value:
            yield f"{key}.p{target.percentile * 100:g}", format_duration(target.limit_s)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield f"{key}.{name}", _text(field, each)
    else:
        yield key, _text(field, value)


def _promises(slo: LaneSlo, key: str) -> Iterator[tuple[str, str]]:
    for target in slo.targets:
        percentile = "" if target.metric is Metric.STALL_RATE else f".p{target.percentile * 100:g}"
        yield f"{key}.{target.metric}{percentile}", format_limit(target)


def _match(match: LaneMatch, key: str) -> Iterator[tuple[str, str]]:
    low, high = match.uncached_prompt_tokens_min, match.uncached_prompt_tokens_max
    bounds = [f">= {low}"] if low is not None else []
    bounds += [f"< {high}"] if high is not None else []
    yield f"{key}.uncached_prompt_tokens", " and ".join(bounds) or "any"
    yield f"{key}.stream", _text("stream", match.stream)
    yield f"{key}.batch", _text("batch", match.batch)


def _text(field: str, value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return _number(field, value)
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _number(field: str, value: float) -> str:
    if field == "fraction":
        return format_fraction(value)
    spell = next((spell for ending, spell in _SPELLINGS.items() if field.endswith(ending)), "{:.12g}".format)
    return spell(value)
