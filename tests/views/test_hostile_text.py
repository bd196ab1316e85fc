"""Text of engines, machines and people on every face: it is seen, and does nothing."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import yaml
from rich.style import Style

from fleetctl.cli.fleet_views import fleets_view, lanes_view, status_view
from fleetctl.cli.journal_views import events_view, plain_line, why_view
from fleetctl.cli.main import _report
from fleetctl.cli.output import Face, Format, text_of
from fleetctl.cli.progress import Progress
from fleetctl.errors import UnavailableError
from fleetctl.model.subject import FLEET
from fleetctl.operations.fleets import Explanation
from fleetctl.printable import PrintableFormatter, printable
from fleetctl.tui.explain_view import explanation_lines
from fleetctl.tui.frame import once
from fleetctl.tui.tones import to_text
from fleetctl.views.table import Tone
from tests.tui import fleets

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\nREADY\x7f\u2028\ufeff"
# What our own colours and redraws are made of is taken out before it is looked for.
OURS = re.compile(r"\x1b\[\d+m|\r\x1b\[K")
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")


def poisoned(value: Any) -> Any:  # whatever a status holds
    """Return a value with every text in it made hostile; enums, and names that others look up, stay."""
    if type(value) is str:
        return value + EVIL
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(poisoned(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        looked_up = {"name", "lane", "id"} if type(value).__name__ != "Subject" else set()
        changes = {
            f.name: poisoned(getattr(value, f.name)) for f in fields(value) if f.init and f.name not in looked_up
        }
        return replace(value, **changes)
    return value


STATUS = poisoned(fleets.busy())
ENTRIES = STATUS.decisions
NOW = fleets.busy().at
FOUND = Explanation(
    fleet=EVIL, subject=FLEET, plan=None, now=EVIL, entries=ENTRIES, lane=STATUS.lanes[0], replica=STATUS.replicas[0]
)
VIEWS = {
    "ls": fleets_view([STATUS], location=EVIL),
    "status": status_view(STATUS),
    "lanes": lanes_view(STATUS),
    "events": events_view(ENTRIES, now=NOW),
    "why": why_view(FOUND, now=NOW),
}


def assert_safe(text: str) -> None:
    assert not (found := UNSAFE.findall(OURS.sub("", text))), found


@pytest.mark.parametrize("output", Format)
@pytest.mark.parametrize("name", VIEWS)
def test_no_view_of_the_command_line_passes_a_control_on(name, output):
    for face in (Face(), Face(coloured=True, columns=100), Face(coloured=True, columns=40)):
        assert_safe(text_of(VIEWS[name], output, face=face))


def test_it_can_be_read_what_was_written():
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\nREADY\x7f\u2028\ufeff" in text_of(VIEWS["events"], Format.WIDE)


def test_json_and_yaml_keep_the_true_text():
    for read, output in ((json.loads, Format.JSON), (yaml.safe_load, Format.YAML)):
        assert read(text_of(VIEWS["events"], output))[0]["reason"].endswith(EVIL)


def test_events_as_they_come_are_a_line_each():
    for entry in ENTRIES:
        line = plain_line(entry, now=NOW)
        assert_safe(line)
        assert "\n" not in line


@pytest.mark.parametrize("is_ascii", [False, True])
def test_a_frame_of_top_has_the_lines_it_should_have(is_ascii):
    text = once(STATUS, width=1000, is_ascii=is_ascii)  # so wide that nothing stands on a line below its row
    assert_safe(text)
    assert text.count("\n") == once(fleets.busy(), width=1000, is_ascii=is_ascii).count("\n")


def test_what_top_opens_to_read_is_safe():
    styles = dict.fromkeys(Tone, Style())
    for spans in explanation_lines(FOUND, now=NOW, zone=None):
        assert_safe(to_text(spans, styles).plain)


def test_errors_and_progress_are_safe_and_errors_keep_their_lines(capsys):
    _report(UnavailableError(f"two\nlines {EVIL}", hint=EVIL))
    progress = Progress()
    for show in (progress.note, progress.caution, progress.update):
        show(EVIL)
    shown = capsys.readouterr().err
    assert_safe(shown)
    assert "two\nlines" in shown


def test_a_log_record_is_one_line_and_its_error_follows():
    error = ValueError(EVIL)
    record = logging.LogRecord("x", logging.ERROR, "", 1, "engine said %s", (EVIL,), (type(error), error, None))
    text = PrintableFormatter().format(record)
    assert_safe(text)
    assert text.splitlines()[0].endswith(r"\u2028\ufeff")
    assert text.splitlines()[1].startswith("ValueError: ")


def test_what_can_be_shown_stays_as_it_is():
    for plain in ("ttft 212 ms", "日本語 ü é 👩‍👩‍👧", "a…b →", ""):
        assert printable(plain) == plain
