"""The runbook's JSON Schema, for editors and for other programs."""

from __future__ import annotations

from typing import Any

from fleetctl.config.runbook_shape import RunbookShape
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.config.schema import DIALECT, Untitled, tidy

_TEMPLATE = {"type": "string", "pattern": r"\$\{\{.*\}\}", "description": "${{ EXPRESSION }}: its value at the run."}
# Expressions themselves: there a template would be one in another.
_EXPRESSIONS = ("until", "that")


def runbook_schema() -> dict[str, Any]:
    """Return the schema of a runbook, draft 2020-12, every key with its description and default."""
    body = RunbookShape.model_json_schema(by_alias=True, schema_generator=Untitled)
    tidy(body)
    sections = body["$defs"]
    for shape, _ in ARGUMENTS.values():
        for key, entry in sections[shape.__name__]["properties"].items():
            if key not in _EXPRESSIONS:
                _admit_template(entry)
    _admit_one_action(sections["StepShape"])
    return {"$schema": DIALECT, **body, "title": "fleetctl runbook", "description": RunbookShape.__doc__}


def _admit_template(entry: dict[str, Any]) -> None:
    kinds = {key: entry.pop(key) for key in list(entry) if key not in ("description", "default")}
    entry["anyOf"] = [kinds, _TEMPLATE] if kinds else [{}]


def _admit_one_action(step: dict[str, Any]) -> None:
    """Have a step take exactly one action, whose arguments may be left out where none is required."""
    for action in ARGUMENTS:
        entry = step["properties"][action]
        kinds = {key: entry.pop(key) for key in list(entry) if key != "description"}
        entry["anyOf"] = [{"type": "null"}, *(k for k in kinds.get("anyOf", [kinds]) if k != {"type": "null"})]
    step["oneOf"] = [{"required": [action]} for action in ARGUMENTS]
