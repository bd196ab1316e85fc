"""How engines serve is decided by model and promise, each with its reason; what a profile pins stands or is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.engine_kit.dialects import reasoning_dialect, tool_call_dialect
from fleetctl.engine_kit.serving import serving_errors, with_serving
from fleetctl.model.profile import LaunchOverrides
from fleetctl.model.serving import PerformanceMode, Speculation, SpeculationMethod
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from tests.engines.test_launch import launch, options
from tests.plan.profiles import CATALOGUE

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan

ITL_20MS = LaneSlo(targets=(LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.02),))
COMPLETION = LaneSlo(targets=(LatencyTarget(metric=Metric.COMPLETION, percentile=0.95, limit_s=3600.0),))
TTFT_1S = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=1.0),))


def decided(
    engine: str,
    *,
    model: str = samples.MODEL_ID,
    slo: LaneSlo = TTFT_1S,
    gpus: int = 1,
    pinned: LaunchOverrides | None = None,
) -> LanePlan:
    """Return the lane `short` as decided for an engine."""
    profile, plan = samples.profile(), samples.plan()
    lane = replace(profile.lane("short"), engine=engine, slo=slo, launch=pinned or LaunchOverrides())
    profile = replace(profile, model=replace(profile.model, id=model), lanes=(lane,))
    planned = replace(plan.lane("short"), engine=engine, tensor_parallel=gpus)
    plan = replace(plan, lanes=(planned,), model_card=CATALOGUE.models.get(model))
    return with_serving(plan, profile, load_engine).lanes[0]


def reason(lane: LanePlan, name: str) -> str:
    (found,) = [each for each in lane.reasons if each.startswith(f"{name} ")]
    return found


@pytest.mark.parametrize(
    ("model", "calls", "thinks"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3", ""), ("meta-llama/Llama-3.1-8B", "", ""), ("Qwen/Qwen3-32B-AWQ", "hermes", "qwen3"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "hermes", ""), ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder", ""),
        ("Qwen/Qwen2.5-72B-Instruct", "hermes", ""), ("Qwen/Qwen2.5-Coder-7B-Instruct", "", ""), ("openai/gpt-oss-120b", "gpt-oss", "gpt-oss"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral", ""), ("mistralai/Mixtral-8x7B-v0.1", "", ""),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "", "deepseek-r1"), ("/models/qwen3-8b-base", "", ""), ("acme/tiny", "", ""),
    ],
)  # fmt: skip
def test_parsers_follow_the_models_name(model: str, calls: str, thinks: str) -> None:
    assert (tool_call_dialect(model), reasoning_dialect(model)) == (calls, thinks)


def test_what_is_decided_is_spelt_as_each_engine_has_it() -> None:
    settings = decided("vllm", model="openai/gpt-oss-120b", gpus=8).launch
    found = {
        engine: options(
            launch(engine, tool_call_parser=settings.tool_call_parser, reasoning_parser=settings.reasoning_parser, expert_parallel=True, tensor_parallel=8).argv
        )
        for engine in ("vllm", "sglang", "tgi")
    }  # fmt: skip
    assert found["vllm"]["--enable-auto-tool-choice"] is True
    assert (found["vllm"]["--tool-call-parser"], found["vllm"]["--reasoning-parser"]) == ("openai", "openai_gptoss")
    assert found["vllm"]["--enable-expert-parallel"] is True
    assert (found["sglang"]["--tool-call-parser"], found["sglang"]["--reasoning-parser"]) == ("gpt-oss", "gpt-oss")
    assert found["sglang"]["--ep-size"] == "8"
    assert found["tgi"].keys() == options(launch("tgi").argv).keys()


def test_a_lane_that_promises_nothing_of_streams_writes_fewer_events() -> None:
    seen, unseen = decided("vllm", slo=TTFT_1S), decided("vllm", slo=COMPLETION)
    assert (seen.launch.stream_interval, unseen.launch.stream_interval) == (1, 8)
    assert unseen.launch.performance_mode is PerformanceMode.THROUGHPUT
    assert "neither TTFT nor ITL is promised" in reason(unseen, "performance_mode")
    assert options(launch("vllm", stream_interval=8, performance_mode=PerformanceMode.THROUGHPUT).argv).items() >= {
        ("--stream-interval", "8"),
        ("--performance-mode", "throughput"),
    }


def test_short_gaps_are_what_kernels_are_chosen_for_and_balanced_needs_no_flag() -> None:
    assert decided("vllm", slo=ITL_20MS).launch.performance_mode is PerformanceMode.INTERACTIVITY
    assert decided("vllm").launch.performance_mode is PerformanceMode.BALANCED
    assert "--performance-mode" not in options(launch("vllm", performance_mode=PerformanceMode.BALANCED).argv)


def test_experts_are_whole_where_slices_would_be_thin() -> None:
    few, many = (decided("vllm", model="openai/gpt-oss-120b", gpus=gpus) for gpus in (2, 8))
    assert (few.launch.expert_parallel, many.launch.expert_parallel) == (False, True)
    assert "no experts" in reason(decided("vllm"), "expert_parallel")


def test_an_engine_decides_only_what_it_has() -> None:
    names = {each.partition(" ")[0] for each in decided("tgi").reasons}
    assert {"max_queued_requests", "speculation"} <= names
    assert not {"tool_call_parser", "stream_interval", "performance_mode"} & names
    assert decided("llamacpp").launch == replace(samples.plan().lane("short").launch)


def test_what_is_pinned_stands_and_is_named() -> None:
    pinned = LaunchOverrides(stream_interval=3, tool_call_parser="none", expert_parallel=True)
    lane = decided("vllm", slo=COMPLETION, pinned=pinned)
    assert lane.launch.stream_interval == samples.plan().lane("short").launch.stream_interval, "left to the plan's own"
    assert "pinned by the profile" in reason(lane, "stream_interval")
    assert reason(lane, "tool_call_parser").endswith(": pinned by the profile")


@pytest.mark.parametrize(
    ("engine", "pinned", "says"),
    [
        ("tgi", {"stream_interval": 4}, "tgi has no stream_interval"),
        ("llamacpp", {"tool_call_parser": "hermes"}, "llamacpp has no tool_call_parser"),
        ("sglang", {"performance_mode": PerformanceMode.THROUGHPUT}, "sglang has no performance_mode"),
        ("tgi", {"speculation": Speculation(method=SpeculationMethod.EAGLE, model="a/b")}, "tgi does not guess by eagle; it knows: ngram"),
    ],
)  # fmt: skip
def test_what_an_engine_has_not_is_refused(engine: str, pinned: dict[str, Any], says: str) -> None:
    lane = replace(samples.profile().lane("short"), engine=engine, launch=LaunchOverrides(**pinned))
    (error,) = serving_errors(lane, load_engine)
    assert says in error.message
    assert error.key == ("lanes", "short", "launch", *pinned)
    assert not list(serving_errors(replace(lane, engine="vllm"), load_engine))


def test_guessing_ahead_is_spelt_as_each_engine_has_it() -> None:
    ngram = Speculation(method=SpeculationMethod.NGRAM, tokens=5)
    head = Speculation(method=SpeculationMethod.EAGLE3, tokens=3, model="acme/head")
    spelt = json.loads(str(options(launch("vllm", speculation=ngram).argv)["--speculative-config"]))
    assert spelt == {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 5, "prompt_lookup_min": 2}
    spelt = json.loads(str(options(launch("vllm", speculation=head).argv)["--speculative-config"]))
    assert spelt == {"method": "eagle3", "model": "acme/head", "num_speculative_tokens": 3}
    found = options(launch("sglang", speculation=head).argv)
    assert found.items() >= {
        ("--speculative-algorithm", "EAGLE3"),
        ("--speculative-num-steps", "2"),
        ("--speculative-num-draft-tokens", "3"),
        ("--speculative-draft-model-path", "acme/head"),
    }
    assert options(launch("tgi", speculation=ngram).argv)["--speculate"] == "5"
    none = Speculation(method=SpeculationMethod.NONE)
    for engine in ("vllm", "sglang", "tgi"):
        assert launch(engine, speculation=none).argv == launch(engine).argv


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "--max-num-queued-reqs"), ("sglang", "--max-queued-requests"), ("tgi", "--max-concurrent-requests")])  # fmt: skip
def test_a_pinned_bound_of_the_engines_own_queue_is_the_one_that_is_emulated(engine: str, flag: str) -> None:
    assert options(launch(engine, max_queued_requests=77).argv)[flag] == "77"
    assert options(launch("emulator", flavour=engine, max_queued_requests=77).argv)["--max-queued-requests"] == "77"
