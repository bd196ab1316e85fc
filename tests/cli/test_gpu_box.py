"""A machine with GPUs at the command line: what `init --here`, `validate` and `plan` make of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest
import yaml

from fleetctl import codec
from fleetctl.testing.nvml import FakeGpu, FakeNvmlLibrary, GpuMachine, gpu_machine, installed
from fleetctl_local.gpus import VISIBLE_GPUS
from tests.cli.test_json_reference import differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

RTX_3090: dict[str, Any] = {
    "name": "NVIDIA GeForce RTX 3090", "memory_bytes": 24576 * 2**20, "memory_bus_bits": 384, "memory_mhz": 9751,
    "cores": 10496, "capability": (8, 6), "sm_mhz": 1695,
}  # fmt: skip
PROFILE = """\
apiVersion: fleetctl/v1
name: box
model: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: {kind: vllm, executable: %s}
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 480, p99: 3800}, output_tokens: {p50: 129, p99: 600}}
slo: {objective: 99%%, window: 7d}
lanes:
  short: {match: {uncached_prompt_tokens: "< 512"}, slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}, max_wait: 5s%s}
  long: {slo: {ttft: {p99: 5s}, itl: {p99: 150ms}}, max_wait: 5s}
capacity: {%s}
"""


@pytest.fixture(autouse=True)
def _every_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VISIBLE_GPUS, raising=False)
    monkeypatch.chdir(tmp_path)


def profile(*, short: str = "", capacity: str = "", engine: str = "") -> str:
    Path("box.yaml").write_text(PROFILE % (engine or sys.executable, short, capacity))
    return "box.yaml"


def on(machine: GpuMachine, fleetctl: Callable[..., Ran], *argv: str) -> Ran:
    with installed(FakeNvmlLibrary(machine)):
        return fleetctl(*argv)


def planned(ran: Ran) -> dict[str, dict[str, object]]:
    assert ran.code == 0, ran.err
    plan = codec.decode(dict[str, object], ran.out.encode())
    lanes = plan["lanes"]
    assert isinstance(lanes, list)
    return {lane["lane"]: lane for lane in lanes}


def test_a_real_engine_is_planned_on_the_gpus_that_are_there_and_costs_nothing(fleetctl: Callable[..., Ran]) -> None:
    lanes = planned(on(gpu_machine(2), fleetctl, "plan", profile(), "-o", "json"))
    assert {(lane["gpu"], lane["cost_usd_per_hour"], lane["spot"]) for lane in lanes.values()} == {("H100", 0.0, 0)}


def test_the_profiles_own_price_of_a_gpu_counts(fleetctl: Callable[..., Ran]) -> None:
    file = profile(capacity="gpu_per_hour: $2.10", short=", launch: {tensor_parallel: 2}")
    lanes = planned(on(gpu_machine(4), fleetctl, "plan", file, "-o", "json"))
    assert {name: lane["cost_usd_per_hour"] for name, lane in lanes.items()} == {"short": 4.2, "long": 2.1}


def test_more_gpus_than_are_there_are_refused_with_figures(fleetctl: Callable[..., Ran]) -> None:
    file = profile(short=", replicas: {min: 3, max: 4}")
    for command in ("validate", "plan"):
        ran = on(gpu_machine(2), fleetctl, command, file)
        assert ran.code == 4
        assert "the lanes take 4x H100 in all (short 3 replicas of 1, long 1 replica of 1)" in ran.err
        assert "only 2 are there" in ran.err


def test_another_gpu_than_the_machine_has_is_refused_with_what_is_there(fleetctl: Callable[..., Ran]) -> None:
    ran = on(gpu_machine(2), fleetctl, "validate", profile(capacity="gpus: [L40S]"))
    assert ran.code == 4
    assert "nothing on offer matches L40S" in ran.err
    assert "on offer: H100" in ran.err


def test_a_gpu_of_no_catalogue_is_planned_from_what_its_driver_says(fleetctl: Callable[..., Ran]) -> None:
    ran = on(gpu_machine(2, **RTX_3090), fleetctl, "plan", profile())
    assert ran.code == 0, ran.err
    assert "GeForce-RTX-3090 is in no catalogue: planned from what NVML says (24GiB, 936.1 GB/s" in ran.out


RTX_4090: dict[str, Any] = {
    "name": "NVIDIA GeForce RTX 4090", "memory_bytes": 24564 * 2**20, "memory_bus_bits": 384, "memory_mhz": 10501,
    "cores": 16384, "capability": (8, 9), "sm_mhz": 2520,
}  # fmt: skip
SERVER_EDITION: dict[str, Any] = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "memory_bytes": 97887 * 2**20, "memory_bus_bits": 512,
    "memory_mhz": 12481, "capability": (12, 0),
}  # fmt: skip


@pytest.mark.parametrize(("figures", "name"), [(RTX_4090, "RTX 4090"), (SERVER_EDITION, "RTX PRO 6000 Server")])
def test_a_gpu_whose_name_in_the_catalogue_is_of_several_words_is_known(
    fleetctl: Callable[..., Ran], figures: dict[str, Any], name: str
) -> None:
    ran = on(gpu_machine(2, **figures), fleetctl, "plan", profile(), "-o", "json")
    assert {lane["gpu"] for lane in planned(ran).values()} == {name}
    assert "is in no catalogue" not in ran.err


def test_an_argument_that_sizes_the_kv_cache_behind_the_plan_is_refused_where_there_are_gpus(
    fleetctl: Callable[..., Ran],
) -> None:
    file = profile(short=", launch: {extra_args: [--kv-cache-memory-bytes, 8G]}")
    for command in ("validate", "plan"):
        ran = on(gpu_machine(2), fleetctl, command, file)
        assert ran.code != 0
        assert "box.yaml:9: lanes.short.launch.extra_args" in ran.err
        assert "--kv-cache-memory-bytes of vllm would change what the plan reckons with on its GPUs" in ran.err
        assert "launch.gpu_memory_utilization" in ran.err
    assert on(gpu_machine(0), fleetctl, "validate", file).code == 0  # a CPU's memory is shared out as the profile says


def test_what_other_programs_hold_is_said_before_anything_is_started(fleetctl: Callable[..., Ran]) -> None:
    machine = gpu_machine(2)
    machine.gpus[1].used_bytes = 70 * 2**30
    ran = on(machine, fleetctl, "up", profile(), "--yes")
    assert ran.code != 0
    assert "GPU 1: 70GiB of 79.6GiB in use" in ran.err


def test_emulated_engines_leave_the_gpus_alone(fleetctl: Callable[..., Ran]) -> None:
    with_gpus = on(gpu_machine(2), fleetctl, "plan", "quickstart", "-o", "json")
    assert planned(with_gpus) == planned(fleetctl("plan", "quickstart", "-o", "json"))


@pytest.mark.parametrize(("count", "lanes"), [(1, {"all"}), (2, {"short", "long"}), (8, {"short", "long"})])
@pytest.mark.parametrize("figures", [{}, RTX_3090], ids=["H100", "RTX 3090"])
def test_init_here_writes_a_profile_that_the_machine_carries(
    fleetctl: Callable[..., Ran], count: int, lanes: set[str], figures: dict[str, Any]
) -> None:
    machine = gpu_machine(count, **figures)
    ran = on(machine, fleetctl, "init", "--here", "p.yaml")
    assert ran.code == 0, ran.err
    assert f"found {count}x " in ran.err
    assert on(machine, fleetctl, "validate", "p.yaml").code == 0
    found = planned(on(machine, fleetctl, "plan", "p.yaml", "-o", "json"))
    assert found.keys() == lanes
    assert all(lane["engine"] != "emulator" for lane in found.values())


def test_init_here_finds_the_engine_and_says_so(
    fleetctl: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = on(gpu_machine(1), fleetctl, "init", "--here", "-")
    assert f"vllm is at {program}" in ran.out
    assert f"vllm is at {program}" in ran.err


def test_init_here_names_an_engine_of_this_environment_by_its_path(
    fleetctl: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    (tmp_path / "vllm").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    ran = on(gpu_machine(1), fleetctl, "init", "--here", "p.yaml")
    assert ran.code == 0, ran.err
    assert f"engine: {{kind: vllm, executable: {tmp_path / 'vllm'}}}" in Path("p.yaml").read_text()
    assert on(gpu_machine(1), fleetctl, "validate", "p.yaml").code == 0


T4: dict[str, Any] = {
    "name": "Tesla T4", "memory_bytes": 15360 * 2**20, "memory_bus_bits": 256, "memory_mhz": 5001, "cores": 2560,
    "capability": (7, 5), "sm_mhz": 1590,
}  # fmt: skip
V100: dict[str, Any] = {  # in no catalogue
    "name": "Tesla V100-SXM2-16GB", "memory_bytes": 16384 * 2**20, "memory_bus_bits": 4096, "memory_mhz": 877, "cores": 5120,
    "capability": (7, 0), "sm_mhz": 1530,
}  # fmt: skip


@pytest.mark.parametrize("figures", [{}, RTX_3090, T4, V100], ids=["H100", "RTX 3090", "T4", "V100"])
def test_init_here_takes_a_model_that_answers_in_a_format_that_the_gpu_computes_in(
    fleetctl: Callable[..., Ran], figures: dict[str, Any]
) -> None:
    assert on(gpu_machine(1, **figures), fleetctl, "init", "--here", "p.yaml").code == 0
    model = yaml.safe_load(Path("p.yaml").read_text())["model"]
    assert any(
        name in model["id"] for name in ("Instruct", "Qwen3", "gpt-oss")
    )  # no base model: it has no chat template
    assert (model["quantization"] == "fp16") is (figures in (T4, V100))  # bfloat16 needs Ampere


def test_init_here_takes_the_gpus_that_other_programs_leave(fleetctl: Callable[..., Ran]) -> None:
    machine = gpu_machine(2)
    machine.gpus[0].used_bytes = 60 * 2**30
    assert on(machine, fleetctl, "init", "--here", "p.yaml").code == 0
    plan = on(machine, fleetctl, "plan", "p.yaml", "-o", "json")
    assert planned(plan).keys() == {"all"}
    preflight = codec.decode(dict[str, Any], plan.out.encode())["preflight"]
    assert "GPUs" not in {each["name"] for each in preflight if each["verdict"] == "fail"}
    machine.gpus[1].used_bytes = 60 * 2**30
    ran = on(machine, fleetctl, "init", "--here", "-")
    assert "`fleetctl up` would be refused now: GPUs: 0 of 2 free" in ran.err


MIG: dict[str, Any] = {"name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "memory_bytes": 40 * 2**30, "multiprocessors": 66}


@pytest.mark.parametrize("whole", [0, 1])
def test_init_here_writes_a_profile_for_mig_instances_beside_a_whole_gpu_or_alone(
    fleetctl: Callable[..., Ran], whole: int
) -> None:
    machine = gpu_machine(whole + 1)
    machine.gpus[-1].instances = [FakeGpu(uuid=f"MIG-{number}", **MIG) for number in (1, 2)]
    ran = on(machine, fleetctl, "init", "--here", "p.yaml")
    assert ran.code == 0, ran.err
    assert on(machine, fleetctl, "validate", "p.yaml").code == 0
    assert planned(on(machine, fleetctl, "plan", "p.yaml", "-o", "json"))


def test_mig_instances_are_named_in_a_profile_as_plan_names_them(fleetctl: Callable[..., Ran]) -> None:
    machine = gpu_machine(2)
    machine.gpus[1].instances = [FakeGpu(uuid=f"MIG-{number}", **MIG) for number in (1, 2)]
    small = "Qwen/Qwen3-8B"
    Path("mig.yaml").write_text(
        Path(profile(capacity="gpus: [H100-80GB-HBM3-MIG-3g.40gb]"))
        .read_text()
        .replace("meta-llama/Llama-3.1-8B-Instruct", small)
    )
    lanes = planned(on(machine, fleetctl, "plan", "mig.yaml", "-o", "json"))
    assert {lane["gpu"] for lane in lanes.values()} == {"H100-80GB-HBM3-MIG-3g.40gb"}


def test_init_here_names_the_kinds_of_gpus_that_it_leaves_alone(fleetctl: Callable[..., Ran]) -> None:
    machine = gpu_machine(4)
    machine.gpus[2:] = [FakeGpu(uuid=f"GPU-other-{number}", **RTX_3090) for number in range(2)]
    ran = on(machine, fleetctl, "init", "--here", "p.yaml")
    assert "found 2x H100, 79.6GiB each" in ran.err
    assert "found 2x GeForce-RTX-3090 too, left alone" in ran.err
    assert {lane["gpu"] for lane in planned(on(machine, fleetctl, "plan", "p.yaml", "-o", "json")).values()} == {"H100"}


def test_a_driver_that_does_not_answer_is_no_machine_without_gpus(fleetctl: Callable[..., Ran]) -> None:
    machine = gpu_machine(2)
    machine.error = pynvml.NVML_ERROR_NO_PERMISSION
    ran = on(machine, fleetctl, "init", "--here", "p.yaml")
    assert "NVML: Insufficient Permissions" in ran.err
    assert "look at /dev/nvidia*" in ran.err
    doctor = on(machine, fleetctl, "doctor")
    assert any(line.startswith("warn") and "local: GPUs" in line for line in doctor.out.splitlines())


def test_what_init_here_writes_needs_no_spare_gpu_for_a_rollout(fleetctl: Callable[..., Ran]) -> None:
    assert on(gpu_machine(2), fleetctl, "init", "--here", "p.yaml").code == 0
    ran = on(gpu_machine(2), fleetctl, "plan", "p.yaml")
    assert "max_unavailable lets 1 replica leave first" in ran.err
    assert "the rollout fails" not in ran.err


def test_what_is_to_be_done_before_a_start_is_shown_whole(fleetctl: Callable[..., Ran]) -> None:
    ran = on(gpu_machine(2), fleetctl, "plan", profile())
    (hint,) = (line for line in ran.out.splitlines() if "to do: accept its licence" in line)
    assert hint.endswith("control.start_timeout")


def test_init_here_without_a_gpu_says_so_and_writes_emulated_engines(fleetctl: Callable[..., Ran]) -> None:
    ran = fleetctl("init", "--here", "--name", "mine", "p.yaml")
    assert ran.code == 0, ran.err
    assert "this machine has no GPU that its driver shows" in ran.err
    text = Path("p.yaml").read_text()
    assert text.startswith("# This machine has no GPU that its driver shows")
    assert "\nengine: emulator" in text
    assert "\nname: mine\n" in text
    assert fleetctl("validate", "p.yaml").code == 0


def test_a_real_engine_without_a_gpu_is_planned_on_the_cpu_and_nothing_is_forecast_or_priced(
    fleetctl: Callable[..., Ran],
) -> None:
    ran = fleetctl("plan", profile())
    assert ran.code == 0, ran.err
    assert sum("not forecast" in line for line in ran.out.splitlines()) == 2
    text = ran.out + ran.err
    assert "this machine has no GPU: lanes short, long would run on its CPU" in text
    assert "keeps every promise" not in text
    assert "TTFT budget" not in text
    assert "2 nodes, $0.00/h" in text
    lanes = planned(fleetctl("plan", profile(capacity="gpu_per_hour: $0.40"), "-o", "json"))
    assert {lane["cost_usd_per_hour"] for lane in lanes.values()} == {0.4}


def test_json_claims_nothing_of_a_cpu_that_a_card_stands_in_for(fleetctl: Callable[..., Ran]) -> None:
    ran = fleetctl("plan", profile(), "--explain", "-o", "json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    assert plan["gpu_spec"] is None
    assert [each["gpus"] for each in plan["models"]] == [{}]
    assert plan["explanation"]["alternatives"] == []
    for lane in plan["lanes"]:
        assert (lane["forecast"], lane["throughput"], lane["gpu_spec"]) == (None, None, None)
        assert (lane["budget"], lane["gpu"], lane["offering"]["gpu"], lane["offering"]["gpu_count"]) == ([], "", "", 0)
        assert lane["replicas"] == 1
    assert differences(plan, "Plan", "plan") == []
    with_gpus = json.loads(on(gpu_machine(2), fleetctl, "plan", profile(), "-o", "json").out)
    assert all(lane["forecast"]["ttft_p99_s"] > 0 and lane["gpu_spec"] for lane in with_gpus["lanes"])


def test_a_machine_with_gpus_is_never_planned_on_its_cpu(fleetctl: Callable[..., Ran]) -> None:
    ran = on(gpu_machine(2), fleetctl, "plan", profile())
    assert "not forecast" not in ran.out
    assert "no GPU" not in ran.out + ran.err
