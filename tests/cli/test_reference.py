from __future__ import annotations

from pathlib import Path

from fleetctl import errors
from fleetctl.cli.reference import exit_codes, reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_on_the_command_line_is_what_the_commands_say():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "make it anew: python -m fleetctl.cli.reference > docs/cli.md"
    )


def test_every_exit_code_is_in_the_table():
    own = {0, 2, 70, 130, 141}
    raised = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.FleetctlError)
    }
    assert set(exit_codes()) == own | raised
