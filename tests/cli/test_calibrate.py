"""`calibrate`: recorded benchmark files and metrics pages in, a calibration that plans are made by out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.catalogue.known import load_catalogue
from fleetctl.cli.main import main
from fleetctl.core.perf.calibration import (
    EngineInstanceShape,
    MeasuredLoad,
    length_boundary,
    modelled_tpot_s,
    modelled_ttft_s,
    refit,
)
from fleetctl.core.perf.step import step_model
from fleetctl.model.catalogue import AchievedShares, Precision
from fleetctl.operations.engine_metrics import engine_window

CATALOGUE = load_catalogue()
L40S = CATALOGUE.gpus["L40S"]
CARD = CATALOGUE.models["meta-llama/Llama-3.1-8B-Instruct"]
SHAPE = EngineInstanceShape(
    card=CARD, gpu=L40S, tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16
)
SLOW = AchievedShares(gemm_memory_16bit=0.4, gemm_flops_16bit=0.2, attention_memory=0.4, attention_flops=0.2)
PAGE = Path(__file__).parent.parent / "engines" / "pages" / "vllm-0.32.txt"


def slow_loads(count: int) -> list[MeasuredLoad]:
    """Return what an engine on a GPU that is slower than the catalogue says would be measured to do."""
    step = step_model(
        CARD,
        replace(L40S, achieved=SLOW),
        tensor_parallel=1,
        precision=Precision.BF16,
        kv_precision=Precision.BF16,
    )
    found = []
    for number in range(count):
        load = MeasuredLoad(prompt_tokens=400 + 200 * number, output_tokens=200, decoding=1 + 3 * number, tpot_s=1.0)
        found.append(replace(load, tpot_s=modelled_tpot_s(step, load, 2048), ttft_s=modelled_ttft_s(step, load, 2048)))
    return found


@pytest.mark.parametrize("count", [2, 6, 9])
def test_the_shares_of_a_slower_gpu_are_found(count: int) -> None:
    found = refit(SHAPE, slow_loads(count), source="test")
    assert found.achieved.gemm_memory_16bit == pytest.approx(0.4, rel=0.05)
    assert found.achieved.gemm_flops_16bit == pytest.approx(0.2, rel=0.05)


def test_rows_held_out_say_how_wrong_it_is_and_few_rows_claim_nothing() -> None:
    many, few = refit(SHAPE, slow_loads(8), source="test"), refit(SHAPE, slow_loads(3), source="test")
    assert (many.fitted, many.judged) == (4, 4)
    assert many.tpot_error < 0.05
    assert (few.judged, few.tpot_error) == (0, 0.35)
    scattered = [replace(load, tpot_s=load.tpot_s * (1.3 if n % 2 else 1.0)) for n, load in enumerate(slow_loads(8))]
    assert refit(SHAPE, scattered, source="test").tpot_error == pytest.approx(0.3, abs=0.05)


def test_short_and_long_prompts_part_where_their_lengths_do() -> None:
    assert length_boundary([(128, 60), (256, 30), (512, 0), (1024, 0), (2048, 5), (4096, 40)]) == 256
    assert length_boundary([(128, 60), (256, 0)]) is None


def as_vllm(load: MeasuredLoad) -> dict[str, Any]:
    """Return a result as `vllm bench serve --save-result` has it, the keys that matter."""
    completed, ttft_ms, tpot_ms = 100, (load.ttft_s or 0) * 1e3, load.tpot_s * 1e3
    duration = completed * load.output_tokens * load.tpot_s / load.decoding
    return {
        "completed": completed, "duration": duration, "total_input_tokens": int(load.prompt_tokens * completed),
        "total_output_tokens": int(load.output_tokens * completed), "mean_tpot_ms": tpot_ms, "median_tpot_ms": tpot_ms,
        "mean_ttft_ms": ttft_ms, "median_ttft_ms": ttft_ms, "input_lens": [200] * 60 + [3000] * 40,
    }  # fmt: skip


def as_guidellm(load: MeasuredLoad) -> dict[str, Any]:
    def figure(value: float) -> dict[str, Any]:
        return {"successful": {"mean": value, "median": value}}

    return {
        "metrics": {
            "prompt_token_count": figure(load.prompt_tokens), "output_token_count": figure(load.output_tokens),
            "inter_token_latency_ms": figure(load.tpot_s * 1e3), "time_to_first_token_ms": figure((load.ttft_s or 0) * 1e3),
            "requests_per_second": figure(load.decoding / load.output_tokens / load.tpot_s),
        }
    }  # fmt: skip


def as_aiperf(load: MeasuredLoad) -> dict[str, Any]:
    def figure(value: float, unit: str) -> dict[str, Any]:
        return {"unit": unit, "avg": value, "p50": value}

    return {
        "input_sequence_length": figure(load.prompt_tokens, "tokens"),
        "output_sequence_length": figure(load.output_tokens, "tokens"),
        "inter_token_latency": figure(load.tpot_s * 1e3, "ms"),
        "time_to_first_token": figure((load.ttft_s or 0) * 1e3, "ms"),
        "request_throughput": figure(load.decoding / load.output_tokens / load.tpot_s, "requests/sec"),
    }


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


OPTIONS = ("--name", "mine", "--gpu", "L40S", "--model", CARD.id, "-o", "json")


def test_every_tools_file_gives_the_same_calibration(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loads = slow_loads(6)
    files = {
        "vllm.jsonl": "\n".join(json.dumps(as_vllm(load)) for load in loads),
        "guidellm.json": json.dumps({"benchmarks": [as_guidellm(load) for load in loads]}),
        "aiperf.json": json.dumps([as_aiperf(load) for load in loads]),
    }
    tools = []
    for name, text in files.items():
        (places / name).write_text(text)
        assert main(["calibrate", name, *OPTIONS]) == 0
        report = json.loads(capsys.readouterr().out)
        tools.append(report["tool"])
        assert report["judged"] == 3
        for row in report["rows"]:
            assert row["tpot_after_s"] == pytest.approx(row["tpot_s"], rel=0.05)
            assert row["tpot_before_s"] < 0.7 * row["tpot_s"]
        if name == "vllm.jsonl":
            assert 200 <= report["short_below_tokens"] < 3000
    assert tools == ["vllm bench serve", "guidellm", "aiperf"]


PROFILE = """
apiVersion: fleetctl/v1
name: any
model: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: emulator
provider: local
workload: {peak_rps: 2, prompt_tokens: {p50: 400, p99: 2000}, output_tokens: {p50: 100, p99: 400}}
slo: {objective: 99.5%%, window: 7d}
capacity: {gpus: [L40S]%s}
lanes:
  all: {slo: {ttft: {p99: 4s}, itl: {p99: 200ms}}, max_wait: 1s}
"""


def planned(places: Path, capsys: pytest.CaptureFixture[str], capacity: str) -> dict[str, Any]:
    (places / "profile.yaml").write_text(PROFILE % capacity)
    assert main(["plan", "profile.yaml", "-o", "json"]) == 0
    lane: dict[str, Any] = json.loads(capsys.readouterr().out)["lanes"][0]
    return lane


def test_a_profile_that_names_it_is_planned_by_it_and_says_so(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (places / "bench.json").write_text(json.dumps([as_vllm(load) for load in slow_loads(6)]))
    assert main(["calibrate", "bench.json", *OPTIONS]) == 0
    capsys.readouterr()
    before, after = planned(places, capsys, ""), planned(places, capsys, ", calibration: mine")
    assert after["forecast"]["itl_p99_s"] > 1.5 * before["forecast"]["itl_p99_s"]
    assert any("L40S is calibrated by vllm bench serve" in reason for reason in after["reasons"])
    assert after["gpu_spec"]["achieved"]["gemm_memory_16bit"] == pytest.approx(0.4, rel=0.05)
    assert not any("calibrated" in reason for reason in before["reasons"])


def test_a_calibration_that_is_not_there_is_named(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (places / "profile.yaml").write_text(PROFILE % ", calibration: other")
    assert main(["plan", "profile.yaml"]) == 8
    assert "there is no calibration 'other'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", "[1, 2]", '{"completed": 0}', "no JSON"])
def test_a_file_of_no_tool_is_refused(text: str, places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (places / "other.json").write_text(text)
    assert main(["calibrate", "other.json", *OPTIONS]) == 3
    assert "other.json" in capsys.readouterr().err


def test_a_recorded_page_of_vllm_says_what_it_did_since_its_start() -> None:
    text = PAGE.read_text()
    window = engine_window("", text, 100.0)
    assert window.load is not None
    assert window.requests > 0
    assert window.load.tpot_s > 0
    assert sum(count for _, count in window.prompts) == window.requests
    assert engine_window(text, text, 1.0).load is None
