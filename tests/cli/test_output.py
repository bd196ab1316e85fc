from __future__ import annotations

import pytest

from fleetctl.cli.output import Face, Format, View, has_colour, lines, table, text_of

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
    view = View(
        value=None, sections=(table("READY STATE WHY", [("ready", "READY", "is READY now"), ("x", "STALE", "")]),)
    )
    assert text_of(view, Format.TABLE, face=Face(coloured=True)) == (
        "READY  STATE  WHY\n\x1b[32mready\x1b[0m  \x1b[32mREADY\x1b[0m  is READY now\nx      \x1b[33mSTALE\x1b[0m  -\n"
    )


def test_a_table_is_cut_to_the_terminal_and_a_wide_one_is_not():
    narrow = Face(columns=20)
    assert max(map(len, text_of(VIEW, Format.TABLE, face=narrow).splitlines())) == 20
    assert "…" in text_of(VIEW, Format.TABLE, face=narrow)
    assert text_of(VIEW, Format.WIDE, face=narrow) == text_of(VIEW, Format.WIDE)


@pytest.mark.parametrize(
    ("is_tty", "no_color", "term", "coloured"),
    [(True, "", "xterm", True), (False, "", "xterm", False), (True, "1", "xterm", False), (True, "", "dumb", False)],
)
def test_colour_needs_a_terminal_and_no_objection(is_tty, no_color, term, coloured, monkeypatch):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert has_colour(is_tty=is_tty) is coloured
