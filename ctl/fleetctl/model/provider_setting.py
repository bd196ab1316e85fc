"""What a profile may say to its provider beside the name, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SettingValue = bool | int | str | tuple[str, ...]


class SettingKind(StrEnum):
    """What a setting's value is."""

    TEXT = "text"
    TEXTS = "a list of texts"
    COUNT = "a whole number"
    FLAG = "true or false"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSetting:
    """One setting that a provider takes from a profile, as it declares it."""

    name: str
    description: str
    kind: SettingKind = SettingKind.TEXT
    pattern: str = ""  # that a whole text matches, or each of a list; empty: any that is not empty
    form: str = ""  # what matches, in words
    count_min: int = 0
    count_max: int = 2**31
    variable: str = ""  # of the environment, that says it where the profile does not
    # What was made under one value is not seen, or cannot be ended, under another: it stays while nodes are there.
    is_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderChoice:
    """A provider by its name, and the settings it is given."""

    name: str
    settings: Mapping[str, SettingValue] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it as people read it: "kubernetes (context prod, namespace llm)"."""
        given = ", ".join(f"{name} {setting_text(value)}" for name, value in sorted(self.settings.items()))
        return f"{self.name} ({given})" if given else self.name


def setting_text(value: SettingValue) -> str:
    """Return a value on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, tuple) else str(value)
