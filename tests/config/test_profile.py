"""A profile's YAML becomes the nouns, with every default filled in."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from fleetctl import codec
from fleetctl.config.profile import load_profile, parse_profile, profile_hash
from fleetctl.config.use_cases import starter, use_cases
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import Precision
from fleetctl.model.profile import (
    CoalesceSpec,
    Distribution,
    EmulatorSpec,
    LaneMatch,
    Mode,
    Profile,
    ReplicaBounds,
    RoutingRules,
    SpotPolicy,
)
from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from pathlib import Path

SMALLEST = """\
apiVersion: fleetctl/v1
name: tiny
model: {id: meta-llama/Llama-3.2-1B}
engine: vllm
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 10, p99: 20}, output_tokens: {p50: 10, p99: 20}}
lanes:
  all: {slo: {ttft: {p99: 1s}}, max_wait: 500ms}
"""


def parse(text: str) -> Profile:
    return parse_profile(text, source="test.yaml")


def test_the_smallest_profile_gets_every_default() -> None:
    profile = parse(SMALLEST)
    lane = profile.lane("all")
    assert profile.model.quantization is Precision.BF16
    assert profile.objective.fraction == 0.995
    assert profile.gateway.host == "127.0.0.1"
    assert profile.control.mode is Mode.ACTIVE
    assert profile.capacity.max_cost_usd_per_hour is None
    assert lane.match == LaneMatch()
    assert lane.replicas == ReplicaBounds(min=1, max=8)
    assert lane.spot is SpotPolicy.BURST
    assert lane.engine == "vllm"
    assert lane.max_wait_s == 0.5


def test_routing_weights_are_laid_over_the_defaults() -> None:
    assert parse(SMALLEST).gateway.routing == RoutingRules()
    routed = "gateway: {routing: {scorers: {kv-headroom: 2, prefix-affinity: 0}, filters: [engine-not-queueing]}}\n"
    rules = parse(SMALLEST + routed).gateway.routing
    assert rules.scorers == {"least-predicted-ttft": 3.0, "prefix-affinity": 0.0, "kv-headroom": 2.0}
    assert rules.filters == ("engine-not-queueing",)


def test_units_are_read_into_seconds_dollars_fractions_and_bytes() -> None:
    text = SMALLEST + (
        "slo: {objective: 99.9%, window: 1d}\n"
        "capacity: {max_cost_per_hour: $1.69, gpus: [H100]}\n"
        "control: {tick: 250ms, scale_down_after: 1h30m}\n"
        "gateway: {body_max: 2MiB}\n"
    )
    profile = parse(text)
    assert profile.objective.fraction == pytest.approx(0.999)
    assert profile.objective.window_s == 86400
    assert profile.capacity.max_cost_usd_per_hour == 1.69
    assert profile.control.tick_s == 0.25
    assert profile.control.scale_down_after_s == 5400
    assert profile.gateway.body_bytes_max == 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [
        ("< 512", None, 512),
        ("<=511", None, 512),
        (">= 512", 512, None),
        ("> 511", 512, None),
        ("512..4096", 512, 4096),
        (" 0 .. 1 ", 0, 1),
    ],
)
def test_token_ranges_are_read_half_open(written: str, low: int | None, high: int | None) -> None:
    lanes = f'  first: {{match: {{uncached_prompt_tokens: "{written}"}}, slo: {{ttft: {{p99: 1s}}}}, max_wait: 1s}}\n'
    match = parse(SMALLEST.replace("lanes:\n", "lanes:\n" + lanes)).lane("first").match
    assert (match.uncached_prompt_tokens_min, match.uncached_prompt_tokens_max) == (low, high)


def test_lanes_keep_their_order_and_slos_every_percentile() -> None:
    lanes = (
        "  zed: {slo: {ttft: {p50: 100ms, p90: 150ms, p95: 200ms, p99: 300ms, p99.9: 1s}, itl: {p99: 50ms}},"
        " match: {stream: true}, max_wait: 1s, spill_to: [all]}\n"
    )
    profile = parse(SMALLEST.replace("lanes:\n", "lanes:\n" + lanes))
    assert [lane.name for lane in profile.lanes] == ["zed", "all"]
    slo = profile.lane("zed").slo
    assert slo.limit_s(Metric.TTFT, 0.5) == 0.1
    assert slo.limit_s(Metric.TTFT, 0.999) == 1.0
    assert slo.limit_s(Metric.ITL) == 0.05
    assert profile.lane("zed").spill_to == ("all",)


def test_what_a_stream_promises_is_read_in_its_own_units() -> None:
    promised = "{stream_gap: {p99: 200ms}, stall_rate: < 1%, tokens_per_chunk: {p95: 4, p99: 8.5}}"
    slo = parse(SMALLEST.replace("{ttft: {p99: 1s}}", promised)).lane("all").slo
    assert [(t.metric, t.percentile, t.limit_s) for t in slo.targets] == [
        (Metric.STREAM_GAP, 0.99, 0.2),
        (Metric.STALL_RATE, 0.99, 0.01),
        (Metric.TOKENS_PER_CHUNK, 0.95, 4.0),
        (Metric.TOKENS_PER_CHUNK, 0.99, 8.5),
    ]
    assert [t.name for t in slo.targets[:2]] == ["stream_gap P99", "stall_rate"]


@pytest.mark.parametrize(
    ("promised", "named"),
    [
        ("stall_rate: 1", "not a rate to stay below"),
        ('stall_rate: "> 1%"', "not a rate to stay below"),
        ("stall_rate: 0%", "above 0%"),
        ("stall_rate: 100%", "below 100%"),
        ("tokens_per_chunk: {}", "p99: 8"),
        ("tokens_per_chunk: {p99: 0}", "must be more than 0"),
        ("tokens_per_chunk: {p95: 8, p99: 4}", "p95 (8 tokens) is above p99 (4 tokens)"),
        ("stream_gap: {p99: 200}", "a number and a unit"),
        ("stream_gaps: {p99: 200ms}", "stream_gap"),
    ],
)
def test_a_wrong_promise_on_streams_says_what_to_write(promised: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(SMALLEST.replace("{ttft: {p99: 1s}}", f"{{{promised}}}"))
    assert named in str(refused.value)


def test_a_lane_coalesces_as_it_is_written() -> None:
    lane = parse(SMALLEST.replace("max_wait: 500ms", "max_wait: 500ms, coalesce: {tokens: 4, within: 60ms}")).lane(
        "all"
    )
    assert lane.coalesce == CoalesceSpec(tokens=4, within_s=0.06)
    assert parse(SMALLEST).lane("all").coalesce is None


@pytest.mark.parametrize(
    ("written", "promised", "named"),
    [
        ("{tokens: 4}", "ttft: {p99: 1s}", "within"),
        ("{tokens: 1, within: 60ms}", "ttft: {p99: 1s}", "tokens"),
        ("{tokens: 4, within: 2s}", "ttft: {p99: 1s}", "within"),
        ("{tokens: 4, within: 1ms}", "ttft: {p99: 1s}", "within"),
        ("{tokens: 4, within: 60}", "ttft: {p99: 1s}", "a number and a unit"),
        ("{tokens: 4, within: 60ms}", "stream_gap: {p99: 50ms}", "coalesce.within (60ms) is above"),
        ("{tokens: 4, within: 60ms}", "tokens_per_chunk: {p99: 3}", "coalesce.tokens (4) is above"),
    ],
)
def test_a_wrong_coalescing_says_what_to_write(written: str, promised: str, named: str) -> None:
    text = SMALLEST.replace("{ttft: {p99: 1s}}", f"{{{promised}}}")
    with pytest.raises(ConfigError) as refused:
        parse(text.replace("max_wait: 500ms", f"max_wait: 500ms, coalesce: {written}"))
    assert named in str(refused.value)


def test_a_number_of_replicas_is_both_bounds() -> None:
    profile = parse(SMALLEST.replace("max_wait: 500ms", "max_wait: 500ms, replicas: 3"))
    assert profile.lane("all").replicas == ReplicaBounds(min=3, max=3)


def test_a_lane_overrides_engine_spot_and_only_the_emulator_keys_it_names() -> None:
    text = SMALLEST.replace(
        "max_wait: 500ms", "max_wait: 500ms, engine: emulator, spot: all, emulator: {flavour: tgi, speed: 4}"
    )
    lane = parse(text + "emulator: {seed: 7, startup: 5s, speed: 2}\ncapacity: {spot: none}\n").lane("all")
    assert lane.engine == "emulator"
    assert lane.spot is SpotPolicy.ALL
    assert lane.emulator == EmulatorSpec(flavour="tgi", seed=7, startup_s=5.0, speed=4.0)


def test_capacity_spot_holds_for_lanes_that_do_not_say() -> None:
    assert parse(SMALLEST + "capacity: {spot: none}\n").lane("all").spot is SpotPolicy.NONE


def test_pinned_launch_settings_are_kept_and_the_rest_is_left_to_the_plan() -> None:
    pinned = "launch: {max_num_seqs: 4, gpu_memory_utilization: 0.85, extra_args: [--seed, '1'], env: {B: x, A: y}}"
    launch = parse(SMALLEST.replace("max_wait: 500ms", "max_wait: 500ms, " + pinned)).lane("all").launch
    assert launch.max_num_seqs == 4
    assert launch.gpu_memory_utilization == 0.85
    assert launch.extra_args == ("--seed", "1")
    assert launch.env == {"A": "y", "B": "x"}
    assert launch.tensor_parallel is None


def test_an_open_gateway_with_key_references_is_allowed() -> None:
    profile = parse(SMALLEST + "gateway: {host: 0.0.0.0, api_keys: ['env:KEY', 'file:/etc/key', 'keyring:fleet/me']}\n")
    assert profile.gateway.api_keys == ("env:KEY", "file:/etc/key", "keyring:fleet/me")


def test_anchors_and_merge_keys_are_understood() -> None:
    text = SMALLEST.replace(
        "{slo: {ttft: {p99: 1s}}, max_wait: 500ms}", "&base {slo: {ttft: {p99: 1s}}, max_wait: 500ms}"
    )
    text += "  more: {<<: *base, max_wait: 2s, match: {batch: true}}\n"
    profile = parse(text)
    assert profile.lane("more").slo == profile.lane("all").slo
    assert profile.lane("more").max_wait_s == 2.0


def test_words_that_old_yaml_turns_into_other_things_stay_words() -> None:
    text = SMALLEST.replace("id: meta-llama/Llama-3.2-1B", "id: meta-llama/Llama-3.2-1B, served_name: no").replace(
        "max_wait: 500ms", "max_wait: 500ms, launch: {env: {A: 2024-01-01, B: on}}"
    )
    profile = parse(text)
    assert profile.model.name == "no"
    assert profile.lane("all").launch.env == {"A": "2024-01-01", "B": "on"}


def test_a_model_path_starts_from_the_profiles_own_directory(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        SMALLEST.replace("{id: meta-llama/Llama-3.2-1B}", "{id: m, path: weights/tiny, served_name: t}")
    )
    profile = load_profile(tmp_path / "p.yaml")
    assert profile.model.path == str(tmp_path / "weights" / "tiny")
    assert profile.model.name == "t"


def test_weights_in_s3_are_no_path_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        SMALLEST.replace("{id: meta-llama/Llama-3.2-1B}", "{id: m, path: s3://team/llama/8b/}").replace(
            "max_wait: 500ms", "max_wait: 500ms, weights: {path: s3://team/llama/8b-awq}"
        )
    )
    profile = load_profile(tmp_path / "p.yaml")
    assert profile.model.path == "s3://team/llama/8b"
    own = profile.lanes[0].weights
    assert own is not None
    assert own.path == "s3://team/llama/8b-awq"


def test_a_trace_fills_what_the_workload_leaves_open(tmp_path: Path) -> None:
    rows = "".join(f"{second},{100 + second},{5}\n" for second in range(120) for _ in range(3))
    with gzip.open(tmp_path / "day.csv.gz", "wt") as trace:
        trace.write("arrival_s,prompt_tokens,output_tokens\n" + rows)
    profile_text = SMALLEST.replace(
        "{peak_rps: 1, prompt_tokens: {p50: 10, p99: 20}, output_tokens: {p50: 10, p99: 20}}",
        "{trace: day.csv.gz, output_tokens: {p50: 7, p99: 9}}",
    )
    (tmp_path / "p.yaml").write_text(profile_text)
    workload = load_profile(tmp_path / "p.yaml").workload
    assert workload.trace == str(tmp_path / "day.csv.gz")
    assert workload.peak_rps == pytest.approx(3.0)
    assert workload.prompt_tokens == Distribution(p50=159, p99=218)
    assert workload.output_tokens == Distribution(p50=7, p99=9)


def test_equal_profiles_have_equal_hashes_however_they_are_written() -> None:
    same = SMALLEST.replace("500ms", "0.5s").replace("peak_rps: 1,", "peak_rps: 1.0,") + "# a comment\n"
    other = SMALLEST.replace("500ms", "501ms")
    assert profile_hash(parse(SMALLEST)) == profile_hash(parse(same))
    assert profile_hash(parse(SMALLEST)) != profile_hash(parse(other))


@pytest.mark.parametrize("use_case", use_cases())
def test_every_packaged_profile_is_a_profile_and_survives_the_codec(use_case: str) -> None:
    profile = parse(starter(use_case))
    assert profile.name == use_case
    assert codec.decode(Profile, codec.encode(profile)) == profile


def test_quickstart_is_seven_replicas_in_three_lanes() -> None:
    profile = parse(starter("quickstart"))
    assert {lane.name: lane.replicas.min for lane in profile.lanes} == {"short": 3, "long": 3, "batch": 1}
    assert {lane.emulator.flavour for lane in profile.lanes} == {"vllm", "tgi"}
    assert {lane.spot for lane in profile.lanes} == {SpotPolicy.BURST, SpotPolicy.ALL}
    assert (profile.gateway.host, profile.gateway.port) == ("127.0.0.1", 8080)
    assert profile.lane("batch").slo.limit_s(Metric.COMPLETION, 0.95) == 4 * 3600


@pytest.mark.parametrize(
    ("use_case", "ttft_s", "itl_s"),
    [
        ("chat", 0.3, 0.05),
        ("voice", 0.15, 0.03),
        ("code-inline", 0.1, 0.025),
        ("code-panel", 0.3, 0.05),
        ("rag", 0.4, 0.08),
        ("batch", 3.0, 0.2),
    ],
)
def test_use_cases_promise_the_published_targets(use_case: str, ttft_s: float, itl_s: float) -> None:
    first = parse(starter(use_case)).lanes[0].slo
    assert first.limit_s(Metric.TTFT) == pytest.approx(ttft_s)
    assert first.limit_s(Metric.ITL) == pytest.approx(itl_s)


def test_a_starter_takes_another_name() -> None:
    assert parse(starter("chat", name="support-chat")).name == "support-chat"
    with pytest.raises(ConfigError, match="not a fleet name"):
        starter("chat", name="Support Chat")


def test_an_unknown_use_case_names_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'voice'") as caught:
        starter("voise")
    assert "code-inline" in caught.value.hint


def test_a_users_own_use_case_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own = tmp_path / "fleetctl" / "profiles" / "use-cases"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(SMALLEST)
    assert "mine" in use_cases()
    assert starter("mine") == SMALLEST


def test_a_missing_profile_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        load_profile(tmp_path / "none.yaml")
    assert "fleetctl init" in caught.value.hint
