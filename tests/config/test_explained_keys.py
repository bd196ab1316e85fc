"""Every key of a profile has an explanation, and `plan --explain` says of each that is given where it stands and what follows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.config.profile import read_profile
from fleetctl.operations.explaining import ExplainedKey, explain_keys
from tests.config.test_every_key import PROBES, SAMPLE, TRACE, named, with_key
from tests.plan.profiles import planned

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.plan import Plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(read_profile(json.dumps(SAMPLE).encode(), source="a.yaml").checked(), trace_rows=None)


@pytest.fixture(autouse=True)
def _key_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_TEST_KEY", "k" * 40)


def explained(tree: dict[str, Any], plan: Plan, directory: Path) -> dict[str, ExplainedKey]:
    """Return what is said of each key of a tree, written as YAML with a key a line."""
    text = yaml.safe_dump(tree, sort_keys=False, default_flow_style=False)
    reading = read_profile(text.encode(), source="a.yaml", base_dir=directory)
    return {key.key: key for key in explain_keys(reading.checked(), plan, reading.source)}


@pytest.mark.parametrize("key", [key for key in sorted(PROBES) if not PROBES[key].is_refused])
def test_a_given_key_is_explained_with_its_value_and_its_line(key: str, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / TRACE).write_text("arrival_s,prompt_tokens,output_tokens\n0,100,20\n1,900,70\n")
    probe, tree = PROBES[key], SAMPLE
    for dotted, value in (*probe.base.items(), (key, probe.value)):
        tree = with_key(tree, dotted, value)
    found = explained(tree, plan, tmp_path)[named(key)]
    lines = yaml.safe_dump(tree, sort_keys=False, default_flow_style=False).splitlines()
    assert found.is_given
    assert found.source == f"a.yaml:{found.line}"
    assert lines[found.line - 1].strip().startswith((f"{found.key.rsplit('.p99.9')[0].rsplit('.', 1)[-1]}:", "p99.9:"))
    assert found.value
    assert found.effect


def test_what_is_not_given_says_where_it_comes_from(plan: Plan, tmp_path: Path) -> None:
    found = explained(SAMPLE, plan, tmp_path)
    assert (found["capacity.on_demand"].value, found["capacity.on_demand"].source) == ("baseline", "default")
    assert found["lanes.short.launch.max_num_seqs"].source == "derived"
    assert found["lanes.short.launch.max_num_seqs"].value == str(plan.lane("short").launch.max_num_seqs)
    assert found["lanes.short.spot"].source == "capacity.spot, default"
    assert found["model.kv_cache"].source == "engine"
    given = explained(with_key(SAMPLE, "capacity.spot", "none"), plan, tmp_path)["lanes.short.spot"]
    assert given.source == f"capacity.spot, a.yaml:{given.line}"
    assert "lanes.short.coalesce.tokens" not in found  # nothing follows from it


def test_one_key_binds_where_a_promise_sets_the_count_of_replicas(tmp_path: Path) -> None:
    tree = with_key(SAMPLE, "lanes.short.slo.ttft.p99", "150ms")
    plan = planned(read_profile(json.dumps(tree).encode(), source="a.yaml").checked(), trace_rows=None)
    found = explained(tree, plan, tmp_path)
    for lane in plan.lanes:
        binding = [key for key in found.values() if key.is_binding and key.lane in {lane.lane, ""}]
        assert lane.bound_by in {"", *(key.key for key in binding)}
    assert plan.lane("short").bound_by.startswith("lanes.short.slo.")
    assert found[plan.lane("short").bound_by].effect.count("would") == 1  # what a replica less would miss


def test_a_minimum_above_what_is_needed_binds(tmp_path: Path) -> None:
    tree = with_key(SAMPLE, "lanes.*.replicas.min", 15)
    plan = planned(read_profile(json.dumps(tree).encode(), source="a.yaml").checked(), trace_rows=None)
    found = explained(tree, plan, tmp_path)
    assert plan.lane("short").bound_by == "lanes.short.replicas.min"
    assert [key.key for key in found.values() if key.is_binding and key.lane == "short"] == ["lanes.short.replicas.min"]


def test_a_shorter_spelling_stands_for_its_section(plan: Plan, tmp_path: Path) -> None:
    found = explained(with_key(SAMPLE, "lanes.*.replicas", 9), plan, tmp_path)
    assert found["lanes.short.replicas"].value == "9"
    assert "lanes.short.replicas.min" not in found
    assert "engine.kind" not in found


def test_the_entries_of_a_list_of_sections_are_kept_apart(plan: Plan, tmp_path: Path) -> None:
    keys = [{"key": "env:FLEETCTL_TEST_KEY", "name": "acme"}, {"key": "env:FLEETCTL_OTHER_KEY", "name": "beta"}]
    found = explained(with_key(SAMPLE, "gateway.api_keys", keys), plan, tmp_path)["gateway.api_keys"]
    assert found.value == "{key: env:FLEETCTL_TEST_KEY, name: acme}, {key: env:FLEETCTL_OTHER_KEY, name: beta}"


def test_what_is_promised_of_a_workflow_is_not_said_to_be_of_requests(plan: Plan, tmp_path: Path) -> None:
    tree = with_key(SAMPLE, "workflows", {"kinds": {"agent": {"slo": {"p50": "10s", "p99": "30s"}}}})
    found = explained(tree, plan, tmp_path)
    assert found["workflows.kinds.agent.slo.p50"].effect == "Half of all workflows take this long or less."
    assert "requests" not in found["workflows.kinds.agent.slo.p99"].effect
