from __future__ import annotations

import pytest

from fleetctl.cli.output import Format, View, has_colour, lines, paint, table, text_of

VIEW = View(
    value={"a": [1, 2]},
    names=("a", "b"),
    sections=(
        table("NAME >COUNT +EXTRA REASON", [("a", "1", "x", ""), ("long-name", "123", "y", "busy")]),
        lines("end"),
    ),
)


def test_columns_align_and_wide_ones_wait_for_wide():
    assert text_of(VIEW, Format.TABLE) == (
        "NAME       COUNT  REASON\na              1  -\nlong-name    123  busy\n\nend\n"
    )
    assert "EXTRA" in text_of(VIEW, Format.WIDE)


def test_programs_get_the_value():
    assert text_of(VIEW, Format.JSON) == '{\n  "a": [\n    1,\n    2\n  ]\n}\n'
    assert text_of(VIEW, Format.YAML) == "a:\n- 1\n- 2\n"
    assert text_of(VIEW, Format.NAME) == "a\nb\n"


def test_only_a_status_word_alone_in_its_cell_is_coloured():
    painted = paint("LANE   STATUS\nready  READY   is READY now\nSTALE\n")
    assert painted == (
        "LANE   STATUS\n\x1b[32mready\x1b[0m  \x1b[32mREADY\x1b[0m   is READY now\n\x1b[33mSTALE\x1b[0m\n"
    )


@pytest.mark.parametrize(
    ("is_tty", "no_color", "term", "coloured"),
    [(True, "", "xterm", True), (False, "", "xterm", False), (True, "1", "xterm", False), (True, "", "dumb", False)],
)
def test_colour_needs_a_terminal_and_no_objection(is_tty, no_color, term, coloured, monkeypatch):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert has_colour(is_tty) is coloured
