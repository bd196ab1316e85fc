"""What no single key of a runbook can say: one action a step, names once, defaults of their type, no secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.config.faults import ProfileFault
from fleetctl.config.fields import shown
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.model.runbook import ParameterType
from fleetctl.secret_shapes import is_secret_shaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath

_KINDS: dict[str, tuple[type, ...]] = {
    ParameterType.STRING: (str,),
    ParameterType.INT: (int,),
    ParameterType.NUMBER: (int, float),
    ParameterType.BOOL: (bool,),
}


def whole_runbook_faults(tree: dict[str, Any]) -> list[ProfileFault]:
    """Return what is wrong with a runbook's tree beyond the form of its keys."""
    return [*_step_faults(tree), *_parameter_faults(tree), *_secret_faults(tree, ())]


def is_of_type(value: object, kind: str) -> bool:
    """Whether a value is one of a parameter's type; a boolean is no number."""
    if isinstance(value, bool):
        return kind == ParameterType.BOOL
    return isinstance(value, _KINDS.get(kind, ()))


def _step_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    names: dict[str, KeyPath] = {}
    for part, prefix in (("steps", ""), ("on_failure", "undo-")):
        steps = tree.get(part)
        for index, step in enumerate(steps if isinstance(steps, list) else ()):
            if not isinstance(step, dict):
                continue
            path: KeyPath = (part, index)
            actions = [key for key in step if key in ARGUMENTS]
            if len(actions) != 1:
                found = f"has {' and '.join(actions)}" if actions else "does nothing"
                yield ProfileFault(path=path, message=f"{found}; a step has one action: {', '.join(ARGUMENTS)}")
                continue
            name = step.get("name") or f"{prefix}{actions[0]}-{index + 1}"
            if name in names:
                yield ProfileFault(path=path, message=f"a step is called {name!r} already")
            names[str(name)] = path


def _parameter_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    params = tree.get("params")
    for name, section in params.items() if isinstance(params, dict) else ():
        if not isinstance(section, dict):
            continue
        path: KeyPath = ("params", name)
        kind = section.get("type", ParameterType.STRING.value)
        choices = section.get("choices")
        default = section.get("default")
        if section.get("required") is True and default is not None:
            yield ProfileFault(path=(*path, "default"), message="a parameter that must be given has no default")
        if section.get("required") is not True and default is None:
            yield ProfileFault(path=path, message="has neither a default nor `required: true`")
        listed = choices if isinstance(choices, list) else []
        for key, value in (("default", default), *(("choices", choice) for choice in listed)):
            if value is not None and kind in _KINDS and not is_of_type(value, kind):
                is_large = kind == ParameterType.INT.value and isinstance(value, float) and abs(value) >= 2.0**63
                what = "has too many digits for an int" if is_large else f"is not of type {kind}"
                yield ProfileFault(path=(*path, key), message=f"{shown(value)} {what}")
        if listed and default is not None and default not in listed:
            yield ProfileFault(path=(*path, "default"), message=f"{shown(default)} is none of the choices")


def _secret_faults(node: object, path: KeyPath) -> Iterator[ProfileFault]:
    """Yield a fault for each value that looks like a secret. The value is not repeated."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _secret_faults(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _secret_faults(value, (*path, index))
    elif isinstance(node, str) and is_secret_shaped(node):
        yield ProfileFault(path=path, message="looks like a secret; write where it lies: env:NAME or file:PATH")
