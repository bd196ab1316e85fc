"""Writes docs/runbook-keys.md from the format itself: python -m fleetctl.runbooks.reference > docs/runbook-keys.md."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fleetctl.config.runbook_shape import ParameterShape, RetryShape, RunbookShape, StepSection
from fleetctl.config.runbook_step_shapes import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.config.section import ProfileSection

_HEAD = """# The keys of a runbook

<!-- Made by `python -m fleetctl.runbooks.reference > docs/runbook-keys.md`; a test keeps it true. -->

What they are for, with examples: [runbooks.md](runbooks.md). `fleetctl schema runbook` prints the same for editors. Durations
have a unit (`90s`, `5m`, `2h`), money a dollar sign. In every argument of an action `${{ EXPRESSION }}` stands for a value."""


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _HEAD
    yield from _section("## The runbook", RunbookShape)
    yield from _section("## A parameter (`params.NAME`)", ParameterShape)
    yield from _section("## Every step", StepSection)
    yield from _section("## `retry`", RetryShape)
    yield from ("", "## Actions", "", "A step has exactly one of these keys beside those above.")
    for action, (shape, _) in ARGUMENTS.items():
        yield from _section(f"### `{action}`", shape)


def _section(title: str, shape: type[ProfileSection]) -> Iterator[str]:
    yield from ("", title, "", " ".join((shape.__doc__ or "").split()), "")
    yield from ("| key | meaning |", "|---|---|")
    for name, entry in shape.model_fields.items():
        yield f"| `{entry.alias or name}` | {entry.description} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
