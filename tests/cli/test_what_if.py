"""plan --set, --frontier, --frontier-key: the same profile otherwise, through the command line."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each plans whole fleets, several times


@pytest.fixture
def file(fleetctl, home):
    path = home / "demo.yaml"
    path.write_text(fleetctl("init", "-", "-u", "quickstart").out)
    return path


def test_a_changed_key_is_planned_as_if_the_profile_said_it_and_stands_beside_the_profiles_own_plan(fleetctl, file):
    own = json.loads(fleetctl("plan", str(file), "--no-proof", "-o", "json").out)
    changes = ("workload.peak_rps=12", "lanes.long.slo.ttft.p99=3s")
    options = [part for change in changes for part in ("--set", change)]
    ran = fleetctl("plan", str(file), "--no-proof", *options, "-o", "json")
    assert ran.code == 0
    found = json.loads(ran.out)
    written = file.read_text().replace("peak_rps: 6", "peak_rps: 12").replace("ttft: {p99: 2s}", "ttft: {p99: 3s}")
    file.write_text(written)
    as_written = json.loads(fleetctl("plan", str(file), "--no-proof", "-o", "json").out)
    assert found["lanes"] == as_written["lanes"]
    beside = found["what_if"]
    assert own["what_if"] is None
    assert tuple(beside["changes"]) == changes
    assert beside["cost_change_usd_per_hour"] == pytest.approx(found["cost_usd_per_hour"] - own["cost_usd_per_hour"])
    before = {lane["lane"]: lane for lane in own["lanes"]}
    for lane in beside["lanes"]:
        assert lane["replicas_before"] == before[lane["lane"]]["replicas"]
        forecast = before[lane["lane"]]["forecast"]["ttft_p99_s"]
        assert lane["ttft_p99_s"] - lane["ttft_p99_change_s"] == pytest.approx(forecast)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("workload.peak_rsp=3", "did you mean 'peak_rps'"),
        ("workload.peak_rps", "is not KEY=VALUE"),
        ("name.x=1", "name is no section"),
        ("lanes.short.slo.ttft.p99=fast", "lanes.short.slo.ttft.p99: 'fast' is not a duration"),
        ("workload.peak_rps=[1", "is not YAML"),
    ],
)
def test_a_change_that_is_none_is_refused_with_what_was_given(fleetctl, file, change, expected):
    ran = fleetctl("plan", str(file), "--no-proof", "--set", change)
    assert ran.code == 3
    assert expected in ran.err
    assert f"--set {change}" in ran.err
    assert ran.out == ""


def test_a_frontier_costs_no_more_the_looser_it_is_and_has_the_profiles_own_plan_in_it(fleetctl, file):
    own = json.loads(fleetctl("plan", str(file), "--no-proof", "-o", "json").out)
    found = json.loads(fleetctl("plan", str(file), "--frontier", "--no-proof", "-o", "json").out)
    assert found["keys"] == ["lanes.short.slo.ttft.p99", "lanes.long.slo.ttft.p99"]
    points = found["points"]
    assert [point["factor"] for point in points] == [0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0]
    costs = [point["cost_usd_per_hour"] for point in points if not point["refusal"]]
    assert costs == sorted(costs, reverse=True)
    (same,) = [point for point in points if point["factor"] == 1.0]
    assert (same["cost_usd_per_hour"], same["cost_change_usd_per_hour"]) == (own["cost_usd_per_hour"], 0.0)
    assert points[-1]["values"] == ["1.2s", "8s"]


def test_a_frontier_along_the_load_says_where_a_cap_ends_it_and_draws_what_it_costs(fleetctl, file):
    ran = fleetctl("plan", str(file), "--frontier-key", "workload.peak_rps", "--no-proof")
    assert ran.code == 0
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line[:1].isdigit()}
    bars = [line.count("#") for name, line in rows.items() if "no such plan" not in line and ":" not in line]
    assert bars == sorted(bars)
    assert bars[-1] == 24
    refused = fleetctl("plan", str(file), "--frontier-key", "workload.nope", "--no-proof")
    assert refused.code == 3
    assert "is not given in the profile" in refused.err
    both = fleetctl("plan", str(file), "--frontier", "--set", "workload.peak_rps=3")
    assert (both.code, both.out) == (3, "")
