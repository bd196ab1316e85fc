"""The profile's JSON Schema, for editors and for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from fleetctl import units
from fleetctl.config import fields
from fleetctl.config.engine_names import installed_engines
from fleetctl.config.provider_names import declared_host_settings, declared_settings
from fleetctl.config.provider_shape import settings_schemas
from fleetctl.config.shape import ProfileShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.config.engine_names import EngineNames
    from fleetctl.model.provider_setting import ProviderSetting

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(
    *, engines: EngineNames | None = None, providers: Mapping[str, tuple[ProviderSetting, ...]] | None = None
) -> dict[str, Any]:
    """Return the schema of a profile, draft 2020-12, every key with its description and default.

    It admits the engines in `engines`, and the providers' settings in `providers`, by default those installed; without
    any provider whatever a section says.
    """
    body = ProfileShape.model_json_schema(by_alias=True, schema_generator=Untitled)
    tidy(body)
    names = engines or installed_engines()
    _name_engines(body, {fields.INSTALLED_ENGINE: names.installed, fields.PLAYED_ENGINE: names.emulated})
    _declare_settings(body, "provider", declared_settings() if providers is None else providers)
    _declare_settings(body, "host", declared_host_settings() if providers is None else {})
    description = "A fleetctl profile: " + (ProfileShape.__doc__ or "")
    return {"$schema": DIALECT, **body, "title": "fleetctl profile", "description": description}


class Untitled(GenerateJsonSchema):
    """Titles sections and leaves keys to speak for themselves: "Max Cost Per Hour" says less than its description."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401  # the base class's shape
        """Return False: no field gets a title made from its name."""
        return False


def tidy(node: Any) -> None:  # noqa: ANN401  # a JSON tree
    """Make the generated tree say what the parser does and what people write, in place."""
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        tidy(child)
    if not isinstance(node, dict):
        return
    if "patternProperties" in node:  # a lane whose name does not fit is a fault, not one left unchecked
        node["additionalProperties"] = False
    if isinstance(node.get("title"), str):
        node["title"] = node["title"].removesuffix("Shape")
    spell = _SPELLINGS.get(node.get("pattern", ""))
    default = node.get("default")
    if spell is not None and isinstance(default, (int, float)):  # the shapes hold it parsed: 300 s as 300.0
        node["default"] = spell(default)


def _name_engines(node: Any, names: Mapping[str, tuple[str, ...]]) -> None:  # noqa: ANN401  # a JSON tree
    """Replace the comments that stand for engines by the names there are, in place."""
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _name_engines(child, names)
    if isinstance(node, dict) and node.get("$comment") in names:
        node["enum"] = list(names[node.pop("$comment")])


def _declare_settings(body: dict[str, Any], key: str, declared: Mapping[str, tuple[ProviderSetting, ...]]) -> None:
    """Replace the section that any provider or host may have by one for each that is there, in place."""
    choices = body["properties"][key]["anyOf"]
    if declared:
        choices[1:] = settings_schemas(declared)
    else:
        del choices[1]["$comment"]


_SPELLINGS = {
    fields.DURATION_PATTERN: units.format_duration,
    fields.USD_PATTERN: units.format_usd,
    fields.BYTES_PATTERN: units.format_bytes,
}
