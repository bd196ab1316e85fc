"""docs/runbooks.md and docs/runbook-keys.md are what the format says, and their example is a runbook."""

from __future__ import annotations

import re
from pathlib import Path

from fleetctl.config.runbook import read_runbook
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.runbooks.known_runbooks import lint_faults
from fleetctl.runbooks.reference import reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_keys_is_what_the_format_says() -> None:
    wanted = "make it anew: python -m fleetctl.runbooks.reference > docs/runbook-keys.md"
    assert (DOCS / "runbook-keys.md").read_text(encoding="utf-8") == reference(), wanted


def test_every_example_is_a_runbook_without_a_fault() -> None:
    page = (DOCS / "runbooks.md").read_text(encoding="utf-8")
    examples = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Runbook" in text]
    assert examples
    for text in examples:
        assert lint_faults(read_runbook(text.encode(), source="docs/runbooks.md")) == ()


def test_what_becomes_of_a_step_that_was_cut_is_said_of_every_action() -> None:
    page = (DOCS / "runbooks.md").read_text(encoding="utf-8")
    table = page.partition("a cut one")[2].partition("\n\n")[0]
    assert {action for action in ARGUMENTS if f"`{action}`" not in table} == set()
