"""Marked blocks in a crontab: idempotent, and every line of others stays byte for byte."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.errors import ConfigError
from fleetctl.schedules.crontab import CrontabBlock, assigned, block_text, command_line, with_block, without_block

BLOCK = CrontabBlock(key="pre-warm on chat", lines=("30 7 * * 1-5 /usr/bin/true",))
OTHER = CrontabBlock(key="pre-warm on chat-2", lines=("30 8 * * 1-5 /usr/bin/true",))
FOREIGN = "MAILTO=ops@example.com\n# mine \t\n\n5 4 * * * /bin/backup --at \\%H \n@daily  x  # é\udcff\n"


def test_a_block_goes_to_the_end_and_foreign_lines_stay():
    text = with_block(FOREIGN, BLOCK)
    assert text.startswith(FOREIGN)
    assert text.removeprefix(FOREIGN) == BLOCK.text()
    assert without_block(text, BLOCK.key) == FOREIGN


def test_a_second_time_changes_nothing_and_a_changed_block_stays_in_its_place():
    both = with_block(with_block(FOREIGN, BLOCK), OTHER) + "1 1 * * * last\n"
    assert with_block(both, BLOCK) == both
    changed = CrontabBlock(key=BLOCK.key, lines=("0 6 * * * /usr/bin/true",))
    assert with_block(both, changed) == both.replace(BLOCK.text(), changed.text())
    assert without_block(without_block(both, BLOCK.key), OTHER.key) == FOREIGN + "1 1 * * * last\n"


def test_a_key_that_begins_another_is_not_taken_for_it():
    text = with_block("", OTHER)
    assert block_text(text, BLOCK.key) == ""
    assert without_block(text, BLOCK.key) == text
    assert block_text(text, OTHER.key) == OTHER.text()


lines = st.lists(
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=40).filter(
        lambda line: "fleetctl runbook" not in line
    ),
    max_size=6,
).map(lambda found: "".join(f"{line}\n" for line in found))


@given(before=lines, after=lines)
@settings(max_examples=100, deadline=None)
def test_whatever_others_wrote_stays(before, after):
    text = with_block(before, BLOCK) + after
    assert with_block(text, BLOCK) == text
    assert without_block(text, BLOCK.key) == before + after


def test_a_crontab_without_a_last_line_break_gets_one():
    assert with_block("1 1 * * * x", BLOCK) == "1 1 * * * x\n" + BLOCK.text()


@pytest.mark.parametrize(
    "broken",
    [
        BLOCK.text().replace("# END", "# end"),
        BLOCK.text() + BLOCK.text(),
        BLOCK.text().partition("\n")[2],
        "".join(reversed(BLOCK.text().splitlines(keepends=True))),
    ],
)
def test_marks_that_somebody_broke_are_named_and_nothing_is_guessed(broken):
    text = f"{FOREIGN}{broken}"
    message = r"marks of 'pre-warm on chat' are broken \(line \d+\)"
    with pytest.raises(ConfigError, match=message):
        with_block(text, BLOCK)
    with pytest.raises(ConfigError, match=message):
        without_block(text, BLOCK.key)


@given(word=st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_command_means_to_sh_what_it_means_to_us(word):
    line = command_line(["printf", "%s|", word, "end"], {"A B".replace(" ", "_"): word})
    unescaped = line.replace(r"\%", "%")  # as cron does
    assert "%" not in line.replace(r"\%", "")
    assert shlex.split(unescaped) == ["/usr/bin/env", f"A_B={word}", "printf", "%s|", word, "end"]


def test_a_real_shell_agrees():
    line = command_line(["printf", "%s", 'a\'b $HOME "c" 100%'], {"X": "it's 5% & more"})
    done = subprocess.run(["/bin/sh", "-c", line.replace(r"\%", "%")], check=True, capture_output=True, text=True)
    assert done.stdout == 'a\'b $HOME "c" 100%'


def test_what_cron_would_cut_is_refused():
    with pytest.raises(ConfigError, match="cron takes 998") as refused:
        command_line(["true"], {"PATH": "/x" * 600})
    assert "PATH is the longest" in refused.value.hint
    with pytest.raises(ConfigError, match="no line break"):
        command_line(["a\nb"], {})


def test_what_a_crontab_sets_is_known():
    assert assigned('MAILTO=""\n A = "b c" \n# B=1\n5 * * * * X=1 cmd\n') == {"MAILTO": "", "A": "b c"}
