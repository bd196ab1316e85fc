"""Every command declares whether it changes anything, and whoever may only read is refused by those that do."""

from __future__ import annotations

import pytest

from fleetctl.cli.catalogue import COMMANDS
from fleetctl.cli.lazy import Effect, LazyCommand
from fleetctl.cli.main import command, main
from fleetctl.errors import ReadOnlyError, UnavailableError
from fleetctl.operations import overrides
from fleetctl.operations.audit import audit_log, audited
from fleetctl.testing import samples
from tests.sites import FakeSite

# A command line of each command that changes something. One that is missing here fails the first test below.
CHANGING = {
    "demo": ("--no-tui", "--duration", "1s"),
    "init": ("profile.yaml",),
    "plan": ("chat", "--out", "plan.json"),
    "render": ("chat", "-o", "out"),
    "up": ("chat", "--yes"),
    "down": ("demo", "--yes"),
    "scale": ("short=3",),
    "drain": ("r1", "--yes"),
    "restart": ("r1", "--yes"),
    "shed": ("short", "--yes"),
    "undrain": ("r1",),
    "freeze": ("--reason", "x"),
    "thaw": (),
    "interrupt": ("r1", "--yes"),
    "load": ("demo", "--duration", "1s"),
    "record": ("demo", "-o", "night.jsonl.gz"),
    "gc": ("--yes",),
    "calibrate": ("bench.json", "--name", "mine", "--gpu", "L4", "--model", "meta-llama/Llama-3.1-8B-Instruct"),
    "completion": ("bash", "--install"),
}


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fakes = FakeSite()
    fakes.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    fakes.store.put_replica(samples.replica("r1"))
    return fakes


def test_every_command_declares_its_effect_and_each_that_writes_is_tried_here():
    specs = [found.spec for found in command().commands.values() if isinstance(found, LazyCommand)]
    assert [spec.name for spec in specs] == [spec.name for spec in COMMANDS]
    assert {spec.name for spec in specs if spec.effect is not Effect.READS} == set(CHANGING)


@pytest.mark.parametrize("where", ["before", "behind", "environment", "site"])
@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_something_is_refused(name, where, fakes, tmp_path, monkeypatch, capsys):
    site, argv = fakes.site, [name, *CHANGING[name]]
    if where == "before":
        argv = ["--readonly", *argv]
    elif where == "behind":
        argv = [*argv, "--readonly"]
    else:
        monkeypatch.setenv("FLEETCTL_READONLY", "1")
    before = fakes.store.fleets(), fakes.store.replicas("demo"), sorted(tmp_path.rglob("*.yaml"))
    assert main(argv, site=site) == ReadOnlyError.exit_code
    captured = capsys.readouterr()
    assert f"error: {name} would change something, and this is read only" in captured.err
    assert (fakes.store.fleets(), fakes.store.replicas("demo"), sorted(tmp_path.rglob("*.yaml"))) == before


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_no_option_writes_into_start_up_files(option, fakes, capsys):
    assert main(["--readonly", option], site=fakes.site) == 2
    assert "No such option" in capsys.readouterr().err


def test_reading_and_dry_runs_are_not_refused(fakes, capsys):
    for argv in (["status", "demo"], ["ls"], ["scale", "short=3", "--dry-run"], ["gc", "-q"]):
        assert main(["--readonly", *argv], site=fakes.site) == 0
    assert fakes.store.fleet("demo").overrides.replicas == {}
    capsys.readouterr()


def test_a_refused_attempt_is_in_the_audit_log_with_its_command_line(fakes, capsys):
    main(["--readonly", "scale", "short=3"], site=fakes.site)
    (entry,) = audit_log(fakes.site)
    assert (entry.action, entry.result, entry.exit_code) == ("scale", "refused", 3)
    assert entry.argv == ("--readonly", "scale", "short=3")
    main(["audit"], site=fakes.site)
    assert "refused" in capsys.readouterr().out


def test_the_audit_log_shows_what_was_changed(fakes, capsys):
    main(["scale", "short=3", "--for", "2h", "--reason", "peak"], site=fakes.site)
    main(["scale", "short=4"], site=fakes.site)
    assert "in place of what was set until" in capsys.readouterr().out
    main(["audit", "-o", "json"], site=fakes.site)
    assert "replicas automatic -> 3, by hand until" in capsys.readouterr().out


def test_a_state_that_is_not_there_is_not_made_by_a_refusal(tmp_path, capsys):
    assert main(["scale", "short=3"]) == 8
    assert not list(tmp_path.rglob("state.db"))
    capsys.readouterr()


def test_what_was_changed_and_ended_badly_all_the_same_is_shown_with_its_exit_code(fakes, capsys):
    def scale_and_wait() -> None:
        with audited(fakes.site, "scale", is_command=True):
            overrides.scale(fakes.site, "demo", "short", 4)
            raise UnavailableError("still starting")

    with pytest.raises(UnavailableError):
        scale_and_wait()
    main(["audit"], site=fakes.site)
    assert "failed, exit 9" in capsys.readouterr().out
