from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from fleetctl import codec
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import GpuSpec, ModelCard, Precision
from fleetctl.model.node import LEADER_HOST, NODE_RANK
from fleetctl.model.profile import EmulatorSpec
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from fleetctl_emulator.options import parse_options
from fleetctl_sglang.engine import SglangEngine
from fleetctl_tgi.engine import TgiEngine
from fleetctl_vllm.engine import VllmEngine

if TYPE_CHECKING:
    from fleetctl.ports.engine import LaunchCommand

TGI_FLAGS = frozenset(
    line.split("\t")[0]
    for line in (Path(__file__).parent / "tgi_launcher_flags.tsv").read_text().splitlines()
    if line.startswith("--")
)
# The flags SGLang 0.5.23 documents under "Server Arguments", those fleetctl uses; the list there holds some 300 more.
SGLANG_FLAGS = {
    "--model-path", "--served-model-name", "--host", "--port", "--tensor-parallel-size", "--dtype", "--quantization",
    "--kv-cache-dtype", "--max-running-requests", "--context-length", "--chunked-prefill-size", "--mem-fraction-static",
    "--disable-radix-cache", "--enable-metrics", "--enable-cache-report",
}  # fmt: skip

precisions = st.sampled_from(list(Precision))
settings = st.fixed_dictionaries(
    {
        "tensor_parallel": st.sampled_from([1, 2, 4, 8]),
        "quantization": precisions,
        "kv_cache": st.none() | precisions,
        "max_num_seqs": st.integers(1, 1024),
        "max_model_len": st.integers(2, 131072),
        "max_num_batched_tokens": st.integers(1, 65536),
        "gpu_memory_utilization": st.floats(0.05, 1.0),
        "prefix_caching": st.booleans(),
        "shutdown_timeout_s": st.floats(0, 1000),
    }
)


def launch(name: str, *, port: int = 8001, flavour: str = "vllm", **changes: Any) -> LaunchCommand:
    lane_plan = samples.lane_plan("short")
    lane_plan = replace(lane_plan, launch=replace(lane_plan.launch, **changes))
    lane = replace(samples.profile().lane("short"), emulator=EmulatorSpec(flavour=flavour, seed=7))
    return load_engine(name).launch(plan=samples.plan(), lane=lane, lane_plan=lane_plan, host="127.0.0.1", port=port)


def options(argv: tuple[str, ...]) -> dict[str, str | bool]:
    """Read `--flag value` and `--flag` back; a flag given twice is an error."""
    found: dict[str, str | bool] = {}
    for word, following in zip(argv, [*argv[1:], "--"], strict=True):
        if word.startswith("--"):
            assert word not in found, f"{word} twice in {argv}"
            found[word] = True if following.startswith("--") else following
    return found


def test_vllm_gets_every_setting_of_the_plan() -> None:
    argv = launch("vllm", kv_cache=Precision.FP8).argv
    assert argv[1:3] == ("serve", samples.MODEL_ID)
    assert options(argv) == {
        "--served-model-name": samples.MODEL_ID,
        "--tensor-parallel-size": "1",
        "--dtype": "bfloat16",
        "--kv-cache-dtype": "fp8",
        "--max-num-seqs": "64",
        "--max-model-len": "8192",
        "--max-num-batched-tokens": "2048",
        "--gpu-memory-utilization": "0.9",
        "--enable-prompt-tokens-details": True,
        "--enable-chunked-prefill": True,
        "--enable-prefix-caching": True,
        "--shutdown-timeout": "100",
        "--host": "127.0.0.1",
        "--port": "8001",
    }


def test_engines_that_can_are_told_to_schedule_by_priority_and_others_get_no_such_flag() -> None:
    found = {
        engine: options(launch(engine, priority_scheduling=True).argv)
        for engine in ("vllm", "sglang", "emulator", "tgi")
    }
    assert found["vllm"]["--scheduling-policy"] == "priority"
    assert found["sglang"]["--enable-priority-scheduling"] is True
    assert found["emulator"]["--priority-scheduling"] is True
    assert found["tgi"] == options(launch("tgi").argv)
    for engine in ("vllm", "sglang", "emulator"):
        assert (
            found[engine].keys() - options(launch(engine).argv).keys()
            <= load_engine(engine).capabilities.priority_flags
        )


def test_the_users_own_scheduling_flag_stands() -> None:
    argv = launch("vllm", priority_scheduling=True, extra_args=("--scheduling-policy", "fcfs")).argv
    assert options(argv)["--scheduling-policy"] == "fcfs"


def test_tgi_gets_every_setting_of_the_plan() -> None:
    found = options(launch("tgi", kv_cache=Precision.FP8, tensor_parallel=2).argv)
    assert found["--max-input-tokens"] == "8191"
    assert found["--max-total-tokens"] == "8192"
    assert found["--max-batch-prefill-tokens"] == "2048"
    assert found["--max-batch-size"] == "64"
    assert found["--max-concurrent-requests"] == "128"
    assert found["--num-shard"] == "2"
    assert found["--kv-cache-dtype"] == "fp8_e4m3fn"


def test_tgi_never_admits_fewer_requests_than_its_batch_holds() -> None:
    assert options(launch("tgi", max_num_seqs=256).argv)["--max-concurrent-requests"] == "512"


def test_two_tgi_replicas_of_one_machine_share_no_listener() -> None:
    first, second = (options(launch("tgi", port=port).argv) for port in (8001, 8002))
    for flag in ("--port", "--prometheus-port", "--master-port", "--shard-uds-path"):
        assert first[flag] != second[flag]


def test_the_emulator_reads_back_what_the_plan_says() -> None:
    command = launch("emulator", model="/models/llama", flavour="tgi", kv_cache=Precision.FP8, prefix_caching=False)
    assert command.argv[:3] == (sys.executable, "-m", "fleetctl_emulator")
    options_read = parse_options(command.argv[3:])
    assert (options_read.flavour, options_read.gpu, options_read.seed) == ("tgi", "L40S", 7)
    assert (options_read.max_num_seqs, options_read.max_model_len) == (64, 8192)
    assert (options_read.kv_cache, options_read.prefix_caching) == (Precision.FP8, False)
    assert options_read.max_queued_requests == 128


def test_the_emulator_gets_the_very_model_and_gpu_of_the_plan() -> None:
    card = ModelCard(
        id="acme/tiny", params=1, active_params=1, num_layers=1, hidden_size=8, num_heads=2, num_kv_heads=1, head_dim=4,
        vocab_size=10, context_tokens_max=64,
    )  # fmt: skip
    gpu = GpuSpec(name="L40S", memory_bytes=1, memory_bytes_per_s=1.0, flops={"bf16": 1.0})
    lane_plan = replace(samples.lane_plan("short"), gpu_spec=gpu)
    argv = (
        load_engine("emulator")
        .launch(
            plan=replace(samples.plan(), model_card=card),
            lane=samples.profile().lane("short"),
            lane_plan=lane_plan,
            host="127.0.0.1",
            port=8001,
        )
        .argv
    )
    options_read = parse_options(argv[3:])
    assert options_read.model == "acme/tiny"
    assert codec.decode(ModelCard, options_read.model_card) == card
    assert codec.decode(GpuSpec, options_read.gpu_spec) == gpu


@pytest.mark.parametrize(("flavour", "limit"), [("vllm", None), ("tgi", 128), ("sglang", None)])
def test_an_emulated_queue_is_bounded_as_the_engine_it_plays_bounds_its_own(flavour: str, limit: int | None) -> None:
    argv = launch("emulator", flavour=flavour).argv
    assert parse_options(argv[3:]).max_queued_requests == limit


@given(settings, st.integers(1024, 65535))
def test_tgi_is_only_ever_given_flags_it_has(changes: dict[str, Any], port: int) -> None:
    try:
        found = options(launch("tgi", port=port, **changes).argv)
    except ConfigError:
        assert changes["kv_cache"] in (Precision.INT8, Precision.INT4)  # the one thing TGI cannot do
        return
    assert len(TGI_FLAGS) == 54
    assert found.keys() <= TGI_FLAGS
    assert 0 < int(found["--max-input-tokens"]) < int(found["--max-total-tokens"])
    assert {"--dtype", "--quantize"} - found.keys(), "the launcher refuses both together"
    assert 0 < int(found["--master-port"]) < 65536
    assert 0 < int(found["--prometheus-port"]) < 65536


@given(settings)
def test_sglang_is_only_ever_given_flags_it_documents(changes: dict[str, Any]) -> None:
    try:
        found = options(launch("sglang", **changes).argv)
    except ConfigError:
        assert changes["kv_cache"] not in (None, Precision.FP8, Precision.BF16) or changes["quantization"] in (
            Precision.INT8,
            Precision.INT4,
        )
        return
    assert found.keys() <= SGLANG_FLAGS
    assert found["--enable-metrics"] is True


@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator"])
def test_a_flag_the_user_gives_is_the_users(engine: str) -> None:
    flag = {"tgi": "--max-batch-size", "sglang": "--max-running-requests"}.get(engine, "--max-num-seqs")
    for extra in ((flag, "3"), (f"{flag}=3",)):
        argv = launch(engine, extra_args=extra).argv
        assert argv[-len(extra) :] == extra
        assert sum(word.split("=")[0] == flag for word in argv) == 1


def test_switching_a_default_off_replaces_it() -> None:
    argv = launch("vllm", extra_args=("--no-enable-prefix-caching",)).argv
    assert "--enable-prefix-caching" not in argv
    assert "--no-enable-prefix-caching" in launch("vllm", prefix_caching=False).argv
    details = launch("vllm", extra_args=("--no-enable-prompt-tokens-details",)).argv
    assert "--enable-prompt-tokens-details" not in details
    assert launch("tgi", prefix_caching=False).env["PREFIX_CACHING"] == "0"
    assert "--disable-radix-cache" in launch("sglang", prefix_caching=False).argv


@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator"])
def test_the_users_environment_wins(engine: str) -> None:
    assert launch(engine, env={"DO_NOT_TRACK": "0", "X": "y"}).env.items() >= {("DO_NOT_TRACK", "0"), ("X", "y")}


@pytest.mark.parametrize(
    ("model", "precision", "method"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", Precision.FP8, "fp8"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8", Precision.FP8, None),
        ("/models/llama-70b-fp8-dynamic/", Precision.FP8, None),
        ("RedHatAI/Llama-3.1-8B-quantized.w8a8", Precision.INT8, None),
        ("meta-llama/Llama-3.1-8B-Instruct", Precision.INT8, "int8_per_channel_weight_only"),
        ("hugging-quants/Llama-3.1-8B-Instruct-AWQ-INT4", Precision.INT4, None),
        ("meta-llama/Llama-3.1-8B-Instruct", Precision.FP16, None),
    ],
)
def test_weights_are_quantized_at_load_only_where_the_checkpoint_is_not(
    model: str, precision: Precision, method: str | None
) -> None:
    assert options(launch("vllm", model=model, quantization=precision).argv).get("--quantization") == method


def test_weights_an_engine_cannot_make_are_refused_unless_the_user_says_how() -> None:
    with pytest.raises(ConfigError, match="cannot quantize") as refused:
        launch("vllm", quantization=Precision.INT4)
    assert "extra_args" in refused.value.hint
    argv = launch("vllm", quantization=Precision.INT4, extra_args=("--quantization", "awq")).argv
    assert options(argv)["--quantization"] == "awq"


def test_the_executable_comes_from_the_environment_or_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FLEETCTL_VLLM", "FLEETCTL_TGI", "FLEETCTL_SGLANG_PYTHON"):
        monkeypatch.delenv(variable, raising=False)
    assert launch("vllm").argv[0] == "vllm"
    assert launch("tgi").argv[0] == "text-generation-launcher"
    assert launch("sglang").argv[0] == "python3"
    monkeypatch.setenv("FLEETCTL_VLLM", "/opt/vllm/bin/vllm")
    assert launch("vllm").argv[0] == "/opt/vllm/bin/vllm"


def test_no_engine_gets_its_key_as_an_argument() -> None:
    for engine in (VllmEngine(), TgiEngine(), SglangEngine()):
        argv = launch(engine.name).argv
        assert not any("api-key" in word for word in argv)
    assert (VllmEngine.api_key_env, TgiEngine.api_key_env) == ("VLLM_API_KEY", "API_KEY")


@pytest.mark.parametrize("engine", ["vllm", "tgi", "sglang", "emulator"])
def test_warming_is_a_small_completion_of_the_served_model(engine: str) -> None:
    path, body = load_engine(engine).warm_body(served_name="my model")
    request = json.loads(body)
    assert path == "/v1/completions"
    assert request["model"] == "my model"
    assert 0 < request["max_tokens"] <= 16
    assert request["stream"] is False


def test_vllm_over_several_machines_is_a_leader_and_headless_members() -> None:
    command = launch("vllm", tensor_parallel=8, pipeline_parallel=3)
    leader, member = options(command.argv), options(command.member_argv)
    group = {
        "--tensor-parallel-size": "8",
        "--pipeline-parallel-size": "3",
        "--nnodes": "3",
        "--master-addr": LEADER_HOST,
    }
    assert group.items() <= leader.items()
    assert group.items() <= member.items()
    assert (leader["--node-rank"], leader["--port"]) == ("0", "8001")
    assert (member["--node-rank"], member["--headless"]) == (NODE_RANK, True)
    assert {*leader} - {*member} == {"--host", "--port"}
    order = samples.node_request(argv=command.argv, member_argv=command.member_argv, node_count=3)
    spelt = [options(order.command(rank, leader_host="10.0.0.7")) for rank in range(3)]
    assert [found["--node-rank"] for found in spelt] == ["0", "1", "2"]
    assert {found["--master-addr"] for found in spelt} == {"10.0.0.7"}


def test_an_emulated_replica_over_several_machines_joins_its_leader() -> None:
    command = launch("emulator", pipeline_parallel=3, pipeline_parallel_local=2)
    order = samples.node_request(argv=command.argv, member_argv=command.member_argv, node_count=3)
    spelt = [options(order.command(rank, leader_host="10.0.0.7")) for rank in range(3)]
    assert [(found["--nnodes"], found["--node-rank"]) for found in spelt] == [("3", "0"), ("3", "1"), ("3", "2")]
    assert {(found["--leader-host"], found["--pipeline-parallel"]) for found in spelt} == {("10.0.0.7", "2")}
    assert ["--port" in found for found in spelt] == [True, False, False]


def test_stages_and_ranks_on_one_machine_are_spelt_as_each_engine_has_them() -> None:
    for engine in ("vllm", "sglang"):
        found = options(launch(engine, tensor_parallel=2, pipeline_parallel_local=2, data_parallel=2).argv)
        sizes = {name: found[f"--{name}-parallel-size"] for name in ("tensor", "pipeline", "data")}
        assert sizes == {"tensor": "2", "pipeline": "2", "data": "2"}
        assert not {"--pipeline-parallel-size", "--data-parallel-size"} & options(launch(engine).argv).keys()
    both = options(launch("vllm", pipeline_parallel=3, pipeline_parallel_local=2).argv)
    assert (both["--pipeline-parallel-size"], both["--nnodes"]) == ("6", "3")
    assert options(launch("emulator", pipeline_parallel_local=2).argv)["--pipeline-parallel"] == "2"


def test_engines_that_cannot_span_machines_say_so_and_have_no_command_for_members() -> None:
    for name in ("vllm", "tgi", "sglang", "emulator"):
        can = load_engine(name).capabilities.multi_node
        assert can == (name in ("vllm", "emulator"))
        assert bool(launch(name, pipeline_parallel=2).member_argv) == can
        assert launch(name).member_argv == ()


@pytest.mark.parametrize(("pinned", "given_share"), [(None, "0.9"), (0.95, "0.95"), (0.5, "0.5")])
def test_a_pinned_share_of_memory_reaches_sglang_as_it_is(pinned: float | None, given_share: str) -> None:
    lane_plan = samples.lane_plan("short")
    lane_plan = replace(lane_plan, launch=replace(lane_plan.launch, gpu_memory_utilization=pinned or 0.92))
    lane = samples.profile().lane("short")
    lane = replace(lane, launch=replace(lane.launch, gpu_memory_utilization=pinned))
    command = SglangEngine().launch(plan=samples.plan(), lane=lane, lane_plan=lane_plan, host="127.0.0.1", port=8001)
    assert options(command.argv)["--mem-fraction-static"] == given_share


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"env": {"PREFILL_CHUNKING": "0"}}, "PREFILL_CHUNKING is off"), ({"model": "Qwen/Qwen2-VL-7B-Instruct"}, "sees pictures")],
)  # fmt: skip
def test_tgi_is_given_no_prefill_batch_that_it_would_refuse_at_its_start(changes: dict[str, Any], why: str) -> None:
    sizes: dict[str, Any] = {"max_model_len": 8192, "max_num_batched_tokens": 2048}
    with pytest.raises(ConfigError, match=why) as refused:
        launch("tgi", **sizes, **changes)
    assert refused.value.key == ("lanes", "short", "launch", "max_num_batched_tokens")
    assert "8191 or more" in refused.value.hint
    whole = options(launch("tgi", **sizes | {"max_num_batched_tokens": 8191}, **changes).argv)
    assert whole["--max-batch-prefill-tokens"] == "8191"
    assert options(launch("tgi", **sizes).argv)["--max-batch-prefill-tokens"] == "2048"
