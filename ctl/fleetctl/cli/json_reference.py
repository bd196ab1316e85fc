"""Writes docs/json.md from the types that commands print: python -m fleetctl.cli.json_reference > docs/json.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
import typing
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import fleetctl
from fleetctl.cli.output import API_VERSION
from fleetctl.cli.plan_values import NOT_FORECAST
from fleetctl.codec import field_names
from fleetctl.model.desired import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEAD = f"""# JSON output

<!-- Made by `python -m fleetctl.cli.json_reference > docs/json.md`; tests hold it to the code and to what commands print. -->

`-o json` prints one document, `-o yaml` the same in YAML. Every object, and every one of a list, begins with
`"apiVersion": "{API_VERSION}"`. Under one version keys are added and never renamed, removed or given another type or meaning; what
reads them should ignore keys that it does not know, and words of a fixed set that it does not know. The order of keys means nothing.
With `--watch` and `events --follow`, `-o json` prints one object (or list) a line: JSON lines.

Units are the last part of a key: `_s` seconds, `_ns` nanoseconds, `_rps` requests per second, `_usd_per_hour` US dollars per hour,
`_bytes` bytes, `_tokens` tokens; `fraction`, `share`, `utilisation`, `attainment` and percentiles lie between 0 and 1. Times are
RFC 3339 in UTC. `null` means that there is none, or that it is not known; a figure that may not be decided on says so in `validity`.
Errors go to stderr, and the exit code ([cli.md](cli.md)) says which kind; stdout then holds no document, but for `validate`, whose
answer is what is wrong, and `status --check`, `ls --check`, `load --check-slo` and `doctor`, which print theirs first.

Ask with `jq`: `fleetctl ls -o json | jq -r '.[] | select(.condition.type != "READY") | .fleet'`.
"""

# What commands print: an object, or a list of one. "module:Class", below `fleetctl`.
_DOCUMENTS = {
    "ls": "[model.status:FleetStatus]",
    "status": "model.status:FleetStatus",
    "lanes": "[model.status:LaneStatus]",
    "slo": "model.slo_report:SloReport",
    "state show": "operations.states:StateRecords",
    "why": "operations.fleets:Explanation",
    "why REQUEST-ID": "[core.diagnosis.request:RequestExplanation]",
    "why WORKFLOW-ID": "[model.workflow_trace:WorkflowTrace]",
    "shadow": "operations.shadow:ShadowReport",
    "diagnose": "core.diagnosis.findings:Diagnosis",
    "requests": "[model.request_trace:RequestTrace]",
    "events": "[model.journal:JournalEntry]",
    "plan": "model.plan:Plan",
    "plan --frontier": "operations.what_if:Frontier",
    "offers": "[operations.offers:ProviderOffers]",
    "cost": "operations.costs:CostReport",
    "validate": "operations.validation:Validation",
    "load": "operations.traffic:LoadReport",
    "demo": "operations.traffic:LoadReport",
    "simulate": "operations.simulation:SimulationReport",
    "backtest": "operations.backtest:BacktestReport",
    "scale": "cli.json_reference:OverrideAnswer",
    "shed": "cli.json_reference:OverrideAnswer",
    "model add": "operations.model_catalogue:AddedModel",
    "calibrate": "operations.calibrating:CalibrationReport",
    "rollout status": "model.rollout:RolloutStatus",
    "rollout history": "[operations.rollouts:RevisionChange]",
    "rollout pause": "operations.rollouts:RolloutHold",
    "rollout resume": "operations.rollouts:RolloutHold",
    "freeze": "operations.freezing:FreezeChange",
    "thaw": "operations.freezing:FreezeChange",
    "undrain": "operations.drains:Undrain",
    "interrupt --dry-run": "model.loss:FleetLoss",
    "interruptions": "operations.interruption_history:InterruptionHistory",
    "audit": "[model.audit:AuditRecord]",
    "doctor": "[operations.checks:Check]",
    "gc": "[operations.garbage:OrphanedResource]",
    "gc --yes": "[operations.garbage:Removal]",
    "runbook run (a step)": "runbooks.answers:StepAnswer",
    "runbook run (the last line)": "runbooks.answers:RunAnswer",
    "runbook resume (a step)": "runbooks.answers:StepAnswer",
    "runbook resume (the last line)": "runbooks.answers:RunAnswer",
    "runbook run --dry-run": "runbooks.dry_run:RunbookPlan",
    "runbook history": "[runbooks.answers:RunAnswer]",
    "runbook history --run": "runbooks.answers:RunAnswer",
    "runbook list": "[runbooks.answers:ListedRunbook]",
    "runbook show": "runbooks.answers:ShownRunbook",
    "runbook lint": "runbooks.answers:LintAnswer",
    "version": "cli.json_reference:VersionAnswer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of an object."""

    name: str
    type: str  # "number", "string or null", "list of LaneStatus"
    meaning: str
    objects: tuple[str, ...] = ()  # the objects it may hold


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_page()) + "\n"


@cache
def documents() -> Mapping[str, tuple[str, bool]]:
    """Return command -> (the object it prints, whether a list of it)."""
    return {name: (path.strip("[]").rpartition(":")[2], path.startswith("[")) for name, path in _DOCUMENTS.items()}


@cache
def objects() -> Mapping[str, tuple[Key, ...]]:
    """Return every object that a command prints, and those within, with their keys."""
    found: dict[str, tuple[Key, ...]] = {}
    waiting = [_load(path.strip("[]")) for path in _DOCUMENTS.values()]
    while waiting:
        kind = waiting.pop(0)
        if kind.__name__ not in found:
            found[kind.__name__] = tuple(_keys(kind))
            waiting += [_classes()[name] for key in found[kind.__name__] for name in key.objects]
    return found


def _page() -> Iterator[str]:
    yield _HEAD
    yield "| command | prints |"
    yield "|---|---|"
    for command, (name, is_list) in documents().items():
        yield f"| `{command}` | {'a list of ' if is_list else ''}{_link(name)} |"
    for name, keys in objects().items():
        yield ""
        yield f"## {name}"
        yield ""
        yield _summary(_classes()[name])
        yield ""
        yield "| key | type | meaning |"
        yield "|---|---|---|"
        for key in keys:
            yield f"| `{key.name}` | {key.type} | {key.meaning} |"


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")


def _load(path: str) -> type:
    module, _, name = path.partition(":")
    kind: type = getattr(importlib.import_module(f"fleetctl.{module}"), name)
    return kind


@cache
def _classes() -> Mapping[str, type]:
    """Return every class that a document may name; their names are unique in the product."""
    root = Path(fleetctl.__file__).parent
    names = [
        f"fleetctl.{package}.{found.name}"
        for package in _PACKAGES
        for found in pkgutil.iter_modules([str(root / package)])
    ]
    modules = [importlib.import_module(name) for name in (*names, *_MODULES, __name__)]
    return {name: kind for module in modules for name, kind in vars(module).items() if isinstance(kind, type)}


_PACKAGES = ("model", "operations", "runbooks")
_MODULES = (
    "fleetctl.core.conditions",
    "fleetctl.core.diagnosis.findings",
    "fleetctl.core.diagnosis.request",
    "fleetctl.core.plan.model_totals",
    "fleetctl.config.faults",
    "fleetctl.load.report",
    "fleetctl.sim.result",
)


def _keys(kind: type) -> Iterator[Key]:
    hints = typing.get_type_hints(kind, localns={**_classes(), "datetime": datetime})
    comments = _comments(kind)
    for name in field_names(kind):
        text, inside = _type_of(hints[name])
        meaning = comments.get(name) or _summary_of(inside)
        if name in NOT_FORECAST.get(kind.__name__, ()):
            text = f"{text.removesuffix(' or null')} or null"
            meaning = f"{meaning.rstrip('.')}; null of a lane on a machine without GPUs, of which nothing is forecast".removeprefix(
                "; "
            )
        yield Key(name=name, type=text, meaning=meaning, objects=inside)
    for name, (text, meaning, inside) in _ADDED.get(kind.__name__, {}).items():
        yield Key(name=name, type=text, meaning=meaning, objects=inside)


def _summary_of(inside: tuple[str, ...]) -> str:
    return _summary(_classes()[inside[0]]) if inside else ""


def _comments(kind: type) -> dict[str, str]:
    """Return the comments that stand behind a class's fields, or alone below one."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.getsource(kind).splitlines():
        if match := re.match(r"    (\w+): [^#]*?(?:# (.*))?$", line):
            name = match[1]
            found[name] = (match[2] or "").partition("  # ")[0].strip()
        elif name and (match := re.match(r"    # (.*)$", line)):
            name = ""
        elif line.startswith(("    def ", "    @")):
            break
    return {field: re.sub(r"\bNone\b", "null", text.replace("|", "\\|")) for field, text in found.items()}


def _type_of(kind: Any) -> tuple[str, tuple[str, ...]]:  # noqa: ANN401  # annotations have no narrower type
    """Return a type as JSON has it, and the objects it may hold."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        parts = [_type_of(part) for part in inner if part is not types.NoneType]
        null = " or null" if types.NoneType in inner else ""
        return " or ".join(dict.fromkeys(text for text, _ in parts)) + null, tuple(
            n for _, names in parts for n in names
        )
    if origin in (tuple, list, frozenset):
        text, names = _type_of(inner[0])
        return f"list of {text}", names
    if origin is dict or (isinstance(origin, type) and issubclass(origin, typing.Mapping)):
        text, names = _type_of(inner[1])
        return f"object of {text}", names
    return _plain_type(kind)


def _plain_type(kind: Any) -> tuple[str, tuple[str, ...]]:  # noqa: ANN401  # as above
    if kind is datetime:
        return "time", ()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " \\| ".join(f"`{member.value}`" for member in kind), ()
    if isinstance(kind, type) and field_names(kind):
        return _link(kind.__name__), (kind.__name__,)
    return {str: "string", bool: "true or false", int: "integer", float: "number"}.get(kind, "any"), ()


_CONDITIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "condition": (_link("Condition"), "the worst that is the case for users", ("Condition",)),
    "conditions": (f"list of {_link('Condition')}", "everything that is the case, the worst first", ("Condition",)),
}
_VERDICT: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "compliance": ("`kept` \\| `missed` \\| `undecided`", "of all lanes together", ()),
    "kept": ("true or false", "whether that is kept", ()),
}
# What commands add to an object of the model.
_ADDED: dict[str, dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "FleetStatus": _CONDITIONS,
    "LaneStatus": _CONDITIONS,
    "Replica": {"zone": ("string", "of its node, where the provider says", ())},
    "Plan": {
        "models": (f"list of {_link('ModelTotals')}", "what each takes over all of its lanes", ("ModelTotals",)),
        "pending": (_link("PendingAnswer"), "what `up` would change", ("PendingAnswer",)),
        "preflight": (f"list of {_link('Finding')}", "what the provider finds beforehand", ("Finding",)),
        "explanation": (
            f"{_link('PlanExplanation')} or null",
            "with `--explain`: what is behind the plan, key by key",
            ("PlanExplanation",),
        ),
        "what_if": (f"{_link('WhatIf')} or null", "with `--set`: beside the profile's own plan", ("WhatIf",)),
    },
    "LoadReport": _VERDICT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideAnswer:
    """What was set by hand on a lane."""

    fleet: str
    subject: str  # the lane
    before: str  # empty: nothing was set
    after: str  # empty: nothing is
    before_terms: Terms | None  # of what was set
    after_terms: Terms | None  # of what is set


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionAnswer:
    """What is installed."""

    fleetctl: str
    python: str
    platform: str  # system and machine
    compiled: bool  # installed by `./install.sh --compiled`


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAnswer:
    """What `up` would change."""

    is_new: bool  # the fleet is not up: everything would be
    plan: tuple[PlanChangeAnswer, ...]
    profile: tuple[KeyChangeAnswer, ...]
    outdated_replicas: tuple[str, ...]  # that would keep the launch settings they were started with
    overrides: tuple[str, ...]  # set by hand, and given up


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChangeAnswer:
    """One figure of the plan that would change."""

    lane: str  # empty: the whole fleet
    field: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChangeAnswer:
    """One key of the profile that would change."""

    key: str  # "lanes.short.slo.ttft.p99"
    old: str  # as people write it; empty: not given
    new: str


if __name__ == "__main__":
    from fleetctl.cli.output import write

    write(reference())
