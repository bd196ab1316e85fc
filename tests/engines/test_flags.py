"""The kept lists of flags are those of the engines' own parsers, and a word is refused only where a parser would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from fleetctl.catalogue.known import load_catalogue
from fleetctl.engine_kit.flags import (
    flag_errors,
    format_errors,
    gpu_errors,
    known_flags,
    planned_errors,
    reserved_errors,
)
from fleetctl.engine_kit.serving import serving_errors
from fleetctl.model.catalogue import Precision
from fleetctl.operations.formats import format_findings
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from fleetctl_emulator.options import flags as emulator_flags
from tests.engines.rendered_profiles import profiles, rendered
from tests.engines.test_launch import TGI_FLAGS, launch, options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "fleetctl" / "profiles" / "engine-flags"


def refused(engine: str, *words: str) -> list[str]:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=words))
    return [error.message for error in flag_errors(lane)]


def test_the_lists_are_the_parsers_own() -> None:
    assert known_flags("emulator") == emulator_flags()
    assert known_flags("tgi") >= TGI_FLAGS
    for engine in ("vllm", "tgi", "emulator"):
        assert options(launch(engine).argv).keys() <= known_flags(engine)


@pytest.mark.parametrize(
    "words",
    [
        ("--enable-eplb",), ("--max_num_seqs", "8"), ("--max-num-seqs=8",), ("--compilation-config.level", "3"), ("-O3",), ("-tp", "2"),
        ("--no-enable-prefix-caching",), ("--enforce-eag",), ("--seed", "-1"), ("--hf-overrides", '{"a": "--b"}'),
    ],
)  # fmt: skip
def test_what_vllm_takes_is_taken(words: tuple[str, ...]) -> None:
    assert refused("vllm", *words) == []


@pytest.mark.parametrize("word", ["--enable-eplbb", "--max-batch-size", "--frobnicate=1", "-z"])
def test_what_vllm_does_not_know_is_refused(word: str) -> None:
    assert f"vllm has no flag {word.split('=', maxsplit=1)[0]}" in refused("vllm", word)[0]


def test_a_flag_of_a_newer_engine_is_taken_once_the_user_lists_it(own_config: Path) -> None:
    assert refused("vllm", "--frobnicate")
    own_config.mkdir(parents=True)
    (own_config / "vllm.txt").write_text("# ours\n--frobnicate  since 0.40\n")
    assert not refused("vllm", "--frobnicate", "--enable-eplb")


def test_an_engine_without_a_list_is_given_what_it_is_given() -> None:
    assert known_flags("acme") == frozenset()
    assert refused("acme", "--anything") == []


@pytest.mark.slow  # ten whole fleets are planned
@pytest.mark.timeout(300)
def test_ten_profiles_are_rendered_in_flags_that_their_engines_have() -> None:
    assert len(profiles()) >= 10
    for engine in ("tgi", "llamacpp", "sglang", "vllm"):
        argvs = rendered(engine)
        assert {name.partition("/")[0] for name in argvs} == profiles().keys()
        unknown = {name: options(argv).keys() - known_flags(engine) for name, argv in argvs.items()}
        assert not {name: flags for name, flags in unknown.items() if flags}


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ("vllm", "--port"), ("vllm", "--port=9999"), ("vllm", "--tensor_parallel_size"), ("vllm", "-tp"), ("vllm", "-tp2"),
        ("vllm", "--pipeline-parallel-size"), ("vllm", "--data-parallel-size=4"), ("vllm", "--served-mod"), ("vllm", "--disable-log-stats"),
        ("tgi", "--num-shard"), ("tgi", "-p"), ("tgi", "--hostname"), ("sglang", "--tp"), ("sglang", "--dp-size"), ("sglang", "--host"),
        ("llamacpp", "--alias"), ("llamacpp", "-m"), ("llamacpp", "--port"), ("emulator", "--port"), ("emulator", "--tensor-parallel"),
        ("vllm", "--config"), ("sglang", "--config"), ("sglang", "--ep"), ("sglang", "--base-gpu-id"), ("sglang", "--max-total-tokens"),
    ],
)  # fmt: skip
def test_what_fleetctl_sets_itself_is_refused_with_what_to_do_instead(engine: str, word: str) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=("--seed", "1", word)))
    (error,) = reserved_errors(lane, load_engine(engine).capabilities)
    assert f"of {engine} is set by fleetctl itself" in error.message
    assert error.key == ("lanes", "short", "launch", "extra_args", 2)
    assert error.hint


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ("--max-num-seqs", "8", "--scheduling-policy", "fcfs", "--enable-expert-parallel", "-O3", "--hf-overrides", "--port-like-value")),
        ("tgi", ("--max-batch-size", "4")), ("sglang", ("--page-size", "16")), ("llamacpp", ("--threads", "1", "-ngl", "99")),
        ("emulator", ("--fault", "slow", "--stream-interval", "3")),
    ],
)  # fmt: skip
def test_what_is_the_users_is_no_flag_of_ours(engine: str, words: tuple[str, ...]) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=words))
    assert not list(reserved_errors(lane, load_engine(engine).capabilities))


@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator", "llamacpp"])
def test_every_flag_of_ours_is_one_that_the_engine_has(engine: str) -> None:
    unlisted = {"--model"} if engine == "vllm" else set()  # it takes the model as a word, and the flag still
    assert load_engine(engine).capabilities.reserved_flags.keys() <= known_flags(engine) | unlisted


@pytest.mark.parametrize(
    ("engine", "word", "key"),
    [
        ("vllm", "--max-num-seqs", "lanes.short.launch.max_num_seqs"), ("vllm", "--max_model_len=4096", "lanes.short.launch.max_model_len"),
        ("vllm", "--max-num-batched-tokens", "lanes.short.launch.max_num_batched_tokens"), ("vllm", "--kv-cache-dtype=fp8", "model.kv_cache"),
        ("vllm", "--gpu-memory-util", "lanes.short.launch.gpu_memory_utilization"), ("vllm", "--no-enable-prefix-caching", "lanes.short.launch.prefix_caching"),
        ("sglang", "--context-length", "lanes.short.launch.max_model_len"), ("sglang", "--mem-fraction-static=0.8", "lanes.short.launch.gpu_memory_utilization"),
        ("tgi", "--max-total-tokens", "lanes.short.launch.max_model_len"), ("tgi", "--max-batch-prefill-tokens", "lanes.short.launch.max_num_batched_tokens"),
        ("llamacpp", "-c", "lanes.short.launch.max_model_len"), ("llamacpp", "--parallel", "lanes.short.launch.max_num_seqs"),
        ("emulator", "--max-num-seqs", "lanes.short.launch.max_num_seqs"),
    ],
)  # fmt: skip
def test_a_flag_for_a_size_that_the_plan_is_made_by_is_refused_with_the_key_that_pins_it(
    engine: str, word: str, key: str
) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=("--seed", "1", word)))
    (error,) = planned_errors(lane, load_engine(engine).capabilities)
    assert "would change a size that the plan is made by" in error.message
    assert error.hint.endswith(f": {key}")
    assert error.key == ("lanes", "short", "launch", "extra_args", 2)


@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator", "llamacpp"])
def test_every_flag_for_a_planned_size_is_one_that_the_engine_has(engine: str) -> None:
    assert load_engine(engine).capabilities.planned_flags.keys() <= known_flags(engine)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ("--kv-cache-memory-bytes", "64M")), ("vllm", ("--kv_cache_memory=1",)), ("vllm", ("--num-gpu-blocks-override=40",)),
        ("llamacpp", ("-ngl", "20")), ("llamacpp", ("--gpu-layers", "20")), ("llamacpp", ("-nkvo",)), ("llamacpp", ("--device", "none")),
    ],
)  # fmt: skip
def test_what_changes_the_use_of_gpus_is_refused_where_a_lane_has_some(engine: str, words: tuple[str, ...]) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=("--seed", "1", *words)))
    (error,) = gpu_errors(lane, load_engine(engine).capabilities)
    assert "would change what the plan reckons with on its GPUs" in error.message
    assert error.key == ("lanes", "short", "launch", "extra_args", 2)
    assert error.hint


@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator", "llamacpp"])
def test_every_flag_for_the_use_of_gpus_is_one_that_the_engine_has(engine: str) -> None:
    assert load_engine(engine).capabilities.gpu_flags.keys() <= known_flags(engine)


@pytest.mark.parametrize(
    ("engine", "words"),
    [("vllm", ("--kv-cache-memory-bytes", "64M", "--enforce-eager", "--max-logprobs", "5")), ("llamacpp", ("--threads", "1", "-ngl", "99"))],
)  # fmt: skip
def test_what_no_plan_is_made_by_is_the_users(engine: str, words: tuple[str, ...]) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=words))
    assert not list(planned_errors(lane, load_engine(engine).capabilities))


@pytest.mark.parametrize(
    ("engine", "word"),
    [("vllm", "--dtype=half"), ("vllm", "-q"), ("vllm", "--dtyp"), ("sglang", "--dtype"), ("tgi", "--quantize")],
)
def test_another_format_than_the_planned_16_bits_is_refused_with_its_key(engine: str, word: str) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=("--seed", "1", word)))
    capabilities = load_engine(engine).capabilities
    (error,) = format_errors(lane, Precision.BF16, capabilities)
    assert "would change the format that the plan reckons with (bf16)" in error.message
    assert error.key == ("lanes", "short", "launch", "extra_args", 2)
    assert not list(format_errors(lane, Precision.INT4, capabilities))  # how its checkpoint is read is the engine's


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ("vllm", "--cpu-offload-gb"), ("vllm", "--distributed-executor-backend=ray"), ("sglang", "--cpu-offload-gb"),
        ("tgi", "--max-batch-total-tokens"), ("llamacpp", "--n-cpu-moe"),
    ],
)  # fmt: skip
def test_what_takes_weights_or_processes_elsewhere_than_planned_is_refused(engine: str, word: str) -> None:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=(word, "4")))
    (error,) = reserved_errors(lane, load_engine(engine).capabilities)
    assert error.key == ("lanes", "short", "launch", "extra_args", 0)


@pytest.mark.parametrize(("engine", "near"), [("vllm", "hermes"), ("sglang", "hermes")])
@pytest.mark.parametrize("name", ["tool_call_parser", "reasoning_parser"])
def test_a_parser_that_no_engine_has_is_refused_with_the_nearest_one(engine: str, near: str, name: str) -> None:
    base = samples.profile().lane("short")
    wrong: dict[str, Any] = {"tool_call_parser": f"{near}s", "reasoning_parser": "qwen33"}
    pinned = replace(base, engine=engine, launch=replace(base.launch, **{name: wrong[name]}))
    (error,) = serving_errors(pinned, load_engine)
    assert f"{engine} has no {name} {wrong[name]!r} (did you mean" in error.message
    assert error.key == ("lanes", "short", "launch", name)
    assert not list(serving_errors(pinned, load_engine, is_consulted=True))
    names: dict[str, Any] = dict.fromkeys(load_engine(engine).capabilities.parser_names[name])
    for known in (*names, "none"):
        right = replace(base, engine=engine, launch=replace(base.launch, **cast("dict[str, Any]", {name: known})))
        assert not list(serving_errors(right, load_engine))


def test_bfloat16_before_ampere_is_warned_of() -> None:
    t4 = load_catalogue().gpus["T4"]
    plan = samples.plan()
    lane = replace(samples.lane_plan("short"), gpu="T4", gpu_spec=t4)
    (found,) = format_findings(replace(plan, lanes=(lane,)))
    assert "model.quantization to fp16" in found.hint
    right = replace(lane, launch=replace(lane.launch, quantization=Precision.FP16))
    assert not list(format_findings(replace(plan, lanes=(right,))))
    assert not list(format_findings(plan))
