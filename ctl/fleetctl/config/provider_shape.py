"""The provider of a profile: its name, or a section with what it is told beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from fleetctl.config.fields import Name
from fleetctl.config.section import ProfileSection
from fleetctl.model.provider_setting import ProviderSetting, SettingKind, SettingValue
from fleetctl.spelling import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping

# What stands in the schema for the settings that only an installation knows.
INSTALLED_PROVIDER = "an installed provider with settings"
_KIND = "Who sells the nodes, by the name it is installed under."
_HOST_KIND = "Where controller and gateway run, by the name it is installed under."
_ANY_VALUE: dict[str, Any] = {
    "anyOf": [
        {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}},
    ],
    "description": "A setting that the provider or host declares; `fleetctl schema` has those installed.",
}  # fmt: skip
_TYPES: dict[SettingKind, dict[str, Any]] = {
    SettingKind.TEXT: {"type": "string"},
    SettingKind.TEXTS: {"type": "array", "items": {"type": "string"}},
    SettingKind.COUNT: {"type": "integer"},
    SettingKind.FLAG: {"type": "boolean"},
}


class ProviderShape(ProfileSection):
    """Which provider, and its settings: what else stands in the section, which the provider itself has to know."""

    model_config = ConfigDict(extra="allow")

    kind: Name = Field(description=_KIND)

    @property
    def settings(self) -> dict[str, SettingValue]:
        """What is given beside the name, lists as tuples."""
        return {
            name: tuple(value) if isinstance(value, list) else value for name, value in (self.model_extra or {}).items()
        }


def any_settings(kind: str = _KIND) -> dict[str, Any]:
    """Return the schema of a section for whatever provider, or host."""
    return {
        "type": "object",
        "properties": {"kind": {"type": "string", "description": kind}},
        "patternProperties": {r"^[a-z][a-z0-9_]*$": _ANY_VALUE},
        "required": ["kind"],
        "additionalProperties": False,
        "$comment": INSTALLED_PROVIDER,
    }


def settings_schemas(declared: Mapping[str, tuple[ProviderSetting, ...]], *, kind: str = _KIND) -> list[dict[str, Any]]:
    """Return the schema of a section for each provider or host by name, with the settings it declares."""
    return [
        {
            "type": "object",
            "properties": {
                "kind": {"const": name, "description": kind},
                **{setting.name: _of_setting(setting) for setting in settings},
            },
            "required": ["kind"],
            "additionalProperties": False,
        }
        for name, settings in sorted(declared.items())
    ]


def _of_setting(setting: ProviderSetting) -> dict[str, Any]:
    schema = {**_TYPES[setting.kind], "description": setting.description}
    pattern = {"pattern": f"^(?:{setting.pattern})$"} if setting.pattern else {}
    if setting.kind is SettingKind.TEXTS:
        return {**schema, "items": {"type": "string", **pattern}}
    if setting.kind is SettingKind.COUNT:
        return {**schema, "minimum": setting.count_min, "maximum": setting.count_max}
    return {**schema, **pattern}


def _one_or_section(value: object) -> object:
    """Read local as {kind: local}."""
    return {"kind": value} if isinstance(value, str) else value


class HostShape(ProviderShape):
    """Which host, and its settings, which the host itself has to know."""

    kind: Name = Field(description=_HOST_KIND)


ProviderChoiceShape = Annotated[
    ProviderShape,
    BeforeValidator(_one_or_section),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": NAME_PATTERN}, any_settings()]}),
]
HostChoiceShape = Annotated[
    HostShape,
    BeforeValidator(_one_or_section),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": NAME_PATTERN}, any_settings(_HOST_KIND)]}),
]
