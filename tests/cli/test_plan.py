from __future__ import annotations

import asyncio
import json

import pytest

from fleetctl.operations.plan_files import load_plan
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_profile
from fleetctl.testing import samples
from tests.sites import plugins_site

pytestmark = pytest.mark.slow  # each plans whole fleets


@pytest.fixture
def running(store):
    """The packaged chat fleet, as if brought up."""
    profile = find_profile("chat")
    return store.put_fleet(profile, asyncio.run(plan_profile(plugins_site(), profile)), now=samples.EPOCH)


def test_a_plan_says_everything_an_operator_asks(fleetctl):
    ran = fleetctl("plan", "chat")
    assert ran.code == 0
    for heading in ("REPLICAS", "GPUS", "TP", "MAX SEQS", "TTFT budget by component", "BOUND BY", "TTFT P99", "SLO",
                  "$/H", "/1M tokens", "all of this is new"):  # fmt: skip
        assert heading in ran.out
    assert ran.err == ""


def test_a_saved_plan_is_the_printed_one(fleetctl, home):
    file = home / "chat.plan"
    ran = fleetctl("plan", "chat", "-o", "json", "--out", str(file))
    assert "fleetctl up chat --plan" in ran.err
    assert load_plan(file).cost_usd_per_hour == json.loads(ran.out)["cost_usd_per_hour"]


def test_the_rule_of_thumb_comes_with_its_caution_on_both_streams(fleetctl):
    ran = fleetctl("plan", "chat", "--sizing", "prefill-only", "-o", "json")
    assert json.loads(ran.out)["cautions"]
    assert ran.err.count("caution:") == len(json.loads(ran.out)["cautions"])


def test_a_caution_in_the_table_is_not_repeated_where_both_streams_go_to_one_file(fleetctl):
    ran = fleetctl("plan", "chat", "--sizing", "prefill-only")
    assert "caution:" in ran.out
    assert ran.err == ""


def test_detailed_exitcode_tells_pending_changes(running, store, fleetctl):
    assert fleetctl("plan", "quickstart", "--detailed-exitcode").code == 2
    ran = fleetctl("plan", "chat", "--detailed-exitcode")
    assert ran.code == 0
    assert "nothing would change" in ran.out
    store.put_fleet(running.profile, samples.plan("chat"), now=samples.EPOCH)
    ran = fleetctl("plan", "chat", "--detailed-exitcode")
    assert ran.code == 2
    assert "Changes to chat" in ran.out


def test_an_slo_out_of_reach_exits_4_with_the_nearest_feasible(fleetctl, home):
    file = home / "hasty.yaml"
    text = fleetctl("init", "-", "-u", "chat").out
    assert "p99: 300ms" in text
    file.write_text(text.replace("p99: 300ms", "p99: 3ms"))
    ran = fleetctl("plan", str(file))
    assert (ran.code, ran.out) == (4, "")
    assert "nearest feasible" in ran.err


def test_up_refuses_what_it_should_not_do(fleetctl, home):
    file = home / "other.plan"
    assert fleetctl("plan", "voice", "--out", str(file)).code == 0
    assert fleetctl("up", "chat", "--plan", str(file), "--yes").code == 3
    ran = fleetctl("up", "chat", "--max-cost", "$0.50", "--yes")
    assert ran.code == 6
    assert "over the cap of $0.50/h" in ran.err
    assert fleetctl("ls", "-o", "name").out == ""


def test_a_saved_plans_edited_price_gets_past_no_cap(fleetctl, home):
    file = home / "chat.plan"
    assert fleetctl("plan", "chat", "--out", str(file)).code == 0
    file.write_text(file.read_text().replace('"replicas": ', '"replicas": 1'))
    ran = fleetctl("up", "chat", "--plan", str(file), "--max-cost", "$1", "--dry-run")
    assert (ran.code, "was changed after it was saved" in ran.err) == (3, True)


def test_a_saved_plan_is_accepted_under_another_name_and_port(fleetctl, home):
    file = home / "chat.plan"
    assert fleetctl("plan", "chat", "--out", str(file)).code == 0
    ran = fleetctl("up", "chat", "--plan", str(file), "--name", "other", "--port", "9", "--dry-run")
    assert (ran.code, "dry run" in ran.err) == (0, True)


def test_up_dry_run_shows_the_plan_and_does_nothing(fleetctl):
    ran = fleetctl("up", "chat", "--dry-run")
    assert (ran.code, ran.out) == (0, "")
    assert "Plan for chat" in ran.err
    assert "nothing was changed" in ran.err
    assert fleetctl("ls", "-o", "name").out == ""


def test_render_prints_the_files_it_wrote(fleetctl, home):
    ran = fleetctl("render", "chat", "-o", str(home / "out"))
    assert ran.code == 0
    files = ran.out.split()
    assert files
    assert all(file.startswith(str(home / "out")) for file in files)
    assert fleetctl("render", "chat", "-o", str(home / "out")).out == ran.out
