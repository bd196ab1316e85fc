from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.journal import JournalEntry
from fleetctl.model.subject import FLEET
from fleetctl.paths import state_dir
from fleetctl.testing import samples

READS = (("ls",), ("status",), ("lanes",), ("events",), ("why",), ("why", "short"), ("why", "r11"))


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_json_and_yaml_say_the_same(command, dead_fleet, fleetctl):
    as_json = fleetctl(*command, "-o", "json")
    as_yaml = fleetctl(*command, "-o", "yaml")
    assert (as_json.code, as_yaml.code) == (0, 0)
    first, second = json.loads(as_json.out), yaml.safe_load(as_yaml.out)
    for document in (first, second):  # the one thing that differs between two calls
        for part in document if isinstance(document, list) else [document]:
            part.pop("at", None)
    assert json.dumps(first, default=str) == json.dumps(second, default=str)


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_piped_output_is_plain(command, dead_fleet, fleetctl):
    for output in ("table", "wide", "name"):
        ran = fleetctl(*command, "-o", output)
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err
        assert all(line == line.rstrip() for line in ran.out.splitlines())


def test_names_are_one_a_line(dead_fleet, fleetctl):
    assert fleetctl("ls", "-o", "name").out == "demo\n"
    assert fleetctl("lanes", "-o", "name").out == "short\nlong\n"
    assert fleetctl("status", "-o", "name").out.split() == [
        "fleet/demo", "lane/short", "lane/long", "replica/r1", "replica/r11",
    ]  # fmt: skip


def test_a_fleet_without_a_controller_is_stale_never_healthy(dead_fleet, fleetctl):
    ran = fleetctl("status")
    assert (
        "Status   STALE  no controller runs; the gateway is starting one; shown is what it last wrote down" in ran.out
    )
    assert "Control  not running" in ran.out
    shown = json.loads(fleetctl("status", "-o", "json").out)
    assert shown["condition"]["type"] == "STALE"
    assert shown["controller_alive"] is False
    assert {lane["validity"] for lane in shown["lanes"]} == {"stale"}
    assert [(lane["name"], lane["wanted"], lane["ready"]) for lane in shown["lanes"]] == [
        ("short", 2, 1),
        ("long", 2, 0),
    ]


def test_why_tells_decisions_with_the_figures_they_stood_on(dead_fleet, fleetctl):
    ran = fleetctl("why", "short")
    assert "because 1 of 2 wanted" in ran.out
    assert "given pressure 0.9312, ready 1" in ran.out
    assert "Planned  2 x L40S (TP 1), bound by itl" in ran.out
    assert "create failed" in fleetctl("why", "r11").out


@pytest.mark.parametrize("subject", ["gateway/nonsense", "fleet/xx", "node/i-0"])
def test_why_of_what_is_not_there_is_an_error(dead_fleet, fleetctl, subject):
    ran = fleetctl("why", subject)
    assert (ran.code, ran.out) == (8, "")
    assert "known: short, long" in ran.err


def test_why_of_nobody_names_who_there_is(dead_fleet, fleetctl):
    ran = fleetctl("why", "shrot")
    assert ran.code == 8
    assert "no lane or replica 'shrot'" in ran.err
    assert "hint: known: short, long, r1, r11" in ran.err


def test_without_a_fleet_reads_say_how_to_begin(fleetctl):
    assert fleetctl("ls").out == f"no fleets in {state_dir()}; bring one up: fleetctl up quickstart\n"
    ran = fleetctl("status")
    assert (ran.code, ran.out) == (8, "")
    assert ran.err == f"error: there is no fleet in {state_dir()}\nhint: bring one up: fleetctl up quickstart\n"


def test_among_several_fleets_one_must_be_named(dead_fleet, store, fleetctl, monkeypatch):
    store.put_fleet(samples.profile("other"), samples.plan("other"), now=samples.EPOCH)
    ran = fleetctl("status")
    assert ran.code == 3
    assert "demo, other" in ran.err
    monkeypatch.setenv("FLEETCTL_FLEET", "other")
    assert json.loads(fleetctl("status", "-o", "json").out)["fleet"] == "other"
    assert json.loads(fleetctl("status", "demo", "-o", "json").out)["fleet"] == "demo"


def test_a_fleet_going_down_is_said_to_be(dead_fleet, store, fleetctl):
    store.set_phase("demo", DesiredPhase.DOWN, now=samples.EPOCH)
    assert "STOPPING  2 replicas still hold a node" in fleetctl("status").out


def test_events_keep_to_a_subject_and_a_limit(dead_fleet, fleetctl):
    assert len(json.loads(fleetctl("events", "-o", "json").out)) == 2
    assert [e["action"] for e in json.loads(fleetctl("events", "-n", "1", "-o", "json").out)] == ["create"]
    assert [e["action"] for e in json.loads(fleetctl("events", "-s", "short", "-o", "json").out)] == ["launch"]


def test_a_fleet_that_is_gone_keeps_its_journal(store, fleetctl):
    store.append(
        (
            JournalEntry(
                seq=0, at=samples.EPOCH, fleet="past", kind=EntryKind.OPERATOR, subject=FLEET, action="down", reason="r"
            ),
        )
    )
    assert [event["action"] for event in json.loads(fleetctl("events", "past", "-o", "json").out)] == ["down"]
    assert fleetctl("events", "future").code == 8


def test_a_replica_is_shown_with_its_machine_zone_gpus_and_members(dead_fleet, store, fleetctl):
    record = next(r for r in store.replicas("demo") if r.id == "r1")
    store.put_replica(
        replace(record, node_id="i-1", machine_id="m-1", gpu_indices=(0, 1), members=("m-2",), node_count=2)
    )
    assert "Node     i-1 on machine m-1, zone zone-a, GPUs 0, 1, with members m-2\n" in fleetctl("why", "r1").out
    shown = json.loads(fleetctl("status", "-o", "json").out)
    found = next(r["record"] for r in shown["replicas"] if r["record"]["id"] == "r1")
    assert {key: found[key] for key in ("machine_id", "zone", "gpu_indices", "members", "node_count")} == {
        "machine_id": "m-1", "zone": "zone-a", "gpu_indices": [0, 1], "members": ["m-2"], "node_count": 2,
    }  # fmt: skip


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_read_says_that_no_controller_runs_and_what_to_type(command, dead_fleet, fleetctl):
    ran = fleetctl(*command)
    assert "no controller runs" in ran.out + ran.err


def test_a_fleet_looked_for_in_another_home_names_where(dead_fleet, fleetctl, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    place = tmp_path / "other" / "fleetctl"
    assert f"no fleet named 'demo' in {place}" in fleetctl("status", "demo").err
    assert f"there is no fleet demo in {place}; nothing to do" in fleetctl("down", "demo", "-y").err


def test_the_slo_report_is_printed_as_a_page(dead_fleet, fleetctl):
    page = fleetctl("slo", "-o", "html")
    assert page.code == 0
    assert page.out.startswith("<!doctype html>")
    assert page.out.rstrip().endswith("</html>")
    assert fleetctl("slo", "-o", "markdown").out.startswith("# SLO of demo")
