from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow  # each plans whole fleets, several times


@pytest.fixture
def file(fleetctl, home):
    path = home / "chat.yaml"
    path.write_text(fleetctl("init", "-", "-u", "chat").out)
    return path


def test_a_plan_is_explained_key_by_key_and_lane_by_lane(fleetctl, file):
    ran = fleetctl("plan", str(file), "--explain")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    for heading in (
        "Fleet, key by key",
        "Lane short, key by key",
        "Lane long, key by key",
        "What a little more would buy",
    ):
        assert heading in lines
    number = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if "peak_rps" in line)
    assert any(line.startswith("workload.peak_rps") and f"chat.yaml:{number} " in line for line in lines)
    assert any("more keys by default" in line for line in lines)
    assert "gateway.stall_timeout" not in ran.out
    assert "gateway.stall_timeout" in fleetctl("plan", str(file), "--explain", "-o", "wide").out


def test_programs_get_the_explanation_too_and_none_where_they_do_not_want_it(fleetctl, file):
    plain = json.loads(fleetctl("plan", str(file), "-o", "json").out)
    explained = json.loads(fleetctl("plan", str(file), "--explain", "-o", "json", "--port", "9191").out)
    explanation = explained.pop("explanation")
    assert plain.pop("explanation") is None
    assert (plain["lanes"], plain["cautions"]) == (explained["lanes"], explained["cautions"])
    keys = {key["key"]: key for key in explanation["keys"]}
    assert (keys["gateway.port"]["value"], keys["gateway.port"]["source"]) == ("9191", "option")
    assert keys["lanes.short.slo.ttft.p99"]["file"] == str(file)
    assert [key for key in keys.values() if not key["effect"]] == []


def test_a_little_more_says_what_it_costs_and_buys(fleetctl, file):
    planned = json.loads(fleetctl("plan", str(file), "--explain", "-o", "json").out)
    replicas = {lane["lane"]: lane["replicas"] for lane in planned["lanes"]}
    for each in planned["explanation"]["alternatives"]:
        assert each["refusal"] == ""
        if each["change"] == "1 replica more":
            assert each["replicas"] == replicas[each["lane"]] + 1
            assert each["cost_change_usd_per_hour"] > 0
            assert each["ttft_p99_change_s"] < 0
        else:
            assert each["replicas"] <= replicas[each["lane"]]
            assert each["cost_change_usd_per_hour"] <= 0


def test_a_looser_promise_that_binds_costs_less(fleetctl, file):
    text = file.read_text()
    file.write_text(
        text.replace("peak_rps: 8", "peak_rps: 80")
        .replace("p99: 300ms", "p99: 120ms")
        .replace("max: 6", "max: 40")
        .replace("$40", "$400")
        .replace("max_nodes: 16", "max_nodes: 99")
    )
    planned = json.loads(fleetctl("plan", str(file), "--explain", "-o", "json").out)
    bound = {lane["lane"]: lane["bound_by"] for lane in planned["lanes"]}
    assert bound["short"] == "lanes.short.slo.ttft.p99"
    looser = [
        a for a in planned["explanation"]["alternatives"] if a["lane"] == "short" and a["change"].startswith("ttft")
    ]
    assert looser[0]["cost_change_usd_per_hour"] < 0


def test_what_the_caps_do_not_allow_is_said(fleetctl, file):
    text = file.read_text()
    file.write_text(text.replace("max_nodes: 16", "max_nodes: 5"))
    ran = fleetctl("plan", str(file), "--explain")
    assert ran.code == 0
    assert "no such plan: the plan with the fewest nodes needs 6, and capacity.max_nodes is 5" in ran.out
