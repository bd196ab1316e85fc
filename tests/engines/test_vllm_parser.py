"""Every `vllm serve` line fleetctl writes, before vLLM's own parser and engine configuration."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.config.use_cases import use_cases
from fleetctl.core.plan.fleet import make_plan
from fleetctl.engine_kit.flags import known_flags
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.model.serving import PerformanceMode, Speculation, SpeculationMethod
from fleetctl.operations.profiles import find_profile
from fleetctl.operations.rendering import render
from fleetctl.plugins import load_provider
from fleetctl.testing import samples
from fleetctl_vllm.engine import VllmEngine
from fleetctl_vllm.launch import REASONING_PARSERS, TOOL_CALL_PARSERS
from tests.engines.environment import CHECKOUT, engine_env, offline
from tests.engines.rendered_profiles import MIXTURE, profiles, rendered
from tests.sites import plugins_site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import LaunchSettings

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

# The shape of Llama-3.1-70B (its public config.json): enough heads for every tensor-parallel size. No weights are read.
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 131072, "vocab_size": 128256, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-05,
}  # fmt: skip


MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
    "vocab_size": 32000, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-05, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parser:
    """One vLLM for all questions: importing it takes longer than judging a hundred command lines."""

    process: subprocess.Popen[str]
    model: Path

    def verdicts(self, argvs: list[tuple[str, ...]], *, model: Path | None = None) -> list[str]:
        """Return what it says of `vllm serve` lines: "" for one it takes."""
        assert all(argv[1] == "serve" for argv in argvs)
        found: list[str] = self._answer([[str(model or self.model), *argv[3:]] for argv in argvs])
        assert len(found) == len(argvs)
        return found

    def flags(self) -> set[str]:
        """Return every flag it knows."""
        return set(self._answer(None))

    def _answer(self, question: list[list[str]] | None) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "it has ended"
        return json.loads(answer)


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    place = tmp_path_factory.mktemp("parser")
    model = place / "model"
    model.mkdir()
    write_model(model, LLAMA_70B)
    command = [engine_env() / "bin" / "python", CHECKOUT / "tests" / "engine_env" / "check_arguments.py"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(model), **offline()}
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        yield Parser(process, model)
        process.kill()


def write_model(directory: Path, config: dict[str, Any]) -> None:
    """Write a model's shape, and the tiny one's tokenizer with the marks that reasoning parsers look for in it."""
    (directory / "config.json").write_text(json.dumps(config))
    for file in (engine_env() / "models" / "tiny").glob("*token*"):
        shutil.copy(file, directory)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    taken = [token["id"] for token in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values())
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    marks = ("<think>", "</think>", "[THINK]", "[/THINK]", "[TOOL_CALLS]")
    tokenizer["added_tokens"] += [
        {"id": number, "content": mark, "special": True, **plain} for number, mark in enumerate(marks, max(taken) + 1)
    ]
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """Return the directory of a model with experts: the shape of Mixtral 8x7B."""
    directory = tmp_path / "mixture"
    directory.mkdir()
    write_model(directory, MIXTRAL)
    return directory


def launched(settings: LaunchSettings) -> tuple[str, ...]:
    lane_plan = replace(samples.lane_plan("short"), launch=settings)
    lane = samples.profile().lane("short")
    engine = VllmEngine("vllm")
    return engine.launch(plan=samples.plan(), lane=lane, lane_plan=lane_plan, host="127.0.0.1", port=8001).argv


async def test_every_lane_of_every_packaged_profile_is_taken(
    parser: Parser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    catalogue = load_catalogue()
    argvs: dict[str, tuple[str, ...]] = {}
    for name in use_cases():
        profile = find_profile(name)
        card = resolve_model(profile.model, catalogue)
        offerings = await load_provider("local").offerings()
        plan = make_plan(profile, model_card=card, catalogue=catalogue, offerings=offerings, profile_hash="")
        for path, text in render(plugins_site(), profile, plan, engine="vllm").items():
            if path.endswith("launch.json"):
                argvs[f"{name}/{path}"] = tuple(json.loads(text)["argv"])
    assert len(argvs) >= 9
    refused = dict(zip(argvs, parser.verdicts(list(argvs.values())), strict=True))
    assert not {name: complaint for name, complaint in refused.items() if complaint}


def test_every_lane_of_ten_profiles_is_taken_as_the_plan_decides_it(
    parser: Parser, mixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    argvs = rendered("vllm")
    assert len(profiles()) >= 10
    assert {name.partition("/")[0] for name in argvs} == profiles().keys()
    for model, chosen in (
        (mixture, {n: argv for n, argv in argvs.items() if n.startswith(MIXTURE)}),
        (parser.model, {n: argv for n, argv in argvs.items() if not n.startswith(MIXTURE)}),
    ):
        verdicts = parser.verdicts(list(chosen.values()), model=model)
        refused = dict(zip(chosen, verdicts, strict=True))
        assert not {name: complaint for name, complaint in refused.items() if complaint}


def test_every_way_of_serving_is_taken(parser: Parser, mixture: Path) -> None:
    base = samples.lane_plan("short").launch
    settings = [
        *(replace(base, tool_call_parser=dialect) for dialect in TOOL_CALL_PARSERS),
        *(replace(base, reasoning_parser=dialect) for dialect in REASONING_PARSERS),
        *(replace(base, performance_mode=mode) for mode in PerformanceMode),
        replace(base, stream_interval=8, long_prefill_tokens=512, max_queued_requests=300, priority_scheduling=True),
        replace(base, speculation=Speculation(method=SpeculationMethod.NGRAM, tokens=1)),
        replace(base, speculation=Speculation(method=SpeculationMethod.NGRAM, tokens=8)),
    ]
    argvs = [launched(one) for one in settings]
    refused = dict(zip(argvs, parser.verdicts(argvs), strict=True))
    assert not {argv: complaint for argv, complaint in refused.items() if complaint}
    experts = [
        launched(replace(base, expert_parallel=True, tensor_parallel=tensor_parallel)) for tensor_parallel in (2, 8)
    ]
    assert parser.verdicts(experts, model=mixture) == ["", ""]
    wrong = [launched(replace(base, tool_call_parser="hermess")), launched(replace(base, reasoning_parser="qwen9"))]
    assert all(parser.verdicts(wrong))


def test_every_combination_of_launch_settings_is_taken(parser: Parser) -> None:
    base = samples.lane_plan("short").launch
    settings = [
        replace(base, tensor_parallel=tensor_parallel, quantization=quantization, kv_cache=kv_cache)
        for tensor_parallel, quantization, kv_cache in itertools.product((1, 2, 8), Precision, (None, *Precision))
    ]
    settings += [
        replace(base, max_num_seqs=1, max_model_len=256, max_num_batched_tokens=16, gpu_memory_utilization=0.05),
        replace(base, max_num_seqs=4096, max_num_batched_tokens=512, gpu_memory_utilization=1.0),
        replace(base, max_model_len=131072, prefix_caching=False),
        replace(base, shutdown_timeout_s=0.0),
        replace(base, shutdown_timeout_s=99.5),
        replace(base, served_name='a name with spaces, "quotes" and --dashes'),
        replace(base, extra_args=("--max-num-seqs", "8", "--no-enable-prefix-caching", "-tp", "2")),
        replace(base, extra_args=("--enforce-eager", "--kv-cache-memory-bytes", "64M")),
        replace(base, extra_args=("--override-generation-config", '{"temperature": 0.5}')),
    ]
    argvs = []
    for one in settings:
        try:
            argvs.append(launched(one))
        except ConfigError:
            assert one.quantization is Precision.INT4  # which vLLM cannot make while loading
    assert len(argvs) > 70
    refused = dict(zip(argvs, parser.verdicts(argvs), strict=True))
    assert not {argv: complaint for argv, complaint in refused.items() if complaint}


def test_vllm_would_have_said_so_had_a_flag_been_wrong(parser: Parser) -> None:
    base = samples.lane_plan("short").launch
    wrong = [
        ("--swap-space", "4"),  # gone
        ("--disable-log-requests",),  # gone
        ("--scheduling-policy", "lifo"),
        ("--max-num-seqs", "many"),
        ("--gpu-memory-utilization", "1.5"),
        ("--tensor-parallel-size", "3"),  # does not divide the heads
        ("--override-generation-config", "{broken"),
    ]
    argvs = [launched(replace(base, extra_args=extra)) for extra in wrong]
    assert all(parser.verdicts(argvs))


def test_vllm_takes_stages_and_ranks_on_one_machine(parser: Parser, mixture: Path) -> None:
    base = samples.lane_plan("short").launch
    sizes = [(1, 1, 8), (2, 1, 4), (4, 2, 1), (2, 2, 2), (1, 3, 1)]
    argvs = [
        launched(replace(base, tensor_parallel=tensor, pipeline_parallel_local=stages, data_parallel=ranks))
        for tensor, stages, ranks in sizes
    ]
    assert parser.verdicts(argvs) == [""] * len(argvs)
    experts = [launched(replace(base, tensor_parallel=1, data_parallel=8, expert_parallel=True))]
    assert parser.verdicts(experts, model=mixture) == [""]


def test_vllm_takes_the_commands_of_a_leader_and_of_its_members(parser: Parser) -> None:
    lane_plan = samples.lane_plan("short")
    lane_plan = replace(lane_plan, launch=replace(lane_plan.launch, tensor_parallel=8, pipeline_parallel=2))
    lane = samples.profile().lane("short")
    command = VllmEngine().launch(plan=samples.plan(), lane=lane, lane_plan=lane_plan, host="0.0.0.0", port=8000)  # noqa: S104
    order = samples.node_request(argv=command.argv, member_argv=command.member_argv, node_count=2)
    spelt = [order.command(rank, leader_host="10.0.0.7") for rank in range(2)]
    assert parser.verdicts(spelt) == ["", ""]


def test_the_kept_list_of_flags_is_the_parsers_own(
    parser: Parser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    # What its preprocessor takes beside: a file of settings, and -O3 for a compilation level.
    assert known_flags("vllm") == {*parser.flags(), "--config", "-O"}
