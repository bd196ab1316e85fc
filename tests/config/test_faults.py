"""What is wrong with a profile is told at once, each fault with its file, line, key and nearest known word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings, strategies as st

from fleetctl.config.profile import load_profile, parse_profile
from fleetctl.config.use_cases import starter
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

BASE = starter("quickstart")


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_profile(text, source="p.yaml")
    assert caught.value.exit_code == 3
    return caught.value.message.splitlines()


def line_of(text: str, needle: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if needle in line)


def edited(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "marker", "key", "message"),
    [
        ("\ngateway:", "\ngateway:\n  routing: {scorers: {kv-headrom: 1}}", "routing:", "gateway.routing.scorers.kv-headrom", "not a scorer (did you mean 'kv-headroom'?"),
        ("\ngateway:", "\ngateway:\n  routing: {scorers: {kv-headroom: -1}}", "routing:", "gateway.routing.scorers.kv-headroom", "0 or more, not -1"),
        ("\ngateway:", "\ngateway:\n  routing: {filters: [no]}", "routing:", "gateway.routing.filters[0]", "'no' is not a filter"),
        ("provider: local", "provider: local\nprovidr: x", "providr", "providr", "unknown key (did you mean 'provider'?)"),
        ("provider: local", "provider: local\nhost: kubernets", "host: kub", "host", "did you mean 'kubernetes'?"),
        ("    queue_max: 2000", "    quue_max: 2000", "quue_max", "lanes.batch.quue_max", "did you mean 'queue_max'?"),
        ("{p99: 300ms}", "{p98: 300ms}", "p98", "lanes.short.slo.ttft.p98", "did you mean 'p9"),
        ("engine: emulator ", "engine: vlm ", "vlm", "engine", "did you mean 'vllm'?); installed: emulator, llamacpp, sglang, tgi, vllm"),
        ("flavour: vllm", "flavour: emulator", "flavour: em", "emulator.flavour", "can play; installed: sglang, tgi, vllm"),
        ("quantization: bf16", "quantization: fp9", "fp9", "model.quantization", "did you mean 'fp8'?"),
        ("max_wait: 200ms", "max_wait: 200", "max_wait: 200", "lanes.short.max_wait", "200 is not a duration"),
        ("max_wait: 200ms", "max_wait: 3 parsecs", "parsecs", "lanes.short.max_wait", "unknown unit"),
        ("max_wait: 200ms", "max_wait: 0s", "0s", "lanes.short.max_wait", "more than zero"),
        ("max_wait: 200ms", "max_wait: -2s", "-2s", "lanes.short.max_wait", "not a duration"),
        ("max_wait: 200ms", "max_wait: true", "max_wait: true", "lanes.short.max_wait", "true is not a duration"),
        ("$25 ", "25 ", "max_cost_per_hour: 25", "capacity.max_cost_per_hour", "25 is not an amount of money"),
        ("peak_rps: 6", "peak_rps: .nan", ".nan", "workload.peak_rps", "finite number, not nan"),
        ("peak_rps: 6", "peak_rps: -.inf", "-.inf", "workload.peak_rps", "finite number, not -inf"),
        ("peak_rps: 6", "peak_rps: .inf", ".inf", "workload.peak_rps", "finite number, not inf"),
        ("peak_rps: 6", "peak_rps: -1", "peak_rps: -1", "workload.peak_rps", "more than 0, not -1"),
        ("peak_rps: 6", "peak_rps: 0", "peak_rps: 0", "workload.peak_rps", "more than 0, not 0"),
        ("peak_rps: 6", 'peak_rps: "6"', "peak_rps", "workload.peak_rps", "must be a number, not '6'"),
        ("p50: 1020, p99: 4142", "p50: 5020, p99: 4142", "5020", "workload.prompt_tokens", "p50 (5020) is above p99 (4142)"),
        ("ttft: {p99: 2s}", "ttft: {p50: 3s, p99: 2s}", "p50: 3s", "lanes.long.slo.ttft", "p50 (3 s) is above p99 (2 s)"),
        ("ttft: {p99: 2s}", "ttft: {}", "ttft: {}", "lanes.long.slo.ttft", "promises nothing"),
        ("{min: 3, max: 4}", "{min: 5, max: 4}", "min: 5", "lanes.long.replicas", "min (5) is above max (4)"),
        ("{min: 3, max: 4}", "{min: 2.5, max: 4}", "2.5", "lanes.long.replicas.min", "must be a whole number, not 2.5"),
        ("{min: 3, max: 4}", "many", "many", "lanes.long.replicas", "must be a section, not 'many'"),
        ("batch_share: 5%", "batch_share: 105%", "105%", "workload.batch_share", "0% to 100%"),
        ("batch_share: 5%", "batch_share: 5", "batch_share: 5", "workload.batch_share", "not a share"),
        ("99.5%, window", "100%, window", "100%", "slo.objective", "both excluded"),
        ('"< 512"', '"512"', '"512"', "lanes.short.match.uncached_prompt_tokens", "not a range of tokens"),
        ('"< 512"', '"9..3"', '"9..3"', "lanes.short.match.uncached_prompt_tokens", "takes no request"),
        ("stream: true", "stream: yes", "stream: yes", "lanes.short.match.stream", "must be true or false, not 'yes'"),
        ("  long:\n", "  Long_1:\n", "Long_1", "lanes.Long_1", "not a name"),
        ("spot: all", "spot: all\n    spill_to: [long, shrt]", "shrt", "lanes.batch.spill_to[1]", "did you mean 'short'?"),
        ("spot: all", "spot: all\n    spill_to: [batch]", "[batch]", "lanes.batch.spill_to[0]", "cannot spill to itself"),
        ("port: 8080", "port: 99999", "99999", "gateway.port", "65535 or less, not 99999"),
        ("mode: active", "mode: shadw", "shadw", "control.mode", "did you mean 'shadow'?"),
        ("mode: active", "pause_batch_above: 0.4", "0.4", "control", "resume_batch_below must be below"),
        ("mode: active", "rollout: {max_surge: 0}", "rollout", "control.rollout", "both 0, so no replica could ever be replaced"),
        ("mode: active", "rollout: {max_surge: 0%, max_unavailable: 0%}", "rollout", "control.rollout", "set max_surge: 1"),
        ("mode: active", "rollout: {max_surge: 0, max_unavailable: 0%}", "rollout", "control.rollout", "or max_unavailable: 1"),
        ("gpus: [L40S]", "gpus: L40S", "gpus: L40S", "capacity.gpus", "must be a list, not 'L40S'"),
        ("apiVersion: fleetctl/v1", "apiVersion: v9", "v9", "apiVersion", "fleetctl/v1"),
        ("host: 127.0.0.1", "host: 0.0.0.0", "0.0.0.0", "gateway.host", "api_keys are required"),  # noqa: S104  # it is refused
    ],
)  # fmt: skip
def test_a_fault_is_told_on_its_line_with_its_key(old: str, new: str, marker: str, key: str, message: str) -> None:
    text = edited(old, new)
    found = faults_of(text)
    assert len(found) == 1, found
    line = line_of(text, "control:") if key == "control" else line_of(text, marker)
    assert found[0].startswith(f"p.yaml:{line}: {key}: "), found[0]
    assert message in found[0]


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    text = (
        BASE.replace("engine: emulator ", "engine: vlm ", 1)
        .replace("p50: 1020", "p50: 9020", 1)
        .replace("max_wait: 200ms", "max_wait: 200", 1)
        .replace("{min: 3, max: 5}", "{min: 6, max: 5}", 1)
        .replace("spot: all", "spot: all\n    spill_to: [shrt]", 1)
        .replace("host: 127.0.0.1", "host: 10.0.0.1", 1)
    )
    found = faults_of(text)
    assert len(found) == 6
    lines = [int(fault.split(":")[1]) for fault in found]
    assert lines == sorted(lines)


def test_a_missing_key_is_told_with_its_meaning() -> None:
    found = faults_of(edited("    max_wait: 1500ms\n", ""))
    assert len(found) == 1
    assert found[0].startswith(f"p.yaml:{line_of(BASE, '  long:')}: lanes.long.max_wait: is missing: Longest wait in")


def test_a_key_given_twice_names_both_lines() -> None:
    text = edited("    spot: all\n", "    spot: all\n    spot: none\n")
    first = line_of(text, "spot: all")
    assert faults_of(text) == [f"p.yaml:{first + 1}: lanes.batch.spot: is given twice (first on line {first})"]


def test_a_lane_given_twice_is_a_fault() -> None:
    text = BASE + "name: again\n"
    assert faults_of(text) == [f"p.yaml:{len(BASE.splitlines()) + 1}: name: is given twice (first on line 12)"]


@pytest.mark.parametrize(
    ("match", "lost"),
    [
        ('{uncached_prompt_tokens: "< 4096"}', "streaming or other requests with 4096 or more uncached prompt tokens"),
        ('{uncached_prompt_tokens: ">= 1000", stream: true}', "non-streaming requests with any number of uncached"),
        (
            '{uncached_prompt_tokens: ">= 1000", stream: true}',
            "streaming requests with 512 to 999 uncached prompt tokens",
        ),
        ("{stream: true}", "non-streaming requests with any number of uncached prompt tokens"),
        ("{batch: true}", "streaming requests with 512 or more uncached prompt tokens"),
    ],
)
def test_requests_that_would_fall_between_the_lanes_are_named(match: str, lost: str) -> None:
    found = faults_of(edited("  long:\n", f"  long:\n    match: {match}\n"))
    assert any("lanes: no lane takes " + lost in fault for fault in found), found


def test_lanes_that_tile_every_request_leave_no_gap() -> None:
    text = edited("  long:\n", '  long:\n    match: {uncached_prompt_tokens: ">= 512"}\n').replace(
        ", stream: true}", "}", 1
    )
    assert len(parse_profile(text, source="p").lanes) == 3


def test_a_fleet_of_batch_lanes_only_serves_every_request() -> None:
    lane = "  jobs: {match: {batch: true}, slo: {completion: {p95: 4h}}, max_wait: 1h}\n"
    head = BASE[: BASE.index("lanes:")]
    assert len(parse_profile(head + "lanes:\n" + lane, source="p").lanes) == 1


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        ("# only a comment\n", 1, "is empty"),
        ("just words", 1, "a profile is a section of keys and values, not 'just words'"),
        ("- a\n- b\n", 1, "not a list"),
        ("name: x\nlanes:\n\tshort: 1\n", 3, "indent with spaces, not tabs"),
        ("name: [x\n", 2, "is not YAML"),
        ("name: x\nmatch: >= 512\n", 2, "write a condition in quotes"),
        ("name: x\x07\n", 1, "control character"),
        ("name: 'x\n", 2, "is not YAML"),
        ("a: b: c\n", 1, "is not YAML"),
        ("name: *nobody\n", 1, "undefined alias"),
        ("a: 1\n---\nb: 2\n", 2, "is not YAML"),
        pytest.param("[" * 5000, 1, "nested too deeply", id="deep"),
        pytest.param("x" * 100_001, 1, "longer than 100,000 characters", id="long"),
    ],
)
def test_what_is_not_yaml_or_no_section_is_told_without_a_traceback(text: str, line: int, message: str) -> None:
    found = faults_of(text)
    assert found[0].startswith(f"p.yaml:{line}: "), found[0]
    assert message in found[0]


def test_aliases_cannot_loop_nor_multiply_without_bound() -> None:
    assert any("an alias refers to what it lies in" in fault for fault in faults_of("a: &x [*x]\n"))
    laughs = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for level in range(1, 9):
        laughs += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    assert any("holds more than 50,000 values" in fault for fault in faults_of(laughs))


def test_tags_and_keys_that_are_no_words_are_faults() -> None:
    found = faults_of(BASE + "? [a, b]\n: 1\n")
    assert "a key must be a plain word" in found[0]
    assert any(
        "is not used in profiles" in fault for fault in faults_of(edited("name: quickstart", "name: !!binary aGk="))
    )


def test_a_key_written_out_is_never_repeated_in_the_message() -> None:
    text = BASE + "  api_keys: [sk-very-secret-0815]\n"
    found = faults_of(text)
    assert "sk-very-secret" not in "\n".join(found)
    assert "gateway.api_keys[0]: must say where the key lies" in found[0]


def test_a_secret_in_the_engines_environment_must_be_a_reference() -> None:
    text = edited("spot: all", "spot: all\n    launch: {env: {HF_TOKEN: hf_abcdef, OMP_NUM_THREADS: '2'}}")
    found = faults_of(text)
    assert "hf_abcdef" not in found[0]
    assert "HF_TOKEN looks like a secret" in found[0]
    allowed = text.replace("hf_abcdef", "'env:HF_TOKEN'")
    assert parse_profile(allowed, source="p").lane("batch").launch.env["HF_TOKEN"] == "env:HF_TOKEN"  # noqa: S105  # a reference


def test_a_policy_must_be_installed() -> None:
    found = faults_of(edited("control:\n", "control:\n  policy: builtin\n"))
    assert "control.policy: 'builtin' is not an installed policy (did you mean 'built-in'?)" in found[0]


def test_a_broken_trace_is_a_fault_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,1,x\n")
    path = tmp_path / "p.yaml"
    path.write_text(edited("  peak_rps: 6\n", "  peak_rps: 6\n  trace: t.csv\n"))
    with pytest.raises(ConfigError) as caught:
        load_profile(path)
    assert (
        f"{path}:{line_of(path.read_text(), 'trace:')}: workload.trace: {tmp_path / 't.csv'}:2:" in caught.value.message
    )


def test_a_profile_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"name: x\nmodel: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"p\.yaml:2: is not UTF-8"):
        load_profile(path)


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_trees = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@example(key="lanes", tree={"\r": {}, "short": {}})
@given(
    key=st.sampled_from(["model", "engine", "workload", "slo", "lanes", "capacity", "control", "gateway"]), tree=_trees
)
def test_no_value_anywhere_makes_anything_but_a_config_error(key: str, tree: object) -> None:
    import yaml

    profile = yaml.safe_load(BASE)
    profile[key] = tree
    text = yaml.safe_dump(profile, allow_unicode=True)
    message = "p.yaml:"
    try:
        parse_profile(text, source="p.yaml")
    except ConfigError as error:
        message = error.message
    assert all(line.startswith("p.yaml:") for line in message.splitlines())


@settings(deadline=None)
@given(text=st.text(max_size=200))
def test_no_text_makes_anything_but_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_profile(text, source="p.yaml")
