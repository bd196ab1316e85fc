"""What is wrong with a runbook's expressions: found before it is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.config.faults import ProfileFault
from fleetctl.config.runbook import TEMPLATE
from fleetctl.config.use_cases import use_cases
from fleetctl.runbooks.expressions import EXPRESSION_KEYS, Expressions
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath
    from fleetctl.model.runbook import Json, Runbook

_STEP_NAMED = re.compile(r"\bsteps(?:\.([A-Za-z_]\w*)|\[\s*['\"]([^'\"]+)['\"]\s*\])")
_PARAMETER_NAMED = re.compile(r"undeclared reference to 'params\.(\w+)")


def expression_faults(runbook: Runbook) -> list[ProfileFault]:
    """Return a fault for each expression that does not compile, or names what there is not."""
    expressions = Expressions(parameters=runbook.parameters)
    earlier: set[str] = set()
    faults: list[ProfileFault] = []
    for part, steps in (("steps", runbook.steps), ("on_failure", runbook.on_failure)):
        for index, taken in enumerate(steps):
            path: KeyPath = (part, index)
            if taken.condition:
                faults += _fault(expressions, taken.condition, (*path, "if"), earlier, is_condition=True)
            faults += _argument_faults(expressions, dict(taken.arguments), (*path, taken.action), earlier)
            earlier.add(taken.name)
    return faults


def profile_faults(runbook: Runbook, *, directory: Path) -> list[ProfileFault]:
    """Return a fault for each `up` whose profile is neither a file, there or in `directory`, nor a packaged name."""
    faults: list[ProfileFault] = []
    for part, steps in (("steps", runbook.steps), ("on_failure", runbook.on_failure)):
        for index, taken in enumerate(steps):
            name = taken.arguments.get("profile") if taken.action == "up" else None
            if not isinstance(name, str) or TEMPLATE.search(name):
                continue  # only the run knows it
            if name not in use_cases() and not (directory / name).is_file() and not Path(name).is_file():
                message = (
                    f"{name!r} is neither a file beside the runbook nor a packaged profile{suggest(name, use_cases())}"
                )
                faults.append(ProfileFault(path=(part, index, "up", "profile"), message=message))
    return faults


def _argument_faults(expressions: Expressions, node: Json, path: KeyPath, earlier: set[str]) -> Iterator[ProfileFault]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _argument_faults(expressions, value, (*path, key), earlier)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _argument_faults(expressions, value, (*path, index), earlier)
    elif isinstance(node, str) and path[-1] in EXPRESSION_KEYS:
        yield from _fault(expressions, node, path, earlier, is_condition=True)
    elif isinstance(node, str):
        for found in TEMPLATE.finditer(node):
            yield from _fault(expressions, found[1], path, earlier, is_condition=False)
        if "${{" in TEMPLATE.sub("", node):
            yield ProfileFault(path=path, message="has a ${{ without its }}")


def _fault(
    expressions: Expressions, text: str, path: KeyPath, earlier: set[str], *, is_condition: bool
) -> Iterator[ProfileFault]:
    fault = expressions.fault(text, is_condition=is_condition)
    if fault:
        unknown = _PARAMETER_NAMED.search(fault)
        near = suggest(unknown[1], [each.name for each in expressions.parameters]) if unknown else ""
        yield ProfileFault(path=path, message=f"{fault}{near}")
        return
    for found in _STEP_NAMED.finditer(text):
        name = found[1] or found[2]
        if name not in earlier:
            yield ProfileFault(path=path, message=f"no step before it is called {name!r}{suggest(name, earlier)}")
