"""`validate` finds everything `plan` refuses of a profile alone, each fault with its file, line and key."""

from __future__ import annotations

import io
import json
import random
import re
import sys

import pytest

from fleetctl.config.use_cases import use_cases
from tests.cli.broken_profiles import BROKEN, chat

pytestmark = pytest.mark.slow  # each plans a whole fleet


@pytest.mark.parametrize("name", use_cases())
def test_every_shipped_profile_is_right(fleetctl, name):
    ran = fleetctl("validate", name)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("name", BROKEN)
def test_validate_and_plan_refuse_it_alike_at_its_line_and_key(fleetctl, home, name):
    broken = BROKEN[name]
    file = home / "p.yaml"
    file.write_text(broken.text)
    ran = fleetctl("validate", str(file), "-o", "json")
    answer = json.loads(ran.out)
    places = [(fault["line"], fault["key"]) for fault in answer["faults"]]
    assert (ran.code, answer["is_valid"]) == (broken.code, False), ran.err
    assert (broken.line, broken.key) in places, ran.err
    fault = answer["faults"][places.index((broken.line, broken.key))]
    assert broken.says in f"{fault['reason']} {fault['hint']}"
    assert f"{file}:{broken.line}: {broken.key}: " in ran.err
    planned = fleetctl("plan", str(file))
    assert planned.code == broken.code
    for fault in answer["faults"]:
        assert f"{file}:{fault['line']}: {fault['key']}: {fault['reason']}" in planned.err


def test_everything_is_found_in_one_run(fleetctl, home):
    file = home / "p.yaml"
    text = chat().replace("ttft: {p99: 300ms}", "ttft: {p99: 1ms}").replace("e2e: {p99: 30s}", "e2e: {p99: 900ms}")
    text = text.replace("max_wait: 200ms", 'max_wait: 200ms\n    engine: vllm\n    launch: {extra_args: ["--nope"]}')
    file.write_text(text.replace("port: 8080}", 'port: 8080, api_keys: ["keyring:a/b"]}'))
    ran = fleetctl("validate", str(file))
    assert ran.code == 3
    for key in (
        "lanes.short.slo.ttft.p99",
        "lanes.long.slo.e2e.p99",
        "lanes.short.launch.extra_args[0]",
        "gateway.api_keys[0]",
    ):
        assert f": {key}: " in ran.err
    assert "4 faults in" in ran.err


def test_every_bound_and_cap_a_load_crosses_is_named_at_once(fleetctl, home):
    file = home / "p.yaml"
    file.write_text(chat().replace("peak_rps: 8", "peak_rps: 300"))
    ran = fleetctl("plan", str(file))
    assert ran.code == 4
    for key in (
        "lanes.short.replicas.max",
        "lanes.long.replicas.max",
        "capacity.max_nodes",
        "capacity.max_cost_per_hour",
    ):
        assert f": {key}: " in ran.err


def test_a_hundred_thousand_requests_a_second_blame_what_binds(fleetctl, home):
    file = home / "p.yaml"
    file.write_text(chat().replace("peak_rps: 8", "peak_rps: 100000"))
    ran = fleetctl("plan", str(file))
    assert ran.code == 4
    blamed = r": lanes\.short\.replicas\.max: lane short: 6\d,\d{3} rps need more than 4,096 replicas \(about \d,\d{3} on L40S\)"
    assert re.search(blamed, ran.err)
    assert "lower workload.peak_rps: 6 replicas carry about" in ran.err
    assert "unpin" not in ran.err


@pytest.mark.parametrize(
    "spoil",
    [lambda text: text.replace(b"\n", b"\r\n"), lambda text: b"\xef\xbb\xbf" + text, lambda text: text + b"\n\n# end"],
    ids=["CRLF", "BOM", "blank end"],
)
def test_a_profile_by_another_editor_reads_the_same_and_keeps_its_lines(fleetctl, home, spoil):
    file = home / "p.yaml"
    file.write_bytes(spoil(chat().encode()))
    assert fleetctl("validate", str(file)).code == 0
    broken = BROKEN["gpu"]
    file.write_bytes(spoil(broken.text.encode()))
    assert f"{file}:{broken.line}: {broken.key}: " in fleetctl("validate", str(file)).err


def test_a_profile_indented_with_tabs_is_told_so(fleetctl, home):
    file = home / "p.yaml"
    file.write_text(chat().replace("  peak_rps", "\tpeak_rps"))
    ran = fleetctl("validate", str(file))
    assert (ran.code, "indent with spaces, not tabs" in ran.err) == (3, True)


def test_a_profile_comes_from_stdin(fleetctl, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BROKEN["gpu"].text.encode())))
    ran = fleetctl("validate", "-")
    assert ran.code == 3
    assert f"stdin:{BROKEN['gpu'].line}: capacity.gpus[0]: " in ran.err


def test_keys_that_an_anchor_brings_keep_the_anchors_line(fleetctl, home):
    file = home / "p.yaml"
    text = chat().replace(
        "slo: {ttft: {p99: 300ms}, itl: {p99: 50ms}}", "slo: &slo {ttft: {p99: 1ms}, itl: {p99: 50ms}}"
    )
    text = text.replace("capacity: {", "  other: {match: {stream: false}, slo: *slo, max_wait: 1s}\ncapacity: {", 1)
    file.write_text(text.replace("  long:", "  long:\n    match: {stream: true}"))
    line = next(n for n, words in enumerate(text.splitlines(), 1) if "&slo" in words)
    ran = fleetctl("validate", str(file))
    assert f"{file}:{line}: lanes.short.slo.ttft.p99: " in ran.err
    assert ": lanes.other.slo.ttft.p99: " in ran.err


CHANGES = [(broken.old, broken.new) for broken in BROKEN.values()] + [
    ("peak_rps: 8", "peak_rps: 9"), ("max_wait: 1500ms", "max_wait: 1s"), ("p99: 4142", "p99: 9000"),
    ("prefix_hit: 30%", "prefix_hit: 90%"), ("burst_cv: 1.2", "burst_cv: 4"), ("quantization: fp8", "quantization: int8"),
    ("replicas: {min: 1, max: 2}", "replicas: {min: 2, max: 2}"), ("spot: all", "spot: none"), ("on_demand: baseline", "on_demand: peak"),
    ("max_wait: 200ms", "max_wait: 200ms\n    launch: {max_model_len: 2048}"),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_validate_passes_what_plan_accepts_and_nothing_else(fleetctl, home, seed):
    chance = random.Random(seed)  # seeded: the same profiles in every run
    text = chat()
    for old, new in chance.sample(CHANGES, chance.randint(0, 3)):
        text = text.replace(old, new, 1)
    file = home / "p.yaml"
    file.write_text(text)
    validated, planned = fleetctl("validate", str(file), "-o", "json"), fleetctl("plan", str(file))
    assert validated.code == planned.code, (validated.err, planned.err)
    answer = json.loads(validated.out)
    assert answer["is_valid"] is (planned.code == 0)
    assert all(f"{fault['key']}: {fault['reason']}" in planned.err for fault in answer["faults"])
