"""`fleetctl simulate`: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_json_reference import differences

pytestmark = pytest.mark.slow  # each plans and simulates a fleet

SHORTLY = ("simulate", "quickstart", "--duration", "60s", "-q")


def test_a_run_says_good_of_offered_by_lane(fleetctl):
    ran = fleetctl(*SHORTLY)

    assert ran.code == 0
    for heading in ("POLICY", "LANE", "OFFERED", "GOOD", "REFUSED", "TTFT P99", "REPLICAS", "COST", "REVERSALS"):
        assert heading in ran.out
    assert "built-in" in ran.out


def test_json_is_what_the_reference_says_and_the_same_every_time(fleetctl):
    first, again = (fleetctl(*SHORTLY, "-o", "json", "--seeds", "2") for _ in range(2))

    assert first.out == again.out
    value = json.loads(first.out)
    assert differences(value, "SimulationReport", "simulate") == []
    assert [run["seed"] for run in value["runs"]] == [0, 1]
    assert {lane["lane"] for lane in value["comparison"]} == {"short", "long", "batch"}


def test_requests_enter_the_lanes_that_the_plan_reckons_with_where_part_of_each_prompt_is_cached(fleetctl):
    planned = {
        lane["lane"]: lane["rps"]
        for lane in json.loads(fleetctl("plan", "chat", "--no-proof", "-o", "json").out)["lanes"]
    }
    (run,) = json.loads(fleetctl("simulate", "chat", "--duration", "200s", "-q", "-o", "json").out)["runs"]

    offered = {lane["lane"]: lane["offered"] for lane in run["lanes"]}
    for lane in ("short", "long"):
        share = planned[lane] / sum(planned.values())
        assert offered[lane] / sum(offered.values()) == pytest.approx(share, rel=0.1)


def test_policies_stand_side_by_side(fleetctl):
    ran = fleetctl(*SHORTLY, "--policy", "built-in", "--policy", "static", "--compare")

    assert ran.code == 0
    head = next(line for line in ran.out.splitlines() if line.startswith("LANE"))
    assert head.split()[-2:] == ["built-in", "static"]


def test_the_page_needs_nothing_from_elsewhere(fleetctl, tmp_path):
    page = tmp_path / "page.html"
    ran = fleetctl(*SHORTLY, "--scenario", "kill@20s,lane=short", "--report", str(page))

    assert ran.code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") >= 6
    assert "kill@20s,lane=short" in text
    for outside in ("http://", "https://", "<script", "@import", "src="):
        assert outside not in text


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--policy", "bilt-in"), 8, "did you mean 'built-in'"),
        (("--scenario", "kill@5m,lane=shrot"), 3, "no lane 'shrot'"),
        (("--scenario", "/nonexistent/storm"), 3, "'/nonexistent/storm' is no file and no disturbance"),
        (("--trace", "/nonexistent/trace.csv"), 8, "no trace at /nonexistent/trace.csv"),
        (("--spot", "/nonexistent/spot.csv"), 8, "no spot trace at"),
        (("--start", "long=two"), 3, "is no number of replicas"),
        (("--start", "long=2", "--fresh"), 3, "--fresh begins without replicas"),
        (("--seeds", "0"), 3, "--seeds is from 1"),
        (("--report", "/nonexistent/page.html"), 3, "/nonexistent/page.html: cannot be written"),
    ],
)
def test_bad_input_is_named(fleetctl, options, code, message):
    ran = fleetctl(*SHORTLY, *options)

    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_a_broken_trace_names_its_line(fleetctl, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,many,10\n")
    ran = fleetctl("simulate", "quickstart", "--trace", str(trace))

    assert ran.code == 3
    assert f"{trace}:3: " in ran.err


def test_a_row_beyond_a_month_is_refused_by_its_line(fleetctl, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n1e12,100,10\n")
    ran = fleetctl("simulate", "quickstart", "--trace", str(trace))

    assert ran.code == 3
    assert f"{trace}:3: arrival_s 1e+12 is later than" in ran.err
    assert "at most 31d are simulated" in ran.err
    assert fleetctl("simulate", "quickstart", "--trace", str(trace), "--duration", "10s").code == 0
    assert "--duration" in fleetctl("simulate", "quickstart", "--duration", "60d").err


def test_check_slo_fails_where_a_lane_is_under_the_objective(fleetctl):
    ran = fleetctl(*SHORTLY, "--fresh", "--boot", "50s", "--check-slo")

    assert ran.code == 5
    assert "missed its SLO" in ran.err
    assert "99.5% promised" in ran.err


def test_what_no_lane_takes_is_said_and_not_judged(fleetctl, tmp_path):
    trace, page = tmp_path / "trace.csv", tmp_path / "page.html"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,9000000,10\n", encoding="utf-8")
    options = ("simulate", "quickstart", "-q", "--trace", str(trace))
    ran = fleetctl(*options, "--report", str(page))

    assert ran.code == 0
    assert "1 of 1 requests were refused by every lane" in ran.err
    assert "1 of 1 requests were refused by every lane" in page.read_text(encoding="utf-8")
    assert "100%" not in ran.out
    value = json.loads(fleetctl(*options, "-o", "json").out)
    assert sum(value["runs"][0]["unrouted"].values()) == 1
    assert {lane["good_share"] for lane in value["comparison"]} == {None}
    checked = fleetctl(*options, "--check-slo")
    assert (checked.code, "no lane took any request" in checked.err) == (3, True)


def test_check_slo_passes_nothing_that_was_not_judged(fleetctl, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n100,500,10\n", encoding="utf-8")
    ran = fleetctl("simulate", "quickstart", "-q", "--trace", str(trace), "--duration", "10s", "--check-slo")

    assert ran.code == 9
    assert "no request was judged" in ran.err


def test_tiers_and_clients_of_a_trace_have_figures_of_their_own(fleetctl, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [
        f"{0.5 * number},300,20,{'acme' if number % 4 else 'umbra'},{'free' if number % 2 else ''}"
        for number in range(80)
    ]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,client,tier", *rows]))
    ran = fleetctl("simulate", "quickstart", "-q", "--trace", str(trace), "--seeds", "2", "-o", "json")

    value = json.loads(ran.out)
    assert differences(value, "SimulationReport", "simulate") == []
    for part, names in (("tiers", {"", "free"}), ("clients", {"acme", "umbra"})):
        assert {each["name"] for each in value[part]} == names
        for total in ("offered", "good", "refused"):
            assert sum(each[total] for each in value[part]) == sum(lane[total] for lane in value["comparison"])
        assert sum(each["token_share"] for each in value[part]) == pytest.approx(1.0)
    assert [each["offered"] for each in value["clients"]] == [120, 40], "who offered the most comes first"
    shown = fleetctl("simulate", "quickstart", "-q", "--trace", str(trace))
    assert "TOKEN SHARE" in shown.out
    assert "umbra" in shown.out


def test_a_trace_without_tiers_and_clients_is_shown_without_them(fleetctl):
    assert "TOKEN SHARE" not in fleetctl(*SHORTLY).out


PROMISING = """
apiVersion: fleetctl/v1
name: promising
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
provider: local
workload: {peak_rps: 6, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}}
slo: {objective: 95%}
tiers: {gold: {slo: {ttft: {p99: GOLD}}}, tin: {}}
workflows: {kinds: {agent: {steps: 2, slo: {p99: AGENT}}}}
lanes: {only: {slo: {ttft: {p99: 2s}}, max_wait: 2s, replicas: 2}}
capacity: {gpus: [L40S], max_nodes: 2}
gateway: {api_keys: [{key: env:ACME, name: acme, tier: gold}]}
"""


@pytest.mark.parametrize(
    ("gold", "agent", "missed"),
    [
        ("1s", "30s", []),
        ("1ms", "30s", ["tier gold under built-in: MISSED good requests 0% of 95% (0 of 2); ttft P99 ~"]),
        ("1s", "100ms", ["workflows agent under built-in: MISSED elapsed P99 ~"]),
    ],
)
def test_check_slo_counts_the_promises_of_tiers_and_of_workflows(fleetctl, tmp_path, gold, agent, missed):
    profile, trace, page = tmp_path / "p.yaml", tmp_path / "t.csv", tmp_path / "page.html"
    profile.write_text(PROMISING.replace("GOLD", gold).replace("AGENT", agent))
    singles = [f"{number / 2},300,20,{'acme' if number in (3, 9) else ''},,,," for number in range(60)]
    calls = ["30,300,20,,w,agent,a,", "30,300,20,,w,,b,a"]
    trace.write_text(
        "\n".join(["arrival_s,prompt_tokens,output_tokens,client,workflow,kind,id,after", *singles, *calls])
    )
    ran = fleetctl("simulate", str(profile), "--trace", str(trace), "-q", "--check-slo", "--report", str(page))

    rows = {cells[1]: cells for line in ran.out.splitlines() if (cells := line.split())[:1] == ["built-in"]}
    assert rows["gold"][2] == "2", "the tier of the key of that name, though no row names a tier"
    assert rows["gold"][-2].endswith(f"/{gold}")
    assert rows["gold"][-1] == ("MISSED" if gold == "1ms" else "~kept")
    assert any(cell.endswith(f"/{agent}") for cell in rows["agent"])
    assert ran.code == (5 if missed else 0)
    assert ran.err.count("MISSED") == len(missed)
    for line in missed:
        assert line in ran.err
        assert line in ran.out
        assert "MISSED" in page.read_text(encoding="utf-8")
    value = json.loads(fleetctl("simulate", str(profile), "--trace", str(trace), "-q", "-o", "json").out)
    assert differences(value, "SimulationReport", "simulate") == []
    assert [each["limit"] for each in value["workflows"][0]["promises"]] == [{"30s": 30.0, "100ms": 0.1}[agent]]
