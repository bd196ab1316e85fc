"""The laboratory: its command, what it keeps, its tables, and the bound."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleetctl.core.static_policy import static
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from tests.bench.policies.__main__ import main
from tests.bench.policies.cases import level
from tests.bench.policies.clairvoyant import ScheduleSettings, _ahead, _needed, keeps_promise, schedule, work_by_second
from tests.bench.policies.laboratory import Contender, LaboratoryRun, LaneFigures, append_run, read_runs, run
from tests.bench.policies.report import table
from tests.bench.policies.scenarios import SCENARIOS, after_silence, mixture, sinusoid, tenfold
from tests.sim.fleets import offerings

_COMMAND = ("--scenario", "smoke", "--seeds", "1", "--jobs", "1")


def test_the_command_prints_a_table_and_keeps_what_it_ran(tmp_path, capsys):
    out = tmp_path / "runs.jsonl"
    names = ("--policy", "built-in", "--policy", "llm-d@plain", "--policy", "clairvoyant")

    assert main([*_COMMAND, *names, "--out", str(out)]) == 0

    printed = capsys.readouterr()
    assert "| built-in | " in printed.out
    assert "| llm-d@picker | " in printed.out
    assert "3/3 smoke clairvoyant" in printed.err
    assert [each.contender for each in read_runs(out)] == ["built-in", "llm-d@picker", "clairvoyant"]


def test_a_command_that_was_cut_off_goes_on_where_it_was(tmp_path, capsys):
    out = tmp_path / "runs.jsonl"
    main([*_COMMAND, "--policy", "built-in", "--out", str(out)])
    kept = out.read_text()
    out.write_text(kept + kept[: len(kept) // 2])  # a second run was being written

    main([*_COMMAND, "--policy", "built-in", "--out", str(out), "--json"])

    printed = capsys.readouterr()
    assert "1 of 1 runs are in" in printed.err
    assert json.loads(printed.out[printed.out.index("[") :])[0]["contender"] == "built-in"


def test_a_scenario_that_is_not_there_is_said(capsys):
    assert main(["--scenario", "s99"]) == 2
    assert "s99" in capsys.readouterr().err


def test_spot_records_are_a_scenario_by_their_time_with_all_ready(tmp_path, monkeypatch):
    record = tmp_path / "record.csv"
    record.write_text("t_s,zone,available\n" + "".join(f"{at},{zone},8\n" for zone in "ab" for at in (0, 7200)))
    monkeypatch.setenv("FLEETCTL_SPOT_TRACES", str(record))

    kept = run("s5-120", Contender("spothedge"), 7)

    assert kept.lanes["ready"].good == kept.lanes["ready"].offered
    assert kept.usd_per_hour == pytest.approx(4.0, rel=0.1)  # three on spot and one spare, 1 $/h each
    assert run("s5-120", Contender("llm-d"), 7).missing


def test_a_contender_is_a_policy_and_a_gateway():
    assert Contender.parse("llm-d") == Contender("llm-d", "fleetctl")
    assert str(Contender.parse("knative@plain")) == "knative@power-of-two"
    with pytest.raises(KeyError):
        Contender.parse("llm-d@nowhere")


def figures(contender: str, seed: int, good: int, replicas: float) -> LaboratoryRun:
    lane = LaneFigures(offered=1000, good=good, refused=0, ttft_s_p99=1.0, missed={})
    return LaboratoryRun(
        scenario="s1", contender=contender, seed=seed, commit="c0ffee", lanes={"all": lane}, replicas=replicas
    )


def test_a_table_has_the_mean_the_worst_and_the_ratio_to_the_bound_of_the_same_seed(tmp_path):
    for each in (
        figures("clairvoyant", 7, 995, 4.0),
        figures("built-in", 7, 1000, 5.0),
        figures("built-in", 8, 990, 9.0),
    ):
        append_run(tmp_path / "runs", each)

    shown = table(read_runs(tmp_path / "runs"), "s1")

    row = next(line for line in shown.splitlines() if line.startswith("| built-in"))
    assert "99.50 (99.00)" in row
    assert "| 7.00 |" in row
    assert "| 1.25 |" in row


# The bound.


def test_a_need_is_the_work_around_each_second_over_the_utilization():
    assert _needed([0.0, 0.0, 3.0, 3.0, 0.0, 0.0], window_s=2.0, utilization=1.0) == [0, 0, 2, 3, 2, 0]
    assert _needed([2.0] * 4, window_s=2.0, utilization=0.5) == [4] * 4


def test_what_is_due_is_there_a_boot_earlier_and_kept_until_it_is_over():
    assert _ahead([1, 1, 1, 1, 3, 1, 1], 2) == [1, 1, 3, 3, 3, 1, 1]


def test_the_schedule_knows_every_arrival_s_lane_and_cost():
    case = SCENARIOS["s7"]
    desired, trace = case.desired(), list(case.trace(3, ""))
    work = work_by_second(desired, trace)

    assert set(work) == {"short", "long", "batch"}
    assert not any(work["long"][:300])
    counts = schedule(work, ScheduleSettings(window_s=60.0, utilization=dict.fromkeys(work, 1.0)), boot_s=120.0).wanted
    assert counts["long"][100] == 0
    assert counts["long"][200] > 1  # a boot before the step


@pytest.mark.parametrize(("share", "kept"), [(0.995, True), (0.9949, False)])
def test_the_bound_keeps_99_5_percent_of_every_lane(share, kept):
    case = SCENARIOS["smoke"]
    result = simulate(
        case.desired(), level(2, 3000, seconds=5)(1, ""), policy=static, offerings=offerings(),
        spec=SimulationSpec(settled=case.settled),
    )  # fmt: skip
    assert keeps_promise(replace(result, lanes=(replace(result.lanes[0], good_share=share),))) is kept


# The scenarios.


def test_the_sinusoid_lies_between_1_and_24_requests_a_second():
    times = [row.at_s for row in sinusoid(1, "")]
    assert sum(at < 30 for at in times) / 30 == pytest.approx(1.0, abs=0.7)
    assert sum(435 <= at < 465 for at in times) / 30 == pytest.approx(24.0, rel=0.15)


def test_one_in_ten_of_the_mixture_is_long():
    rows = list(mixture(1, ""))
    assert sum(row.prompt_tokens > 10_000 for row in rows) / len(rows) == pytest.approx(0.1, rel=0.1)


def test_nothing_comes_before_the_step():
    assert min(row.at_s for row in after_silence(1, "")) > 299.0


def test_ten_copies_of_a_trace_come_within_five_seconds(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n310.0,100,10\n400.0,200,20\n2000.0,9,9\n")
    rows = list(tenfold(1, str(trace)))
    assert [row.prompt_tokens for row in rows] == [100] * 10 + [200] * 10
    assert all(10.0 <= row.at_s <= 15.0 for row in rows[:10])
