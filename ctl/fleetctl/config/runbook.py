"""Reads a runbook's YAML: text in, a `Runbook` or every fault at once out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fleetctl.config.build import build
from fleetctl.config.document import read_document
from fleetctl.config.faults import PlacedFault, ProfileFault, ProfileSource, place_faults
from fleetctl.config.fields import shown
from fleetctl.config.notification_shape import notification_rules
from fleetctl.config.runbook_checks import whole_runbook_faults
from fleetctl.config.runbook_shape import COMMON_KEYS, RunbookShape, StepSection
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.config.shape_faults import shape_faults
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.runbook import Json, Parameter, Runbook, RunbookStep

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# ${{ EXPRESSION }} in an argument: the text between is CEL.
TEMPLATE = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookReading:
    """What the text of a runbook says, or everything that is wrong with it as such."""

    source: ProfileSource
    runbook: Runbook | None
    faults: tuple[PlacedFault, ...]

    def checked(self) -> Runbook:
        """Return the runbook. Raises ConfigError with every fault."""
        if self.runbook is None:
            raise unreadable_runbook(self.source, self.faults)
        return self.runbook


def unreadable_runbook(source: ProfileSource, faults: tuple[PlacedFault, ...]) -> ConfigError:
    """Return the error for a runbook with faults; each is on a line of its own."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return ConfigError(
        "\n".join(map(str, faults)),
        hint=f"{count} in {source.name}; `fleetctl schema runbook` prints what a runbook may say, for your editor",
    )


def read_runbook_file(path: Path) -> RunbookReading:
    """Return what a file says. Raises NotFoundError, ConfigError for one that cannot be read."""
    if not (path.is_file() or path.is_fifo()):
        raise NotFoundError(f"no runbook at {path}", hint="`fleetctl runbook list` names those there are")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    return read_runbook(raw, source=str(path))


def read_runbook(raw: bytes, *, source: str) -> RunbookReading:
    """Return what UTF-8 YAML says, with every fault; `source` names it in messages."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        fault = ProfileFault(path=(), line=line, message="is not UTF-8 text; save the runbook as UTF-8")
        return _reading(ProfileSource(name=source), None, [fault])
    document = read_document(text, advice="`fleetctl runbook show pre-warm` names a file to begin with")
    faults = list(document.faults)
    runbook: Runbook | None = None
    if isinstance(document.tree, dict):
        faults += _faults(document.tree)
        if not faults:
            runbook = _runbook(document.tree)
    elif not faults:
        message = f"a runbook is a section of keys and values, not {shown(document.tree)}"
        faults.append(ProfileFault(path=(), line=1, message=message))
    return _reading(ProfileSource(name=source, lines=document.lines), runbook, faults)


def step_arguments(action: str, arguments: Mapping[str, Json]) -> Any:  # noqa: ANN401  # the noun is the action's own
    """Return an action's arguments, every template in them replaced, as its noun. Raises ConfigError naming every fault."""
    shape, noun = ARGUMENTS[action]
    try:
        return build(noun, shape.model_validate(dict(arguments)))
    except ValidationError as error:
        faults = shape_faults(error, shape)
        raise ConfigError("; ".join(f"{action}: {_spelled(fault)}" for fault in faults)) from error


def is_template(value: object) -> bool:
    """Whether a value holds an expression whose own value is not known before its step is taken."""
    return isinstance(value, str) and TEMPLATE.search(value) is not None


def _spelled(fault: ProfileFault) -> str:
    key = ".".join(str(part) for part in fault.path)
    return f"{key}: {fault.message}" if key else fault.message


def _reading(source: ProfileSource, runbook: Runbook | None, faults: list[ProfileFault]) -> RunbookReading:
    return RunbookReading(source=source, runbook=runbook, faults=place_faults(faults, source))


def _faults(tree: dict[str, Any]) -> list[ProfileFault]:
    """Return every fault of a tree; what stands where a template does is judged when its step is taken."""
    listed: dict[str, Any] = {key: _with_sections(tree[key]) for key in ("steps", "on_failure") if key in tree}
    whole = {**tree, **listed}
    faults: list[ProfileFault] = []
    try:
        RunbookShape.model_validate(whole)
    except ValidationError as error:
        faults += shape_faults(error, RunbookShape, ignores=is_template)
    return faults + whole_runbook_faults(whole)


def _with_sections(steps: object) -> object:
    """Return steps with `- thaw:` written as `- thaw: {}`: an action without arguments is still an action."""
    if not isinstance(steps, list):
        return steps
    return [
        {key: {} if value is None and key in ARGUMENTS else value for key, value in step.items()}
        if isinstance(step, dict)
        else step
        for step in steps
    ]


def _runbook(tree: dict[str, Any]) -> Runbook:
    steps = {key: _with_sections(tree.get(key) or []) for key in ("steps", "on_failure")}
    # Arguments with templates in them are no arguments yet: the shape sees the rest.
    bare = {
        **tree,
        **{key: [_common(step) for step in listed] for key, listed in steps.items() if isinstance(listed, list)},
    }
    shape = RunbookShape.model_validate(bare)
    return build(
        Runbook,
        shape,
        fleet=shape.fleet or "",
        schedule=shape.schedule or "",
        notify=notification_rules(shape.notify),
        parameters=tuple(build(Parameter, section, name=name) for name, section in shape.params.items()),
        steps=_steps(steps["steps"], shape.steps, prefix=""),
        on_failure=_steps(steps["on_failure"], shape.on_failure, prefix="undo-"),
    )


def _common(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key in COMMON_KEYS}


def _steps(written: Any, sections: list[StepSection], *, prefix: str) -> tuple[RunbookStep, ...]:  # noqa: ANN401  # a YAML tree
    found = []
    for number, (tree, section) in enumerate(zip(written, sections, strict=True), start=1):
        action = next(key for key in tree if key in ARGUMENTS)
        name = section.name or f"{prefix}{action}-{number}"
        condition = "" if "if" not in tree else section.condition
        found.append(
            build(RunbookStep, section, name=name, action=action, arguments=dict(tree[action]), condition=condition)
        )
    return tuple(found)
