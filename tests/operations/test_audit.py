from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.errors import ConfigError, FrozenError, ReadOnlyError, RolloutFailedError, UnavailableError
from fleetctl.model.audit import Actor, AuditRecord, AuditResult, Channel
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations import freezing, lifecycle, overrides
from fleetctl.operations.actors import current_actor
from fleetctl.operations.audit import audit_log, audited
from fleetctl.operations.running_processes import this_process
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.secret_shapes import HIDDEN, without_secrets
from fleetctl.testing import samples

BOB = Actor(user="bob", host="web2")
ALICE = Actor(user="root", uid=0, sudo_user="alice", host="web1", channel=Channel.TERMINAL, origin="/dev/pts/3")


@pytest.fixture
def site(fakes):
    return replace(fakes.site, actor=ALICE)


def test_a_change_is_kept_with_who_what_and_its_result(controlled, site):
    overrides.scale(site, "demo", "short", 4)
    (entry,) = audit_log(site)
    assert (entry.actor, entry.fleet, entry.action, entry.result) == (ALICE, "demo", "scale", AuditResult.OK)
    assert entry.changes == ("lane/short: replicas automatic -> 4, by hand",)
    assert entry.actor.name == "alice@web1"


def test_a_refused_attempt_is_kept_too(controlled, site):
    with pytest.raises(ConfigError):
        overrides.scale(site, "demo", "short", 99)
    (entry,) = audit_log(site)
    assert (entry.result, entry.exit_code) == (AuditResult.REFUSED, 3)
    assert "takes 1 to 8" in entry.message


def test_what_a_read_only_site_refuses_is_kept(controlled, site, store):
    before = store.fleet("demo")
    with pytest.raises(ReadOnlyError):
        overrides.scale(replace(site, is_readonly=True), "demo", "short", 4)
    assert store.fleet("demo") == before
    assert [e.result for e in audit_log(site)] == [AuditResult.REFUSED]


def test_a_dry_run_is_neither_refused_nor_kept(controlled, site):
    overrides.scale(replace(site, is_readonly=True), "demo", "short", 4, dry_run=True)
    assert audit_log(site) == ()


def test_a_command_is_one_entry_with_all_that_its_operations_changed(controlled, site):
    with audited(site, "quieten", argv=("quieten", "--token", "abc"), is_command=True):
        overrides.scale(site, "demo", "short", 4)
        overrides.scale(site, "demo", "long", 2)
    (entry,) = audit_log(site)
    assert (entry.action, entry.fleet, len(entry.changes)) == ("quieten", "demo", 2)
    assert entry.argv == ("quieten", "--token", HIDDEN)


def test_a_command_that_changed_nothing_is_not_kept(controlled, site):
    with audited(site, "down", is_command=True):
        pass
    assert audit_log(site) == ()


def test_a_wait_that_fails_after_the_change_was_made_keeps_both(controlled, site):
    def scale_and_wait() -> None:
        with audited(site, "scale", is_command=True):
            overrides.scale(site, "demo", "short", 4)
            raise UnavailableError("still starting")

    with pytest.raises(UnavailableError):
        scale_and_wait()
    (entry,) = audit_log(site)
    assert (entry.result, entry.exit_code) == (AuditResult.FAILED, 9)
    assert entry.changes == ("lane/short: replicas automatic -> 4, by hand",)


def test_a_killed_command_has_left_its_entry(controlled, site):
    with audited(site, "scale", is_command=True):
        overrides.scale(site, "demo", "short", 4)
        assert [e.result for e in audit_log(site)] == [AuditResult.STARTED]
    assert [e.result for e in audit_log(site)] == [AuditResult.OK]


@pytest.mark.parametrize("changes", [(), ("lane/short: replicas automatic -> 4, by hand",)])
def test_an_entry_whose_process_is_gone_says_killed(changes, controlled, site, store):
    gone = subprocess.run(
        [sys.executable, "-c", "from fleetctl.operations.running_processes import this_process as t; print(t())"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    for number, (process, actor) in enumerate([(gone, ALICE), (this_process(), ALICE), (gone, BOB)]):
        entry = AuditRecord(
            at=samples.EPOCH, actor=actor, action="scale", fleet="demo", changes=changes,
            result=AuditResult.STARTED, exit_code=-1, process=process,
        )  # fmt: skip
        store.put_record(StoredRecord.of(Collection.AUDIT, f"k{number}", entry, at=entry.at, fleet="demo"))
    killed, running, elsewhere = audit_log(site)
    assert (killed.result, killed.changes, killed.exit_code) == (AuditResult.KILLED, changes, -1)
    assert (running.result, elsewhere.result) == (AuditResult.STARTED, AuditResult.STARTED)


def test_a_command_that_fails_before_any_operation_has_attempted_nothing_and_is_not_kept(controlled, site):
    for wrong in (ConfigError("'x' is not a number of replicas"), SystemExit(2)):
        with pytest.raises(type(wrong)), audited(site, "scale", is_command=True):
            raise wrong
    assert audit_log(site) == ()
    with pytest.raises(ReadOnlyError), audited(replace(site, is_readonly=True), "scale", is_command=True):
        pass
    assert [e.result for e in audit_log(site)] == [AuditResult.REFUSED]


def test_it_outlives_the_fleet_and_is_read_by_fleet_by_person_and_since(controlled, site, store, clock):
    overrides.scale(site, "demo", "short", 4)
    clock.sleep_blocking(3600)
    overrides.scale(replace(site, actor=Actor(user="bob", host="web1")), "demo", "short", 5)
    store.set_phase("demo", DesiredPhase.DOWN, now=clock.now())
    store.remove_fleet("demo")
    assert len(audit_log(site, fleet="demo")) == 2
    assert audit_log(site, fleet="other") == ()
    assert [e.actor.user for e in audit_log(site, who="bob")] == ["bob"]
    assert len(audit_log(site, since=clock.now() - timedelta(minutes=1))) == 1


def test_going_down_is_kept(controlled, site):
    lifecycle.down(site, "demo")
    assert [(e.action, e.changes) for e in audit_log(site)] == [("down", ("fleet: up -> down",))]


def test_a_frozen_fleets_refusal_says_who_froze_it_and_why(controlled, site):
    freezing.freeze(site, "demo", reason="launch day")
    with pytest.raises(FrozenError, match=r"frozen by alice@web1: launch day"):
        overrides.scale(site, "demo", "short", 4)
    assert [(e.action, e.result, e.exit_code) for e in audit_log(site)] == [
        ("freeze", AuditResult.OK, 0),
        ("scale", AuditResult.REFUSED, 7),
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("--api-key", "abc"), ("--api-key", HIDDEN)),
        (("--api-key=abc",), (f"--api-key={HIDDEN}",)),
        (("--param", "SLACK_TOKEN=abc"), ("--param", f"SLACK_TOKEN={HIDDEN}")),
        (("--param", "SLACK_TOKEN=env:SLACK"), ("--param", "SLACK_TOKEN=env:SLACK")),
        (("https://u:p@host/x",), (f"https://{HIDDEN}@host/x",)),
        (("hf_abcdefghijklmnopqrstuvwxyz",), (HIDDEN,)),
        (("scale", "short=4", "--max-tokens", "5"), ("scale", "short=4", "--max-tokens", "5")),
    ],
)
def test_secrets_on_a_command_line_are_left_out(given, kept):
    assert without_secrets(given) == kept


def test_the_actor_is_found_out():
    actor = current_actor({"SUDO_USER": "alice"})
    assert (actor.sudo_user, actor.uid >= 0, bool(actor.host)) == ("alice", True, True)


def test_a_secret_in_what_was_changed_is_left_out(site):
    with audited(site, "freeze", fleet="demo") as attempt:
        attempt.note("frozen: ghp_0123456789abcdefghijABCDEFGHIJ012345")
    (entry,) = audit_log(site)
    assert entry.changes == (f"frozen: {HIDDEN}",)


@pytest.mark.parametrize(("code", "result"), [(0, AuditResult.OK), (16, AuditResult.WAITING), (17, AuditResult.FAILED)])
def test_an_entry_that_an_older_version_wrote_as_ok_is_read_by_its_exit_code(controlled, site, code, result):
    entry = AuditRecord(
        at=site.clock.now(), actor=ALICE, action="up", fleet="demo", result=AuditResult.OK, exit_code=code
    )
    site.store.put_record(StoredRecord.of(Collection.AUDIT, "old", entry, at=entry.at, fleet="demo"))
    assert [e.result for e in audit_log(site)] == [result]


def test_what_was_done_and_failed_after_it_is_not_ok(controlled, site):
    def change_and_fail() -> None:
        with audited(site, "up", is_command=True):
            overrides.scale(site, "demo", "short", 4)
            raise RolloutFailedError("revision 2 failed")

    with pytest.raises(RolloutFailedError):
        change_and_fail()
    (entry,) = audit_log(site)
    assert (entry.result, entry.exit_code) == (AuditResult.FAILED, 17)
