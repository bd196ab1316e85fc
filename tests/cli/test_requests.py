"""`requests`, `why ID` and `diagnose` as they are typed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import yaml

from fleetctl.cli.main import main
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.replica import ReplicaState
from fleetctl.model.request_trace import EarlyRefusal
from fleetctl.testing import samples
from tests.cli.conftest import Ran
from tests.cli.test_json_reference import differences
from tests.diagnosis.test_request import LATE
from tests.sites import FakeSite

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD = replace(LATE, seq=2, id="mine:2/e", verdict="good", ttft_s=0.2)


@pytest.fixture
def fakes() -> FakeSite:
    """A fleet whose controller answers, and whose gateway remembers two requests."""
    found = FakeSite()
    found.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    replica = samples.replica("r1", lane="short", state=ReplicaState.READY)
    found.store.begin_replica(replica, samples.node_request("token", replica_id="r1"), now=samples.EPOCH)
    found.start_controller("demo")
    found.host.gateways.add("demo")
    found.host.requests = (LATE, GOOD)
    return found


@pytest.fixture
def typed(fakes: FakeSite, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*argv: str) -> Ran:
        code = main(argv, site=fakes.site)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


def forget(fakes: FakeSite) -> None:
    fakes.store.set_phase("demo", DesiredPhase.DOWN, now=samples.EPOCH)
    for record in fakes.store.replicas("demo"):
        fakes.store.put_replica(replace(record, state=ReplicaState.GONE))
    fakes.store.remove_fleet("demo")


def test_a_request_that_never_had_a_lane_is_explained_by_its_refusal(
    fakes: FakeSite, typed: Callable[..., Ran]
) -> None:
    early = EarlyRefusal(
        id="mine-7", at=samples.EPOCH, status=400, reason="no-lane", message="no lane takes this request (no-lane)"
    )
    fakes.host.early_refusals = (early, replace(early, id="short", status=404, reason="", message="no such route: /v2"))
    for argv in (("why", "mine-7"), ("why", "request/mine-7")):
        shown = typed(*argv)
        assert shown.code == 0
        headline, rest = shown.out.splitlines()
        assert headline == (
            "mine-7: refused before a lane was chosen, with HTTP 400 (no-lane): no lane takes this request (no-lane)"
        )
        assert rest.endswith("it never had a lane, nor a replica")
    assert "with HTTP 404: no such route: /v2" in typed("why", "request/short").out
    assert "a request has the id 'short' too: fleetctl why request/short" in typed("why", "short").err
    (found,) = json.loads(typed("why", "mine-7", "-o", "json").out)
    assert (found["trace"], found["early"]["status"], found["early"]["reason"]) == (None, 400, "no-lane")
    assert differences(found, "RequestExplanation", "why REQUEST-ID") == []


def test_requests_are_a_line_each(typed: Callable[..., Ran]) -> None:
    titles, late, good = typed("requests").out.splitlines()
    assert titles.split()[:5] == ["TIME", "ID", "LANE", "REPLICA", "VERDICT"]
    assert late.split()[1:5] == ["req-1", "short", "short-2", "ttft"]
    assert good.split()[1:5] == ["mine:2/e", "short", "short-2", "good"]
    assert "9,000" in typed("requests", "-o", "wide").out
    assert typed("requests", "-o", "name").out == "req-1\nmine:2/e\n"


def test_programs_read_the_same_requests(typed: Callable[..., Ran]) -> None:
    as_json = json.loads(typed("requests", "demo", "-o", "json").out)
    assert [each["id"] for each in as_json] == ["req-1", "mine:2/e"]
    assert as_json[0]["attempts"][0]["prompt_tokens_ahead"] == 9000
    as_yaml = yaml.safe_load(typed("requests", "demo", "-o", "yaml").out)
    assert [each["id"] for each in as_yaml] == ["req-1", "mine:2/e"]


def test_requests_come_in_the_order_of_their_time_though_an_earlier_one_ended_later(
    typed: Callable[..., Ran], fakes: FakeSite
) -> None:
    fakes.host.requests = (replace(GOOD, at=LATE.at + timedelta(seconds=1)), replace(LATE, seq=3))
    assert typed("requests", "-o", "name").out == "req-1\nmine:2/e\n"
    assert [each["id"] for each in json.loads(typed("requests", "-o", "json").out)] == ["req-1", "mine:2/e"]
    assert typed("requests").out.splitlines()[1].split()[1] == "req-1"


def test_nothing_remembered_is_said_and_is_an_empty_list(typed: Callable[..., Ran], fakes: FakeSite) -> None:
    fakes.host.requests = ()
    assert typed("requests").out == "no request is remembered\n"
    assert json.loads(typed("requests", "-o", "json").out) == []
    assert typed("requests", "-o", "name").out == ""
    unknown = typed("requests", "--lane", "shrot")
    assert unknown.code == 8
    assert "short" in unknown.err


@pytest.mark.parametrize("command", ["requests", "diagnose"])
def test_a_fleet_that_is_gone_is_not_found(command: str, typed: Callable[..., Ran], fakes: FakeSite) -> None:
    forget(fakes)
    ran = typed(command, "demo")
    assert (ran.code, ran.out) == (8, "")
    assert "error:" in ran.err


def test_without_a_gateway_requests_are_unavailable_and_a_diagnosis_is_made(
    typed: Callable[..., Ran], fakes: FakeSite
) -> None:
    fakes.host.gateways.clear()
    assert typed("requests").code == 9
    assert typed("diagnose").code == 0


def test_a_request_is_explained_by_its_id(typed: Callable[..., Ran]) -> None:
    ran = typed("why", "req-1")
    assert ran.out.startswith("req-1: late: its first token came after 1.4s of 300ms promised")
    assert json.loads(typed("why", "mine:2/e", "-o", "json").out)[0]["trace"]["id"] == "mine:2/e"


def test_an_unknown_id_is_not_found(typed: Callable[..., Ran]) -> None:
    plain, full = typed("why", "req-9"), typed("why", "request/req-9")
    assert (plain.code, full.code) == (8, 8)
    assert "remembers no request 'req-9'" in plain.err
    assert "remembers no request 'req-9'" in full.err
    assert "fleetctl requests demo" in full.err


@pytest.mark.parametrize("name", ["short", "r1"])
def test_a_request_called_as_a_lane_or_a_replica_is_asked_for_by_its_kind(
    name: str, typed: Callable[..., Ran], fakes: FakeSite
) -> None:
    fakes.host.requests = (replace(LATE, id=name),)
    plain = typed("why", name)
    assert plain.code == 0
    assert "late: its first token" not in plain.out
    assert f"a request has the id '{name}' too: fleetctl why request/{name}" in plain.err
    assert typed("why", f"request/{name}").out.startswith(f"{name}: late: its first token")
    kind = "lane" if name == "short" else "replica"
    of_kind = typed("why", f"{kind}/{name}")
    assert (of_kind.out, of_kind.err) == (plain.out, "")


def test_a_diagnosis_is_printed_for_people_and_programs(typed: Callable[..., Ran], fakes: FakeSite) -> None:
    fakes.host.controllers["demo"] = lambda: replace(
        fakes.ready_status("demo"), gateway_alive=False, controller_alive=True
    )
    shown = typed("diagnose")
    assert shown.out.startswith("1. gateway-down: ")
    assert "   Do: " in shown.out
    assert "Looked at" in shown.out
    assert json.loads(typed("diagnose", "-o", "json").out)["causes"][0]["cause"] == "gateway-down"
    assert typed("diagnose", "-o", "name").out.splitlines()[0] == "gateway-down"


def test_a_fleet_that_is_well_is_told_so(typed: Callable[..., Ran], fakes: FakeSite) -> None:
    fakes.host.requests = ()
    fakes.host.controllers["demo"] = lambda: replace(fakes.ready_status("demo"), gateway_alive=True)
    shown = typed("diagnose")
    assert shown.out.startswith("demo: nothing is wrong\n")
    assert json.loads(typed("diagnose", "-o", "json").out)["causes"] == []
    assert typed("diagnose", "-o", "name").out == ""


def test_an_unknown_lane_is_not_diagnosed(typed: Callable[..., Ran]) -> None:
    ran = typed("diagnose", "demo", "shrot")
    assert ran.code == 8
    assert "short" in ran.err
