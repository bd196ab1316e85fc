"""What holds a fleet still is named whenever somebody lets go of one hold among several."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.model.audit import Actor, AuditResult
from fleetctl.model.profile import Mode
from fleetctl.operations.audit import audit_log
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Shell:
    """A user's command lines on one Site: exit code, stdout, stderr."""

    fakes: FakeSite
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *argv: str) -> tuple[int, str, str]:
        code = main(argv, site=replace(self.fakes.site, actor=Actor(user="alice", host="web1")))
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Two revisions, so that a rollout is under way, and one replica."""
    monkeypatch.chdir(tmp_path)
    fakes = FakeSite()
    fakes.host.controllers["demo"] = lambda: fakes.ready_status("demo")
    profile = samples.profile()
    for count in (10, 11):
        capacity = replace(profile.capacity, max_nodes=count)
        fakes.store.put_fleet(replace(profile, capacity=capacity), samples.plan(), now=samples.EPOCH)
    fakes.store.put_replica(samples.replica("r1"))
    return Shell(fakes, capsys)


@pytest.mark.parametrize(
    ("lane", "what"),
    [
        ((), "the fleet is frozen by alice@web1: launch; end that: fleetctl thaw --fleet demo\n"),
        (("short",), "lane short is frozen by alice@web1: launch; end that: fleetctl thaw short --fleet demo\n"),
    ],
)
def test_a_rollout_that_is_resumed_under_a_freeze_stays_held_and_says_by_whom_and_how_to_end_that(shell, lane, what):
    shell("freeze", *lane, "--reason", "launch")
    shell("rollout", "pause")
    held = "the rollout is held still: "
    would = what.replace("\n", " (dry run, nothing was changed)\n")
    assert shell("rollout", "resume", "--dry-run") == (0, f"demo: its pause is lifted, and {held}{would}", "")
    assert shell("rollout", "resume") == (0, f"demo: its pause is lifted, and {held}{what}", "")
    assert shell("rollout", "resume") == (0, f"demo: {held}{what}", "")
    _, out, _ = shell("rollout", "resume", "-o", "json")
    clause, _, command = what.rstrip().partition("; end that: ")
    assert json.loads(out) == {
        "apiVersion": "fleetctl/v1", "fleet": "demo", "was_paused": False, "is_paused": False, "held_by": [clause], "commands": [command],
    }  # fmt: skip
    last = shell.fakes.store.journal("demo")[-1]
    assert last.reason == f"the rollout resumed, by hand; it waits still: {clause}"


def test_what_the_hint_says_lets_the_rollout_go_on(shell):
    shell("freeze", "short", "--reason", "launch")
    assert "fleetctl thaw short --fleet demo" in shell("rollout", "resume")[1]
    assert shell("thaw", "short", "--fleet", "demo")[0] == 0
    assert shell("rollout", "resume") == (0, "demo: the rollout goes on\n", "")


def test_in_shadow_mode_a_rollout_that_is_resumed_stays_where_it_is(shell):
    profile = samples.profile()
    shadow = replace(profile, control=replace(profile.control, mode=Mode.SHADOW))
    shell.fakes.store.put_fleet(shadow, samples.plan(), now=samples.EPOCH)
    code, out, _ = shell("rollout", "resume")
    assert (code, "goes on" in out) == (0, False)
    assert "held still: in shadow mode nothing is rolled out; end that: fleetctl up PROFILE" in out


def test_who_thaws_what_is_unknown_is_told_what_is_frozen_now_and_which_lanes_there_are(shell):
    code, _, err = shell("thaw", "nosuch")
    assert code == 8
    assert "hint: frozen now: nothing; lanes: short, long" in err
    shell("freeze", "long", "--reason", "launch")
    shell("freeze", "--reason", "audit")
    _, _, err = shell("thaw", "nosuch")
    frozen = "lane long (`fleetctl thaw long --fleet demo`), the fleet (`fleetctl thaw --fleet demo`)"
    assert f"hint: frozen now: {frozen}; lanes: short, long" in err


def test_a_lane_that_the_profile_no_longer_has_can_be_thawed(shell):
    shell("freeze", "long", "--reason", "launch")
    profile, plan = samples.profile(), samples.plan()
    without = replace(profile, lanes=tuple(lane for lane in profile.lanes if lane.name != "long"))
    planned = replace(plan, lanes=tuple(lane for lane in plan.lanes if lane.lane != "long"))
    shell.fakes.store.put_fleet(without, planned, now=samples.EPOCH)
    _, _, err = shell("thaw", "nosuch")
    assert "hint: frozen now: lane long (`fleetctl thaw long --fleet demo`); lanes: short\n" in err
    assert shell("thaw", "long")[0] == 0
    assert shell.fakes.store.fleet("demo").overrides.freezes == {}
    assert shell("thaw", "long")[0] == shell("freeze", "long", "--reason", "x")[0] == 8


def test_a_thaw_that_leaves_something_frozen_says_so(shell):
    shell("freeze", "short", "--reason", "launch")
    shell("freeze", "--reason", "audit")
    still = "the fleet is still frozen by alice@web1: audit (end that: fleetctl thaw --fleet demo)"
    assert still in shell("thaw", "short", "--dry-run")[1]
    assert "lane short is still frozen by alice@web1: launch" in shell("thaw")[1]
    assert "still" not in shell("thaw", "short")[1]


@pytest.mark.parametrize("argv", [("drain", "r9", "--yes"), ("undrain", "r9"), ("drain", "node/n9", "--yes")])
def test_what_is_refused_before_it_begins_is_in_the_audit_log_whichever_way_the_command_goes(shell, argv):
    code, _, _ = shell(*argv)
    (entry,) = audit_log(shell.fakes.site)
    assert (code, entry.exit_code, entry.result, entry.fleet) == (8, 8, AuditResult.REFUSED, "demo")
    assert entry.argv == argv
    assert argv[1].rpartition("/")[2] in entry.message


def test_the_refusal_of_a_frozen_lanes_drain_is_in_the_audit_log(shell):
    shell("freeze", "--reason", "launch")
    assert shell("drain", "r1", "--yes")[0] == 7
    assert [(e.action, e.result, e.exit_code) for e in audit_log(shell.fakes.site)][1:] == [("drain", "refused", 7)]


def test_a_drain_that_is_only_tried_out_or_that_nobody_confirms_is_not_in_the_audit_log(shell):
    assert shell("drain", "r9", "--dry-run")[0] == 8
    assert shell("drain", "r1")[0] == 2  # nobody is there to say yes
    assert audit_log(shell.fakes.site) == ()
