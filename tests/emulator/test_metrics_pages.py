"""/metrics: the real names, types, labels and buckets, and figures that are true."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleetctl.core.perf.frontend import FRONTEND_S
from fleetctl_emulator.page import Page, number
from tests.emulator.engine_process import EngineProcess, until

REAL_VLLM = Path(__file__).parent / "pages" / "vllm_0_32.tsv"


def described(page: str) -> list[tuple[str, str, str, str, str]]:
    """(name, type, labels, buckets, help) of every family on a page, in its order."""
    rows = []
    for block in page.split("# HELP ")[1:]:
        head, _, samples = block.partition("\n")
        name, _, text = head.partition(" ")
        lines = samples.splitlines()
        kind = lines[0].removeprefix(f"# TYPE {name} ")
        labels: set[str] = set()
        bounds: list[str] = []
        for line in lines[1:]:
            inside = line.partition("{")[2].rpartition("}")[0]
            pairs = dict(pair.partition("=")[::2] for pair in inside.split('",') if pair)
            bound = pairs.pop("le", "").strip('"')
            if bound and bound not in bounds:
                bounds.append(bound)
            labels |= set(pairs)
        rows.append((name, kind, ",".join(sorted(labels)), " ".join(bounds), text))
    return rows


def test_vllm_page_is_described_as_a_real_one_is(start):
    engine: EngineProcess = start("--max-model-len", "2048", "--speed", "10")
    engine.chat(max_tokens=3)
    engine.get("/v1/models")
    real = [tuple(line.split("\t")) for line in REAL_VLLM.read_text().splitlines() if not line.startswith("#")]
    page = engine.get("/metrics")[1]
    assert described(page) == real
    assert sum(1 for _ in text_string_to_metric_families(page)) > 50


def test_vllm_figures_are_true(start):
    engine: EngineProcess = start("--speed", "2", "--max-model-len", "4096")
    for _ in range(3):
        assert engine.chat(content="x" * 796, max_tokens=20, ignore_eos=True)[0] == 200
    prompt = 1 + 5 + 199 + 4
    assert engine.metric("vllm:prompt_tokens_total") == 3 * prompt
    assert engine.metric("vllm:generation_tokens_total") == 60
    assert engine.metric('vllm:request_success_total{engine="0",finished_reason="length"') == 3
    assert engine.metric('vllm:request_success_total{engine="0",finished_reason="stop"') == 0
    assert engine.metric("vllm:prefix_cache_queries_total") == 3 * prompt
    assert engine.metric("vllm:prefix_cache_hits_total") == 2 * (prompt // 16 * 16)
    assert engine.metric("vllm:time_to_first_token_seconds_count") == 3
    assert engine.metric("vllm:inter_token_latency_seconds_count") == 57
    assert engine.metric("vllm:iteration_tokens_total_sum") == 60 + 3 * prompt - 2 * (prompt // 16 * 16)
    assert engine.metric('vllm:request_queue_time_seconds_bucket{engine="0",le="0.3"') == 3
    assert engine.metric("vllm:num_requests_running") == engine.metric("vllm:kv_cache_usage_perc") == 0
    e2e_s = engine.metric("vllm:e2e_request_latency_seconds_sum")
    queue_s, prefill_s, decode_s, inference_s = (
        engine.metric(f"vllm:request_{part}_time_seconds_sum") for part in ("queue", "prefill", "decode", "inference")
    )
    assert math.isclose(prefill_s + decode_s, inference_s, rel_tol=0.01)
    # What is before the queue is in no part of its own, as in vLLM; how much more it was is up to this machine. Timers of
    # the loop count whole milliseconds, and may be one early.
    assert e2e_s >= queue_s + inference_s + 3 * (FRONTEND_S / 2 - 0.001)
    assert engine.metric('http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"}') == 3


def test_running_sequences_show_in_the_gauges(start):
    engine: EngineProcess = start("--max-num-seqs", "1")
    streams = [engine.stream(max_tokens=2000, ignore_eos=True) for _ in range(3)]
    streams[0].first_text()
    until(lambda: engine.metric("vllm:num_requests_waiting{") == 2, "two wait")
    assert engine.metric("vllm:num_requests_running") == 1
    assert 0 < engine.metric("vllm:kv_cache_usage_perc") < 1
    assert engine.metric('vllm:num_requests_waiting_by_reason{engine="0",model_name="chat",reason="capacity"}') == 2
    for stream in streams:
        stream.close()


def test_preemptions_are_counted_when_the_sequence_runs_again(start):
    # 0.5 leaves room for 12k tokens: three answers of 5,000 do not fit together.
    engine: EngineProcess = start("--gpu-memory-utilization", "0.422", "--speed", "200", "--max-num-seqs", "8")
    kv_tokens = engine.state()["kv_blocks"] * 16
    length = min(engine.state()["max_model_len"] - 100, kv_tokens // 3 + 1000)
    streams = [engine.stream(content=f"{n}", max_tokens=length, ignore_eos=True) for n in range(3)]
    for stream in streams:
        assert stream.rest()[-1] == "[DONE]"
        stream.close()
    assert engine.metric("vllm:num_preemptions_total") >= 1
    assert engine.metric("vllm:request_num_preemptions_sum") == engine.metric("vllm:num_preemptions_total")


def test_tgi_page_has_its_names_and_geometric_buckets(start):
    engine: EngineProcess = start("--flavour", "tgi", "--speed", "10", "--max-model-len", "4096")
    assert "tgi_request_count" not in engine.get("/metrics")[1], "untouched series are not shown"
    assert engine.metric("tgi_batch_max_total_tokens") > 100_000
    assert engine.post("/generate", {"inputs": "hello", "parameters": {"max_new_tokens": 6}})[0] == 200
    assert engine.post("/generate", {"inputs": "hello", "parameters": {"max_new_tokens": 9000}})[0] == 422
    page = engine.get("/metrics")[1]
    rows = {name: (kind, labels, bounds) for name, kind, labels, bounds, _ in described(page)}
    duration = " ".join(number(0.0001 * 1.5**k) for k in range(1, 36)) + " +Inf"
    for name in (
        "duration",
        "validation_duration",
        "queue_duration",
        "inference_duration",
        "mean_time_per_token_duration",
    ):
        assert rows[f"tgi_request_{name}"] == ("histogram", "", duration)
    for name in ("inference", "forward", "decode"):
        assert rows[f"tgi_batch_{name}_duration"] == ("histogram", "method", duration)
    for name in ("tgi_queue_size", "tgi_batch_current_size", "tgi_batch_current_max_tokens"):
        assert rows[name][0] == "gauge"
    assert engine.metric("tgi_request_count") == 2
    assert engine.metric("tgi_request_success") == 1
    assert engine.metric('tgi_request_failure{err="validation"}') == 1
    assert engine.metric("tgi_request_generated_tokens_sum") == 6
    assert engine.metric("tgi_request_input_length_sum") == 2
    assert "model" not in page
    assert len(list(text_string_to_metric_families(page))) == len(rows)


def test_sglang_page_has_its_names(start):
    engine: EngineProcess = start("--flavour", "sglang", "--speed", "10")
    assert engine.chat(max_tokens=6, ignore_eos=True)[0] == 200
    page = engine.get("/metrics")[1]
    rows = {name: kind for name, kind, *_ in described(page)}
    for name in (
        "num_running_reqs",
        "num_queue_reqs",
        "token_usage",
        "gen_throughput",
        "cache_hit_rate",
        "num_retracted_reqs",
    ):
        assert rows[f"sglang:{name}"] == "gauge"
    for name in (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "queue_time_seconds",
    ):
        assert rows[f"sglang:{name}"] == "histogram"
    assert engine.metric("sglang:generation_tokens_total") == 6
    assert engine.metric("sglang:time_to_first_token_seconds_count") == 1
    assert len(list(text_string_to_metric_families(page))) > 20


@pytest.mark.parametrize(
    "value", [0.0, 1.0, 0.3, 123456.0, 1234567.0, 1.795e9, 1e-7, 3.14159265, math.inf, math.nan, -2.5]
)
def test_page_is_written_as_prometheus_client_writes_it(value):
    registry = CollectorRegistry()
    Gauge("a_gauge", "A gauge.", ["zone", "app"], registry=registry).labels("z", 'q"uo\\te\n').set(value)
    if value >= 0:
        Counter("b", "A counter.", registry=registry).inc(value)
        Histogram("c", "A histogram.", registry=registry, buckets=(0.5, 1, 2.5)).observe(value)
    theirs = generate_latest(registry).decode()

    page = Page(created_s=0.0)
    page.family("a_gauge", "gauge", "A gauge.").value({"zone": "z", "app": 'q"uo\\te\n'}).set(value)
    if value >= 0:
        page.family("b_total", "counter", "A counter.").value({}).add(value)
        page.family("c", "histogram", "A histogram.", bounds=(0.5, 1, 2.5)).summary({}).observe(value)

    def undated(text: str) -> list[str]:
        return [line.split(" ")[0] if "_created" in line and line[0] != "#" else line for line in text.splitlines()]

    assert undated(page.write()) == undated(theirs)
