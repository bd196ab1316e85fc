from __future__ import annotations

import json

import pytest

from fleetctl.cli.output import Face, Format, View, has_colour, json_line, lines, section, text_of
from fleetctl.views.table import Cell, Tone, cell, text_table

VIEW = View(
    value={"a": [1, 2]},
    names=("a", "b"),
    sections=(
        section(text_table("NAME >COUNT +EXTRA REASON", [("a", "1", "x", ""), ("long-name", "123", "y", "busy")])),
        lines("end"),
    ),
)


def test_columns_align_and_wide_ones_wait_for_wide():
    assert text_of(VIEW, Format.TABLE) == (
        "NAME       COUNT  REASON\na              1  -\nlong-name    123  busy\n\nend\n"
    )
    assert "EXTRA" in text_of(VIEW, Format.WIDE)


def test_programs_get_the_value():
    assert text_of(VIEW, Format.JSON) == '{\n  "apiVersion": "fleetctl/v1",\n  "a": [\n    1,\n    2\n  ]\n}\n'
    assert text_of(VIEW, Format.YAML) == "apiVersion: fleetctl/v1\na:\n- 1\n- 2\n"
    assert text_of(VIEW, Format.NAME) == "a\nb\n"


def test_a_cell_brings_its_own_colour_and_no_text_is_searched_for_one():
    rows = [("ready", cell("READY", Tone.GOOD), "is READY now"), ("x", cell("STALE", Tone.BAD), "")]
    status = Cell(spans=(("Status  ", Tone.PLAIN), ("DEGRADED", Tone.WARN), ("  no gateway", Tone.PLAIN)))
    view = View(value=None, sections=(section(text_table("READY STATE WHY", rows)), lines(status)))
    assert text_of(view, Format.TABLE, face=Face(coloured=True)) == (
        "READY  STATE  WHY\nready  \x1b[32mREADY\x1b[0m  is READY now\nx      \x1b[31mSTALE\x1b[0m  -\n"
        "\nStatus  \x1b[33mDEGRADED\x1b[0m  no gateway\n"
    )


def test_a_coloured_line_is_cut_where_a_plain_one_is():
    view = View(value=None, sections=(section(text_table("A B", [("x", cell("long and bad", Tone.BAD))])),))
    cut = text_of(view, Format.TABLE, face=Face(coloured=True, columns=8))
    assert cut == "A  B\nx  \x1b[31mlong\x1b[0m…\n"
    assert text_of(view, Format.TABLE, face=Face(columns=8)) == "A  B\nx  long…\n"


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


def test_every_object_that_programs_get_says_the_version_of_its_shape():
    assert json.loads(json_line(View(value={"a": 1}))) == {"apiVersion": "fleetctl/v1", "a": 1}
    assert json.loads(text_of(View(value=[{"a": 1}]), Format.JSON)) == [{"apiVersion": "fleetctl/v1", "a": 1}]


def test_what_is_to_be_read_whole_goes_on_below_in_its_own_column():
    whole = Cell(spans=(("the role lacks ec2:CreateFleet and ec2:TerminateInstances", Tone.PLAIN),), is_whole=True)
    view = View(value=None, sections=(section(text_table("VERDICT FOUND", [("fail", whole), ("ok", "a" * 60)])),))
    shown = text_of(view, Format.TABLE, face=Face(columns=40)).splitlines()
    assert shown[1:4] == [
        "fail     the role lacks ec2:CreateFleet",
        "         and ec2:TerminateInstances",
        f"ok       {'a' * 30}…",
    ]
    assert len(text_of(view, Format.TABLE, face=Face(columns=20)).splitlines()) == 3
    assert "TerminateInstances" in text_of(view, Format.TABLE, face=Face()).splitlines()[1]
