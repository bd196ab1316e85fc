"""`backtest` replays what was recorded, says how far to believe it, and what would have been under other profiles."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from fleetctl.cli.main import main
from fleetctl.config.profile import parse_profile
from fleetctl.core.reconcile import reconcile
from fleetctl.load.trace import Arrival
from fleetctl.model.action import EntryKind
from fleetctl.model.catalogue import Market
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.journal import JournalEntry
from fleetctl.model.node import NoticeKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.recording import (
    GapKind,
    RecordedRequest,
    RecordingEnd,
    RecordingGap,
    RecordingHeader,
    RecordingRow,
)
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.operations.fidelity import fidelity
from fleetctl.operations.recorded_lanes import recorded_lanes
from fleetctl.operations.replayed import replay_spec, replayed
from fleetctl.recordings.period import RecordedPeriod, read_period
from fleetctl.recordings.reader import read_recording
from fleetctl.recordings.writer import RecordingWriter
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import Disturbance, DisturbanceKind
from fleetctl.sim.world import EPOCH
from fleetctl.testing import samples
from tests.cli.test_json_reference import differences
from tests.recordings.simulated import record_simulated
from tests.recordings.traces import desired
from tests.sim.fleets import desired_for, offerings, three_lanes
from tests.sim.test_world import poisson
from tests.sites import plugins_site

SECONDS = 120.0
ONE_LANE = """
apiVersion: fleetctl/v1
name: one
model: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: vllm
provider: local
workload: {peak_rps: 4, prompt_tokens: {p50: 400, p99: 900}, output_tokens: {p50: 120, p99: 400}}
lanes:
  all: {slo: {ttft: {p99: 5s}, itl: {p99: 200ms}}, max_wait: 5s, replicas: {min: 1, max: 3}, spot: none, launch: {max_model_len: 2048}}
"""
SETTLED = {"short": 2, "long": 3, "batch": 1}


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """Two minutes of a fleet that is near its limit."""
    path = tmp_path_factory.mktemp("night") / "night.jsonl.gz"
    record_simulated(desired_for(three_lanes()), poisson(8, SECONDS), path, settled=SETTLED)
    return path


@pytest.fixture
def fleetctl(capsys):
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv), site=plugins_site())
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.slow
def test_a_recording_of_a_simulated_fleet_replays_to_itself(night, fleetctl):
    code, out, _ = fleetctl("backtest", str(night), "-o", "json", "-q")
    assert code == 0
    report = json.loads(out)
    assert differences(report, "BacktestReport", "backtest") == []
    recorded, again = report["runs"]
    assert (recorded["name"], again["name"]) == ("recorded", "replayed")
    for was, computed in zip(recorded["lanes"], again["lanes"], strict=True):
        assert (was["offered"], was["good"], was["refused"]) == (
            computed["offered"],
            computed["good"],
            computed["refused"],
        )
        for figure in ("ttft_p99_s", "tpot_p50_s", "tpot_p99_s"):
            assert (was[figure] is None) == (computed[figure] is None), figure
            assert was[figure] is None or was[figure] == pytest.approx(computed[figure], rel=0.021), figure
    streamed = [lane["tpot_p99_s"] for lane in recorded["lanes"] if lane["lane"] in ("short", "long")]
    assert all(0.001 < tpot_s < 1.0 for tpot_s in streamed)
    assert {lane["lane"]: lane["is_near"] for lane in report["fidelity"]} == {
        "short": True,
        "long": True,
        "batch": None,
    }


@pytest.mark.slow
def test_truth_comes_first_then_every_profile_and_policy(night, fleetctl, tmp_path):
    code, out, _ = fleetctl("backtest", str(night), "--policy", "built-in", "--policy", "static", "-q")
    assert code == 0
    assert out.index("How true the simulation is") < out.index("The period under each profile") < out.index("In all")
    for name in ("recorded", "replayed", "replayed/static"):
        assert out.count(f"\n{name} ") >= 4
    code, page, _ = fleetctl("backtest", str(night), "-o", "html", "-q")
    assert page.count("<svg") >= 6
    for outside in ("http://", "https://", "<script", "@import", "src="):
        assert outside not in page


@pytest.mark.slow
def test_a_part_of_it_is_replayed(night, fleetctl):
    _, out, err = fleetctl("backtest", str(night), "--offset", "30s", "--duration", "60s", "-o", "json", "-q")
    report = json.loads(out)
    assert report["duration_s"] == 60.0
    assert 300 < report["requests"] < 650
    assert "came before the period" in err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--offset", "9h"), 3, "holds 2m19s, and nothing from 9h on"),
        (("--duration", "0s"), 3, "--duration is more than 0s"),
        (("--seeds", "0"), 3, "--seeds is from 1"),
        (("--policy", "bilt-in"), 8, "did you mean 'built-in'"),
        (("--profile", "/nonexistent.yaml"), 8, "/nonexistent.yaml"),
    ],
)
def test_bad_input_is_named(night, fleetctl, options, code, message):
    got, out, err = fleetctl("backtest", str(night), "-q", *options)
    assert (got, out) == (code, "")
    assert message in err


def period(**changes: Any) -> RecordedPeriod:
    began = desired()
    usual: dict[str, Any] = {
        "header": RecordingHeader(fleet="demo", began_at=samples.EPOCH, written_by="0", desired=began),
        "since": samples.EPOCH,
        "until": samples.EPOCH + timedelta(seconds=100),
        "desired": began,
    }
    return RecordedPeriod(**(usual | changes))


def at(seconds: float) -> datetime:
    return samples.EPOCH + timedelta(seconds=seconds)


def request(seconds: float = 1.0, **given: Any) -> RecordedRequest:
    usual: dict[str, Any] = {
        "at": at(seconds), "lane": "short", "client": "c", "prompt_tokens": 100, "output_tokens": 20, "total_s": 1.0,
        "ending": "complete", "verdict": "good",
    }  # fmt: skip
    return RecordedRequest(**(usual | given))


def test_nodes_that_were_taken_are_taken_again_and_boots_last_as_they_did():
    taken = InterruptionRecord(
        at=at(40), fleet="demo", replica_id="r2", lane="short", node_id="n", offering="o", zone="a", instance_type="t",
        market=Market.SPOT, notice=NoticeKind.INTERRUPTION, warning_s=25.0,
    )  # fmt: skip
    silent = replace(taken, replica_id="r3", at=at(60), notice=None, warning_s=None)
    booted = samples.replica("r4", state=ReplicaState.READY, created_at=at(10), changed_at=at(95), ready_at=at(95))
    died = samples.replica("r5", state=ReplicaState.FAILED, created_at=at(-50), changed_at=at(70), ready_at=at(-20))
    found = replayed(
        period(
            requests=[request()],
            interruptions={"r2": taken, "r3": silent},
            replicas={"r4": [booted], "r5": [replace(died, state=ReplicaState.READY, changed_at=at(-20)), died]},
        )
    )
    assert found.boots_s == {"short": (85.0,)}
    assert found.begun_with["short"] == 1
    assert found.disturbances == (
        Disturbance(kind=DisturbanceKind.NOTICE, at_s=40.0, lane="short", factor=25.0, spot_only=True),
        Disturbance(kind=DisturbanceKind.TAKE, at_s=60.0, lane="short", spot_only=True),
        Disturbance(kind=DisturbanceKind.KILL, at_s=70.0, lane="short"),
    )
    spec = replay_spec(desired().profile, found, settled={}, duration_s=100.0, seed=3)
    assert spec.boots_s == {"short": (85.0 - spec.warm_s,)}


def test_answers_without_a_length_get_another_ones_and_are_counted():
    requests = [
        request(1, output_tokens=70),
        request(2, output_tokens=0, ending="refused", verdict="refused", refusal="queue-full"),
        request(3, output_tokens=90, ending="incomplete", verdict="incomplete"),
        request(4, output_tokens=8, degraded="max_tokens=8"),
        request(5, output_tokens=0, ending="refused", verdict="refused", output_tokens_max=10),
    ]
    found = replayed(period(requests=requests))
    assert [each.output_tokens for each in found.arrivals] == [70, 70, 90, 70, 10]
    assert found.lengths_drawn == 4
    assert replayed(period(requests=requests)) == found


def test_named_lanes_are_named_again_and_what_was_cached_is_no_work():
    (arrival,) = replayed(period(requests=[request(is_lane_named=True, cached_tokens=60)])).arrivals
    assert (arrival.lane, arrival.prompt_tokens) == ("short", 40)


TIERED = """
apiVersion: fleetctl/v1
name: tiered
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: vllm
provider: local
workload: {peak_rps: 3, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}}
tiers: {gold: {weight: 6}, silver: {weight: 3}, tin: {weight: 1}}
lanes: {all: {tier: silver, slo: {ttft: {p99: 2s}}, max_wait: 2s, replicas: 1, spot: none}}
capacity: {gpus: [L40S], max_nodes: 1}
gateway: {tier_header: true, api_keys: [{key: env:ACME, name: acme, tier: gold}, {key: env:BETA, tier: tin}]}
"""


def test_requests_have_the_tier_they_had_and_named_keys_that_of_the_profile_they_are_replayed_under():
    recorded = desired_for(parse_profile(TIERED, source="tiered"))
    had = [("acme", "gold"), ("acme", "gold"), ("acme", "silver"), ("0a1b", "silver"), ("0a1b", "tin")]
    requests = [request(number + 1, lane="all", client=client, tier=tier) for number, (client, tier) in enumerate(had)]
    replay = replayed(period(desired=recorded, requests=requests))
    assert [each.tier for each in replay.arrivals] == ["", "", "silver", "", "tin"]

    other = desired_for(parse_profile(TIERED.replace("acme, tier: gold", "acme, tier: tin"), source="other"))
    fewer = desired_for(
        parse_profile(TIERED.replace("silver: {weight: 3}, ", "").replace("tier: silver", "tier: tin"), source="fewer")
    )
    for wanted, offered in (
        (recorded, {"gold": 2, "silver": 2, "tin": 1}),
        (other, {"silver": 1, "tin": 4}),
        (fewer, {"gold": 3, "tin": 2}),
    ):
        arrivals, _ = replay.arrivals_of(wanted.profile)
        spec = replay_spec(wanted.profile, replay, settled={"all": 1}, duration_s=60.0, seed=0)
        found = simulate(wanted, arrivals, policy=reconcile, spec=spec, offerings=offerings())
        assert {each.name: each.offered for each in found.tiers} == offered


def test_tiers_that_a_profile_has_not_are_said(tmp_path, fleetctl):
    path, fewer = tmp_path / "tiers.jsonl.gz", tmp_path / "fewer.yaml"
    fewer.write_text(
        TIERED.replace("tin: {weight: 1}", "bronze: {weight: 1}").replace("BETA, tier: tin", "BETA, tier: bronze")
    )
    clients = (("acme", ""), ("acme", "tin"), ("", "tin"))
    rows = [
        Arrival(at_s=float(number), prompt_tokens=100, output_tokens=20, stream=True, client=client, tier=tier)
        for number, (client, tier) in enumerate(clients * 4)
    ]
    record_simulated(desired_for(parse_profile(TIERED, source="tiered")), rows, path, settled={"all": 1})
    code, _, err = fleetctl("backtest", str(path), "--profile", str(fewer), "-o", "json", "-q")
    assert code == 0, err
    assert "fewer: 8 requests had a tier that it has not (tin): here they have their key's, or their lane's" in err


def test_recorded_figures_count_replicas_by_the_time_they_were_held():
    records = [
        samples.replica("r1", state=ReplicaState.READY, created_at=at(-9), changed_at=at(-5), price_usd_per_hour=36.0),
        samples.replica(
            "r1", state=ReplicaState.DRAINING, created_at=at(-9), changed_at=at(40), price_usd_per_hour=36.0
        ),
        samples.replica("r1", state=ReplicaState.GONE, created_at=at(-9), changed_at=at(50), price_usd_per_hour=36.0),
    ]
    requests = [request(1), request(2, verdict="ttft"), request(3, verdict="cancelled", ending="cancelled")]
    lane = recorded_lanes(period(requests=requests, replicas={"r1": records}))[0]
    assert (lane.ready_mean, lane.replicas_mean, lane.cost_usd) == pytest.approx((0.4, 0.5, 0.5))
    assert (lane.offered, lane.good, lane.undecided, lane.good_share) == (3, 1, 1, 0.5)
    assert lane.over_slo_s == 10.0


def test_the_time_per_output_token_is_of_whole_streamed_answers_each_counting_once():
    requests = [request(n / 10, gap_s_mean=0.02 if n < 90 else 0.2, gaps=5 if n < 90 else 5000) for n in range(100)]
    cut = [request(20, gap_s_mean=9.0, ending="incomplete", verdict="incomplete"), request(21), request(22)]
    lane, other, *_ = recorded_lanes(period(requests=[*requests, *cut]))
    assert (lane.tpot_p50_s, lane.tpot_p99_s) == pytest.approx((0.02, 0.2), rel=0.011)
    assert (other.tpot_p50_s, other.tpot_p99_s) == (None, None)


@pytest.mark.parametrize(("computed_s", "apart"), [(0.0205, ()), (0.06, ("TPOT P50 20ms against 60ms",)), (None, ())])
def test_a_time_per_output_token_that_is_off_is_named(computed_s, apart):
    (lane, *_) = recorded_lanes(period(requests=[request(n / 10, gap_s_mean=0.02) for n in range(200)]))
    lane = replace(lane, tpot_p50_s=0.02)
    (found,) = fidelity((lane,), (replace(lane, tpot_p50_s=computed_s),))
    assert found.apart == apart


def test_a_simulation_that_is_off_says_by_what():
    (lane, *_) = recorded_lanes(period(requests=[request(n / 10) for n in range(200)]))
    near = replace(lane, ttft_p99_s=None)
    assert fidelity((lane,), (near,))[0].is_near is True
    (far,) = fidelity((lane,), (replace(lane, good_share=0.9, replicas_mean=3.0),))
    assert (far.is_near, len(far.apart)) == (False, 2)
    (few,) = fidelity((replace(lane, offered=20),), (replace(lane, offered=20),))
    assert few.is_near is None


@pytest.mark.parametrize("offered", [199, 20])
def test_a_lane_that_did_not_get_the_same_requests_is_apart_however_few_they_are(offered):
    (lane, *_) = recorded_lanes(period(requests=[request(n / 10) for n in range(200)]))
    (found,) = fidelity((lane,), (replace(lane, offered=offered),))
    assert (found.is_near, found.apart) == (False, (f"200 offered against {offered}",))


@pytest.fixture
def cached_night(tmp_path):
    """Prompts too long for `short`, most of which the replicas of `long` had cached; those of `short` had nothing of them."""
    path = tmp_path / "cached.jsonl.gz"
    header = RecordingHeader(fleet="demo", began_at=EPOCH, written_by="0", desired=desired_for(three_lanes()))
    replicas = [
        samples.replica(f"r{lane}", fleet="demo", lane=lane, state=ReplicaState.READY, changed_at=EPOCH)
        for lane in SETTLED
    ]
    sent = [
        request(lane="long", replica="rlong", prompt_tokens=4000, cached_tokens=3900, at=EPOCH + timedelta(seconds=n))
        for n in range(30)
    ]
    with RecordingWriter(path) as writer:
        writer.write([RecordingRow(header=header), *(RecordingRow(replica=each) for each in replicas)])
        writer.write(RecordingRow(request=each) for each in sent)
        writer.write([RecordingRow(end=RecordingEnd(at=EPOCH + timedelta(seconds=40), requests_open=0))])
    return path


def test_what_one_lane_had_cached_is_replayed_in_that_lane(cached_night, fleetctl):
    """Under its own rules by what was recorded, under others by what each lane has cached, as its gateway matched it."""
    code, out, err = fleetctl("backtest", str(cached_night), "-o", "json", "-q")
    assert code == 0, err
    for run in json.loads(out)["runs"]:
        assert {lane["lane"]: lane["offered"] for lane in run["lanes"]} == {"short": 0, "long": 30, "batch": 0}, run
    replay, wanted = replayed(read_period(cached_night)), desired_for(three_lanes())
    short, *rest = wanted.profile.lanes
    for limit, lane in ((3000, "long"), (5000, "short")):
        moved = replace(short, match=replace(short.match, uncached_prompt_tokens_max=limit))
        other = replace(wanted, profile=replace(wanted.profile, lanes=(moved, *rest)))
        arrivals, _ = replay.arrivals_of(other.profile)
        spec = replay_spec(other.profile, replay, settled=SETTLED, duration_s=40.0, seed=0)
        found = simulate(other, arrivals, policy=reconcile, spec=spec, offerings=offerings())
        assert {each.lane: each.offered for each in found.lanes if each.offered} == {lane: 30}


def test_lanes_that_a_profile_has_not_are_chosen_by_its_own_rules():
    named = [request(1, is_lane_named=True), request(2, lane="long", is_lane_named=True), request(3)]
    found = replayed(period(requests=named))
    recorded = found.arrivals_of(desired().profile)
    assert (tuple(recorded[0]), recorded[1]) == (found.arrivals, ())
    only = replace(samples.profile(), lanes=(replace(samples.profile().lanes[0], name="all"),))
    offered, unknown = found.arrivals_of(only)
    assert [each.lane for each in offered] == ["", "", ""]
    assert set(unknown) == {"short", "long"}


@pytest.fixture
def named_night(night, tmp_path):
    """The same requests, each of which named its lane, and some of them too long for a small one."""
    path = tmp_path / "named.jsonl.gz"
    with RecordingWriter(path) as writer:
        for row in read_recording(night):
            if row.request is None:
                writer.write([row])
            elif (row.request.at - EPOCH).total_seconds() < 20.0:
                writer.write([RecordingRow(request=msgspec.structs.replace(row.request, is_lane_named=True))])
    return path


def test_no_request_goes_missing_under_a_profile_with_other_lanes(named_night, tmp_path, fleetctl):
    one = tmp_path / "one.yaml"
    one.write_text(ONE_LANE)
    code, out, err = fleetctl(
        "backtest",
        str(named_night),
        "--duration",
        "20s",
        "--profile",
        str(one),
        "--policy",
        "static",
        "-o",
        "json",
        "-q",
    )
    assert code == 0, err
    runs = {run["name"]: run for run in json.loads(out)["runs"]}
    assert runs.keys() == {"recorded", "replayed", "replayed/static", "one", "one/static"}
    lost = sum(runs["one"]["unrouted"].values())
    assert sum(lane["offered"] for lane in runs["one"]["lanes"]) + lost == sum(
        lane["offered"] for lane in runs["recorded"]["lanes"]
    )
    assert runs["one"]["unrouted"].keys() == {"context-length"}
    assert "one: 164 requests named a lane that it has not (batch, long, short)" in err
    assert f"one: {lost} of " in err
    _, page, _ = fleetctl("backtest", str(named_night), "--duration", "20s", "--profile", str(one), "-o", "html", "-q")
    assert f"one: {lost} of " in page
    assert "<svg" in page


def test_what_was_decided_counts_as_a_simulation_counts_it(tmp_path):
    path = tmp_path / "decided.jsonl.gz"
    began = desired()
    header = RecordingHeader(fleet="demo", began_at=samples.EPOCH, written_by="0", desired=began)
    common: dict[str, Any] = {
        "seq": 1,
        "at": at(3),
        "fleet": "demo",
        "subject": Subject.lane("short"),
        "reason": "",
        "epoch": 1,
    }
    entries = [
        JournalEntry(kind=EntryKind.LIFECYCLE, action="admit", code=ReasonCode.WARMED, **common),
        JournalEntry(kind=EntryKind.BREACH, action="breach", code=ReasonCode.SLO_MISSED, **common),
        JournalEntry(kind=EntryKind.BREACH, action="breach-ended", code=ReasonCode.SLO_MISSED, **common),
        JournalEntry(kind=EntryKind.DECISION, action="launch", code=ReasonCode.PLANNED, **common),
        JournalEntry(
            kind=EntryKind.LIFECYCLE, action="create", code=ReasonCode.PLANNED, **common
        ),  # how a launch went on
        JournalEntry(kind=EntryKind.OPERATOR, action="drain", code=ReasonCode.PLANNED, **common),
    ]
    with RecordingWriter(path) as writer:
        writer.write([RecordingRow(header=header), *(RecordingRow(decision=each) for each in entries)])
    found = read_period(path)
    assert found.decisions == {
        "admit warmed": 1, "breach slo-missed": 1, "breach-ended slo-missed": 1, "launch planned": 1,
    }  # fmt: skip
    assert found.by_people == 1


def test_what_a_recording_lacks_is_said(night, tmp_path, fleetctl):
    path = tmp_path / "cut.jsonl.gz"
    gap = RecordingGap(kind=GapKind.OVERRUN, since=EPOCH, until=EPOCH + timedelta(seconds=5), requests=77)
    record_simulated(desired_for(three_lanes()), poisson(3, 20.0), path, settled=SETTLED, more=[RecordingRow(gap=gap)])
    path.write_bytes(path.read_bytes()[:-30])
    _, out, err = fleetctl("backtest", str(path), "-o", "json", "-q")
    assert "77 requests missing" in err
    assert "has no end" in err
    assert json.loads(out)["requests_missed"] == 77
