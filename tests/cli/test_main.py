from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from fleetctl.errors import CapacityError, FleetctlError, SloBreachError

FLEETCTL = [sys.executable, "-m", "fleetctl"]


@pytest.mark.parametrize("kind", [SloBreachError, CapacityError, FleetctlError])
def test_an_error_is_a_line_a_hint_and_its_own_exit_code(kind, fleetctl, monkeypatch):
    def fail(site):
        del site
        raise kind("it did not work", hint="try the other thing")

    monkeypatch.setattr("fleetctl.cli.ls.list_fleets", fail)
    ran = fleetctl("ls")
    assert (ran.code, ran.out) == (kind.exit_code, "")
    assert ran.err == "error: it did not work\nhint: try the other thing\n"


def test_a_bug_keeps_its_traceback(fleetctl, monkeypatch):
    monkeypatch.setattr("fleetctl.cli.ls.list_fleets", lambda site: 1 // 0)
    ran = fleetctl("ls")
    assert ran.code == 70
    assert "ZeroDivisionError" in ran.err
    assert "this is a bug" in ran.err


def test_wrong_usage_exits_2_and_says_where_help_is(fleetctl):
    ran = fleetctl("status", "--nope")
    assert ran.code == 2
    assert "No such option: --nope" in ran.err
    assert "Try 'fleetctl status -h' for help." in ran.err


def test_a_reader_that_leaves_ends_the_command_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run([*FLEETCTL, "schema"], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=30)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.parametrize("argv", [("events", "--follow"), ("status", "--watch")], ids=" ".join)
def test_ctrl_c_ends_a_watch_with_130_and_no_traceback(argv, dead_fleet):
    with subprocess.Popen([*FLEETCTL, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()  # it has begun
        running.send_signal(signal.SIGINT)
        try:
            _, stderr = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 130
    assert b"Traceback" not in stderr


def test_questions_are_only_asked_on_a_terminal(dead_fleet, fleetctl):
    ran = fleetctl("down")
    assert ran.code == 2
    assert "hint: pass --yes" in ran.err


def test_the_version_is_the_package_s(fleetctl):
    from importlib.metadata import version

    assert fleetctl("version", "-o", "name").out == version("fleetctl") + "\n"
    assert fleetctl("--version").out.startswith(f"fleetctl {version('fleetctl')} (Python 3.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back_into_fleetctl(shell, fleetctl):
    ran = fleetctl("completion", shell)
    assert ran.code == 0
    assert "_FLEETCTL_COMPLETE" in ran.out


def test_completion_is_installed_where_the_shell_looks(fleetctl, home, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "share"))
    monkeypatch.setenv("HOME", str(home))
    for shell, place in (
        ("bash", home / "share/bash-completion/completions/fleetctl"),
        ("zsh", home / ".zfunc/_fleetctl"),
        ("fish", home / "conf/fish/completions/fleetctl.fish"),
    ):
        ran = fleetctl("completion", shell, "--install")
        assert (ran.code, ran.out) == (0, "")
        assert str(place) in ran.err
        assert place.read_text() == fleetctl("completion", shell).out
    assert (home / ".zfunc/_fleetctl").read_text().startswith("#compdef fleetctl\n")


def complete(line: str, at: int) -> list[str]:
    environment = {**os.environ, "COMP_WORDS": line, "COMP_CWORD": str(at), "_FLEETCTL_COMPLETE": "complete_bash"}
    ran = subprocess.run([*FLEETCTL], env=environment, capture_output=True, text=True, check=False, timeout=30)
    return ran.stdout.split()


def test_completion_answers_commands_and_options():
    assert complete("fleetctl st", 1) == ["status", "state"]
    assert complete("fleetctl status -o j", 3) == ["json"]


@pytest.mark.parametrize(
    ("line", "at", "candidates"),
    [
        ("fleetctl status d", 2, ["demo"]),
        ("fleetctl scale ", 2, ["short", "long"]),
        ("fleetctl drain r1", 2, ["r1", "r11"]),
        ("fleetctl why s", 2, ["short"]),
        ("fleetctl plan qu", 2, ["quickstart"]),
    ],
)
def test_completion_knows_what_there_is(line, at, candidates, dead_fleet):
    assert complete(line, at) == candidates
