"""Whether a provider takes what a profile says to it, by its own declaration; and whether that means another place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.model.provider_setting import SettingKind, setting_text
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleetctl.model.provider_setting import ProviderSetting, SettingValue

_LIST_MAX = 1_000


def setting_faults(
    provider: str, declared: Sequence[ProviderSetting], given: Mapping[str, object], *, kind: str = "provider"
) -> Iterator[tuple[str, str]]:
    """Yield the key and what is wrong with it, of each that a provider, or a host, does not take so. Lists may be lists or tuples."""
    known = {setting.name: setting for setting in declared}
    for key, value in given.items():
        if key in known:
            if fault := _fault(known[key], value):
                yield key, fault
        elif known:
            near = suggest(key, known)
            yield key, f"{kind} {provider} has no such setting{near}; it takes: {', '.join(sorted(known))}"
        else:
            yield key, f"{kind} {provider} takes no settings from a profile"


def place_moves(
    declared: Sequence[ProviderSetting], old: Mapping[str, SettingValue], new: Mapping[str, SettingValue]
) -> Iterator[tuple[ProviderSetting, str, str]]:
    """Yield each setting of where a provider works that has another value, with both; empty: none was given."""
    for setting in declared:
        before, after = old.get(setting.name, ""), new.get(setting.name, "")
        if setting.is_place and before != after:
            yield setting, setting_text(before), setting_text(after)


def _fault(setting: ProviderSetting, value: object) -> str:
    fits = {
        SettingKind.TEXT: isinstance(value, str),
        SettingKind.TEXTS: isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value),
        SettingKind.COUNT: isinstance(value, int) and not isinstance(value, bool),
        SettingKind.FLAG: isinstance(value, bool),
    }
    if not fits[setting.kind]:
        return f"must be {setting.kind}, not {_shown(value)}"
    if isinstance(value, (list, tuple)):
        if len(value) > _LIST_MAX:
            return f"has {len(value)} entries, {_LIST_MAX} at most"
        return next((fault for each in value if (fault := _text_fault(setting, each))), "")
    if isinstance(value, int) and not isinstance(value, bool):
        return _count_fault(setting, value)
    return _text_fault(setting, value) if isinstance(value, str) else ""


def _text_fault(setting: ProviderSetting, text: str) -> str:
    if re.fullmatch(setting.pattern or r"\S(.*\S)?", text):
        return ""
    if not text.strip():
        return "is empty; leave it out"
    return f"{text!r} is not {setting.form or 'a text without blanks around it'}"


def _count_fault(setting: ProviderSetting, count: int) -> str:
    if setting.count_min <= count <= setting.count_max:
        return ""
    return f"must be {setting.count_min} to {setting.count_max}, not {count}"


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "a list"
    return "nothing" if value is None else repr(value)
