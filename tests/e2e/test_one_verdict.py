"""One definition of good, kept and missed: every face says the same of lanes whose requests end in every hard way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.scripted_fleet import FLEET, OBJECTIVE, SCRIPTS, SHED, Counts, ScriptedFleet, sample, scripted_fleet
from tests.render.test_prometheus_rules import needs_promtool, promtool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.fleet import Ran

pytestmark = [pytest.mark.e2e, pytest.mark.essential, pytest.mark.timeout(240)]

SENT = {name: 30 for name in SCRIPTS if name != "idle"} | {"few": 3, "uneven": 100}
# What each lane's engine does is in SCRIPTS; how that counts, docs/verdicts.md says.
VERDICTS = {
    "good": "kept",
    "refused": "missed",
    "uneven": "missed",  # though the P99 of all gaps is kept
    "late": "missed",
    "cut": "missed",
    "left": "kept",  # clients that leave in time count nowhere
    "few": "kept",  # as far as three can show
    "empty": "kept",
    "failing": "missed",
    "failing-later": "missed",
    "choiceless": "missed",
    "allowed": "kept",  # as many are refused as may be
    "over-allowed": "missed",
}
COVERED = {"allowed": 6, "over-allowed": 6}  # of 30 a fifth
KINDS = {
    "refused": {"refused"}, "uneven": {"itl"}, "late": {"ttft"}, "cut": {"incomplete"}, "failing": {"error"},
    "failing-later": {"incomplete"}, "choiceless": {"error"}, "over-allowed": {"refused"},
}  # fmt: skip


class Faces(NamedTuple):
    """What each said after one run."""

    exit_code: int
    report: dict[str, Any]
    status: dict[str, Any]
    check: Ran
    top: str
    why: str
    why_json: str
    slo: dict[str, Any]
    page: str
    runbook: Ran
    diagnosis: dict[str, Any]
    backtest: dict[str, Any]


@pytest.fixture(scope="module")
def fleet() -> Iterator[ScriptedFleet]:
    with scripted_fleet() as fleet:
        yield fleet


@pytest.fixture(scope="module")
def faces(fleet: ScriptedFleet) -> Faces:
    trace = fleet.trace(SENT, over_s=6.0, whole=("choiceless",))
    with fleet.recording() as recording:
        with fleet.leaving("left", 5, after_s=0.3):
            code, report = fleet.load(trace, "--check-slo")
        # First what goes by the window of five minutes, which is soon over on a slow machine.
        status, check = fleet.home.query("status", FLEET), fleet.home.run("status", FLEET, "--check")
        top = fleet.home.fleetctl("top", FLEET, "--once")
        why, why_json = (fleet.home.fleetctl("why", "late", "--fleet", FLEET, *form) for form in ((), ("-o", "json")))
        runbook = fleet.home.run("runbook", "run", str(_runbook(fleet)), "--fleet", FLEET, "-q", timeout_s=60)
        diagnosis = fleet.home.query("diagnose", FLEET)
        stored, page = _stored(fleet, sum(SENT.values())), fleet.metrics()
    backtest = json.loads(fleet.home.fleetctl("backtest", str(recording), "-q", "-o", "json", timeout_s=120))
    return Faces(code, report, status, check, top, why, why_json, stored, page, runbook, diagnosis, backtest)


def _runbook(fleet: ScriptedFleet) -> Path:
    """Write a runbook that goes on where each lane's verdict is what it has to be."""
    conditions = " && ".join(
        f"lanes['{lane}'].verdict.compliance == '{verdict}'" for lane, verdict in (VERDICTS | {"idle": "none"}).items()
    )
    steps = [
        {"name": "all", "wait": {"until": conditions}, "timeout": "5s"},
        {"name": "missed", "wait": {"lane": "late", "verdict": "missed"}, "timeout": "5s"},
        {"name": "kept", "wait": {"lane": "allowed", "verdict": "kept"}, "timeout": "5s"},
    ]
    path = fleet.root / "verdicts.yaml"
    path.write_text(json.dumps({"apiVersion": "fleetctl/v1", "kind": "Runbook", "name": "verdicts", "steps": steps}))
    return path


def _stored(fleet: ScriptedFleet, requests: int) -> dict[str, Any]:
    """Return the error budgets once they hold the whole run: they are stored every five seconds, handed over as often."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 20.0
    while True:
        report: dict[str, Any] = fleet.home.query("slo", FLEET)
        gauged = sum(sample(fleet.metrics(), "fleetctl_slo_window_requests").values())
        counted = sum(lane["good"] + lane["bad"] for lane in report["lanes"])
        if (counted >= requests and gauged >= requests) or SYSTEM_CLOCK.monotonic_s() > deadline_s:
            return report
        SYSTEM_CLOCK.sleep_blocking(0.5)


def counts_of(kinds: dict[str, float], good: float) -> Counts:
    found = {kind: int(count) for kind, count in kinds.items() if count}
    return Counts(good=int(good), bad=sum(found.values()), kinds=found)


def by_client(faces: Faces, lane: str) -> Counts:
    """Return what the client of `load` counted."""
    found = next(each for each in faces.report["lanes"] if each["lane"] == lane)
    return counts_of(found["breached"], found["good"])


def by_name(items: list[dict[str, Any]], key: str, lane: str) -> dict[str, Any]:
    return next(each for each in items if each[key] == lane)


@pytest.mark.parametrize("lane", VERDICTS)
def test_client_gateway_and_error_budget_count_the_same(faces: Faces, lane: str) -> None:
    counted = by_client(faces, lane)
    assert counted.good + counted.bad == SENT[lane]
    assert set(counted.kinds) >= KINDS.get(lane, set())
    page = faces.page
    (good,) = sample(page, "fleetctl_gateway_good_total", lane=lane).values()
    breaches = sample(page, "fleetctl_gateway_breaches_total", lane=lane)
    covered = COVERED.get(lane, 0)  # counters are of what became of requests; what of it is good, a window says
    assert counts_of({**breaches, "refused": breaches["refused"] - covered}, good + covered) == counted
    assert list(sample(page, "fleetctl_gateway_shed_allowance_ratio", lane=lane).values()) == [SHED.get(lane, 0.0)]
    gauged = sample(page, "fleetctl_slo_window_requests", lane=lane)
    assert (gauged["good"], gauged["bad"]) == (counted.good, counted.bad)
    budget = by_name(faces.slo["lanes"], "lane", lane)
    assert Counts(good=budget["good"], bad=budget["bad"], kinds=budget["kinds"]) == counted
    assert budget["attainment"] == pytest.approx(counted.attainment)
    burns = sample(page, "fleetctl_slo_burn_rate", lane=lane, window="1h")
    assert list(burns.values()) == [pytest.approx((1 - (counted.attainment or 0.0)) / (1 - OBJECTIVE), abs=1e-6)]


@pytest.mark.parametrize(("lane", "verdict"), VERDICTS.items())
def test_load_and_status_give_the_same_verdict_on_the_same_figures(faces: Faces, lane: str, verdict: str) -> None:
    counted = by_client(faces, lane)
    report = by_name(faces.report["lanes"], "lane", lane)
    status = by_name(faces.status["lanes"], "name", lane)
    for found in (report["verdict"], status["verdict"]):
        assert (found["compliance"], found["good"], found["offered"]) == (
            verdict,
            counted.good,
            counted.good + counted.bad,
        )
        share = found["findings"][0]
        assert (share["target"], share["missed"], share["kinds"]) == (None, counted.bad, counted.kinds)
        assert (share["covered"], share["shed"]) == (COVERED.get(lane, 0), SHED.get(lane, 0.0))
    assert report["attainment"] == pytest.approx(counted.attainment)
    types = {each["type"] for each in status["conditions"]}
    assert ("BREACH" in types) == (verdict == "missed")
    # The promise of each percentile stands beside it, and kept is never said under the objective.
    assert verdict != "kept" or (counted.attainment or 0.0) >= OBJECTIVE


@pytest.mark.parametrize(("lane", "verdict"), VERDICTS.items())
def test_a_diagnosis_and_a_backtest_go_by_the_same_count(faces: Faces, lane: str, verdict: str) -> None:
    counted = by_client(faces, lane)
    (looked_at,) = (line for line in faces.diagnosis["looked_at"] if line.startswith(f"{lane}: "))
    assert f" {counted.good + counted.bad} requests judged" in looked_at
    assert f" {counted.bad} missed;" in looked_at
    explained = {each["lane"] for each in (*faces.diagnosis["causes"], *faces.diagnosis["unexplained"])}
    assert (lane in explained) == (verdict == "missed")
    recorded = by_name([each["recorded"] for each in faces.backtest["fidelity"]], "lane", lane)
    assert (recorded["offered"] - recorded["undecided"], recorded["good"]) == (SENT[lane], counted.good)
    assert recorded["good_share"] == pytest.approx(counted.attainment)


def test_a_runbooks_conditions_see_every_lanes_verdict(faces: Faces) -> None:
    assert faces.runbook.code == 0, faces.runbook.out + faces.runbook.err


@needs_promtool
def test_rules_for_prometheus_burn_as_the_gateway_says(fleet: ScriptedFleet, faces: Faces) -> None:
    fleet.home.fleetctl("render", str(fleet.root / "scripts.yaml"), "-o", str(fleet.root / "rendered"), "-q")
    (rules,) = (fleet.root / "rendered").rglob("*rules*.yaml")
    series, expected = [], []
    for name in (
        "fleetctl_gateway_good_total",
        "fleetctl_gateway_breaches_total",
        "fleetctl_gateway_shed_allowance_ratio",
    ):
        for line in faces.page.splitlines():
            if line.startswith(f"{name}{{"):
                labels, value = line.rsplit(" ", 1)
                values = f"{value}x90" if name.endswith("_ratio") else f"0x29 {value}x59"
                series.append({"series": labels, "values": values})
    for lane in VERDICTS:
        (burn,) = sample(faces.page, "fleetctl_slo_burn_rate", lane=lane, window="1h").values()
        expected.append((lane, burn))
    record = "fleet_lane:fleetctl_burn_rate:ratio_increase1h"
    checks = [
        {
            "expr": f'abs({record}{{lane="{lane}"}} - {burn}) < bool 0.01',
            "eval_time": "60m",
            "exp_samples": [{"labels": f'{{fleet="{FLEET}", lane="{lane}"}}', "value": 1}],
        }
        for lane, burn in expected
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": checks}
    played = fleet.root / "played.yaml"
    played.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": [test]}))
    found = promtool("test", "rules", str(played))
    assert found.returncode == 0, found.stdout + found.stderr


def test_how_bursty_a_lanes_requests_came_stands_in_status_and_why(fleet: ScriptedFleet, faces: Faces) -> None:
    arrivals = by_name(faces.status["lanes"], "name", "good")["arrivals"]
    assert arrivals["planned"] is not None
    assert arrivals["seconds"] <= 300
    if arrivals["seconds"] >= 10:
        assert arrivals["measured"]["over_1s"] is not None
    assert by_name(faces.status["lanes"], "name", "idle")["arrivals"]["measured"] == {"over_1s": None, "over_10s": None}
    code, _ = fleet.load(fleet.trace({"good": 48}, over_s=12.0))
    assert code == 0
    assert "Arrivals index of dispersion" in fleet.home.fleetctl("why", "good", "--fleet", FLEET)


def test_gaps_that_keep_their_p99_do_not_make_their_answers_good(faces: Faces) -> None:
    report = by_name(faces.report["lanes"], "lane", "uneven")
    share, *targets = report["verdict"]["findings"]
    itl = next(each for each in targets if each["target"]["metric"] == "itl")
    assert (itl["compliance"], share["compliance"]) == ("kept", "missed")
    assert itl["measured"] < 0.5 < report["itl"]["max_s"]


def test_three_requests_keep_a_promise_and_prove_nothing(faces: Faces) -> None:
    for verdict in (
        by_name(faces.report["lanes"], "lane", "few")["verdict"],
        by_name(faces.status["lanes"], "name", "few")["verdict"],
    ):
        assert verdict["findings"][0]["is_sure"] is False


def test_a_lane_without_requests_is_neither_kept_nor_missed(faces: Faces) -> None:
    verdict = by_name(faces.status["lanes"], "name", "idle")["verdict"]
    assert (verdict["compliance"], verdict["offered"]) == ("none", 0)
    assert by_name(faces.slo["lanes"], "lane", "idle")["attainment"] is None
    assert "idle" not in {each["lane"] for each in faces.report["lanes"]}


def test_faces_for_people_say_the_same_words(fleet: ScriptedFleet, faces: Faces) -> None:
    assert "BREACH" in faces.top.splitlines()[0]
    table = fleet.home.fleetctl("slo", FLEET)
    for lane in VERDICTS:
        row = next(line for line in table.splitlines() if line.startswith(f"{lane} "))
        attained = 100 * (by_client(faces, lane).attainment or 0.0)
        assert f"{attained:.3f}".rstrip("0").rstrip(".") + "%" in row
    assert "BREACH" in faces.why
    assert json.loads(faces.why_json)


def test_exit_codes_are_the_verdicts(fleet: ScriptedFleet, faces: Faces) -> None:
    assert faces.exit_code == 5
    assert faces.report["compliance"] == "missed"
    assert faces.report["kept"] is False
    assert faces.check.code == 5
    code, report = fleet.load(fleet.trace({"good": 10, "empty": 10}, over_s=0.5), "--check-slo")
    assert (code, report["compliance"], report["kept"]) == (0, "kept", True)
    code, report = fleet.load(fleet.trace({"good": 10, "allowed": 20}, over_s=0.5), "--check-slo")
    assert (code, report["compliance"], report["kept"]) == (0, "kept", True), "a fifth is refused, and may be"
    assert sum(lane["refused"] for lane in report["lanes"]) == 4
    code, report = fleet.load(fleet.trace({"good": 10, "over-allowed": 10}, over_s=0.5), "--check-slo")
    assert (code, report["compliance"]) == (5, "missed")
    code, report = fleet.load(fleet.trace({"late": 3}, over_s=0.1), "--check-slo")
    assert (code, report["compliance"]) == (5, "missed"), "three late requests of three"
    code, report = fleet.load(fleet.trace({"choiceless": 3}, over_s=0.1, whole=("choiceless",)), "--check-slo")
    assert code == 5, "an answer without any choice is none"
