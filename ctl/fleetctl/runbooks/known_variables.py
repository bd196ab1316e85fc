"""The variables of expressions, and their fields as far as they are known before a run: those of `status -o json`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from fleetctl.codec import decode, encode, field_names
from fleetctl.model.replica import Replica
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.spelling import suggest
from fleetctl.views.values import fleet_value

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.runbook_run import RunbookRun

# What follows each variable: a field, or first the name or index of one of several.
_PATHS: tuple[tuple[re.Pattern[str], type], ...] = (
    (re.compile(r"\bstatus((?:\.[A-Za-z_]\w*)+)"), FleetStatus),
    (re.compile(r"\blanes(?:\.[A-Za-z_]\w*|\[[^\]]*\])((?:\.[A-Za-z_]\w*)+)"), LaneStatus),
    (re.compile(r"\breplicas\[[^\]]*\]((?:\.[A-Za-z_]\w*)+)"), ReplicaStatus),
)
_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def variables(seen: FleetStatus | None, run: RunbookRun, *, now: datetime) -> dict[str, Any]:
    """Return the value of every variable; a fleet that is not there yet has no lanes and an empty status."""
    status = _json(fleet_value(seen)) if seen is not None else {}
    failed = run.failed_step
    record = run.step(failed.name) if failed is not None else None
    return {
        "status": status,
        "lanes": {lane["name"]: lane for lane in status.get("lanes", [])},
        "replicas": status.get("replicas", []),
        "steps": {each.name: {**_json(each), "duration_s": each.duration_s} for each in run.steps},
        "run": {"id": run.id, "runbook": run.runbook.name, "fleet": run.fleet, "user": run.actor.name},
        "failure": {"step": record.name, "reason": record.reason, "exit_code": record.exit_code} if record else {},
        "now": now,
        **{f"params.{name}": value for name, value in run.parameters.items()},
    }


def _json(value: object) -> dict[str, Any]:
    """Return an object as a program that reads our JSON has it: lists, no tuples; CEL knows nothing else."""
    plain: dict[str, Any] = decode(dict[str, Any], encode(value))
    return plain


def unknown_field(text: str) -> str:
    """Return which field of a known variable an expression names that there is not; empty: none.

    What follows a comprehension's own variable (`lanes.all(l, ...)`) is not looked at.
    """
    bare = _TEXTS.sub("''", text)
    for pattern, kind in _PATHS:
        for found in pattern.finditer(bare):
            if unknown := _unknown(kind, found[1].strip(".").split("."), bare[found.end() :]):
                return unknown
    return ""


def _unknown(kind: Any, names: list[str], rest: str) -> str:  # noqa: ANN401  # annotations have no narrower type
    for index, name in enumerate(names):
        fields = field_names(kind)
        if not fields:
            return ""  # a map, a list or a macro of one: `lanes.short.burn.size()`
        known = {*fields} | _ADDED.get(kind, frozenset())
        is_call = index == len(names) - 1 and rest.lstrip().startswith("(")
        if name not in known and not is_call:
            return f"there is no {name!r}{suggest(name, known)} in a {_LABELS.get(kind, kind.__name__)}"
        kind = _section(get_type_hints(kind).get(name))
    return ""


def _section(annotation: Any) -> Any:  # noqa: ANN401
    """Return the noun that an annotation names alone or as an alternative to None; else nothing."""
    if field_names(annotation):
        return annotation
    parts = [part for part in get_args(annotation) if part is not type(None)]
    is_collection = getattr(annotation, "__origin__", None) in (tuple, list, dict)
    return _section(parts[0]) if len(parts) == 1 and not is_collection else None


# What programs get beside the fields (views/values.py).
_ADDED: dict[type, frozenset[str]] = {
    FleetStatus: frozenset({"condition", "conditions"}),
    LaneStatus: frozenset({"condition", "conditions"}),
    Replica: frozenset({"zone"}),
}
_LABELS = {FleetStatus: "fleet's status", LaneStatus: "lane's status", ReplicaStatus: "replica's status"}
