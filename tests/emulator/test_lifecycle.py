"""How an emulated engine begins and ends: as the real ones were seen to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.emulator.engine_bench import MODEL_8B_L40S
from tests.emulator.engine_process import GPU, MODEL, EngineProcess, accepts, emitted, texts_of, until
from tests.ports import free_port


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_vllm_without_a_timeout_aborts_streams_with_done_and_answers_500(start, number):
    engine: EngineProcess = start("--max-num-seqs", "1")
    stream = engine.stream(max_tokens=4000, ignore_eos=True)
    stream.first_text()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.chat, max_tokens=10)
        until(lambda: engine.state()["waiting"] == 1, "the second waits")
        engine.send_signal(number)
        events = stream.rest()
        assert waiting.result()[0] == 500
    assert events[-1] == "[DONE]"
    assert '"finish_reason":"' not in "".join(events)
    stream.close()
    assert engine.wait_end() == 0


def test_vllm_with_a_timeout_drains_running_and_queued_and_refuses_new(start):
    engine: EngineProcess = start("--max-num-seqs", "1", "--shutdown-timeout-s", "60")
    running = engine.stream(max_tokens=60, ignore_eos=True)
    running.first_text()
    queued = engine.stream(max_tokens=20, ignore_eos=True)
    engine.send_signal()
    until(lambda: engine.state()["is_draining"], "it heard")
    assert engine.get("/health")[0] == 200
    status, answer = engine.chat(max_tokens=2)
    assert status == answer["error"]["code"] == 500
    assert texts_of(running.rest()) == emitted(60)[4:]
    assert texts_of(queued.rest()) == emitted(20)
    running.close()
    queued.close()
    assert engine.wait_end() == 0


def test_vllm_with_too_short_a_timeout_ends_and_cuts_what_is_left(start):
    engine: EngineProcess = start("--shutdown-timeout-s", "0.3")
    stream = engine.stream(max_tokens=5000, ignore_eos=True)
    stream.first_text()
    engine.send_signal()
    assert stream.rest()[-1] == "CUT"
    stream.close()
    assert engine.wait_end() == 0


def test_tgi_stops_listening_and_finishes_what_it_has(start):
    engine: EngineProcess = start("--flavour", "tgi")
    stream = engine.stream(max_tokens=60, ignore_eos=True)
    stream.first_text()
    engine.send_signal()
    until(lambda: not accepts(engine.port), "the port is closed")
    assert texts_of(stream.rest()) == emitted(60)[4:]
    stream.close()
    assert engine.wait_end() == 0


def test_sglang_is_unhealthy_while_it_drains_without_a_deadline(start):
    engine: EngineProcess = start("--flavour", "sglang")
    stream = engine.stream(max_tokens=80, ignore_eos=True)
    stream.first_text()
    engine.send_signal()
    until(lambda: engine.get("/health")[0] == 503, "it says so")
    assert engine.chat(max_tokens=2)[0] == 200  # it still takes new work
    assert texts_of(stream.rest()) == emitted(80)[4:]
    stream.close()
    assert engine.wait_end() == 0


def test_connections_are_refused_until_start_up_is_over(start):
    port = free_port()
    engine: EngineProcess = start("--startup-s", "1.5", "--port", str(port), waits=False)
    refused = 0
    began_s = SYSTEM_CLOCK.monotonic_s()
    while SYSTEM_CLOCK.monotonic_s() - began_s < 1.0:
        assert not accepts(port)
        refused += 1
        SYSTEM_CLOCK.sleep_blocking(0.05)
    assert refused > 0
    engine.wait_ready()
    assert SYSTEM_CLOCK.monotonic_s() - began_s > 1.5
    assert engine.get("/health")[0] == 200


def test_sglang_says_503_while_it_warms_up(start):
    port = free_port()
    engine: EngineProcess = start("--flavour", "sglang", "--startup-s", "3", "--port", str(port), waits=False)
    until(lambda: accepts(port), "the port is open")
    engine.port = port
    assert engine.get("/health")[0] == 503
    engine.wait_ready()
    assert engine.get("/health_generate")[0] == 200


def test_never_ready_never_listens_and_still_ends_when_told(start):
    port = free_port()
    engine: EngineProcess = start("--fault", "never-ready", "--port", str(port), waits=False)
    SYSTEM_CLOCK.sleep_blocking(1.0)
    assert engine.is_alive
    assert not accepts(port)
    engine.send_signal()
    assert engine.wait_end() in (0, -signal.SIGTERM)  # the latter when the signal came before its handler


def test_taken_port_is_said_at_once(start):
    first: EngineProcess = start()
    second: EngineProcess = start("--port", str(first.port), "--startup-s", "60", waits=False)
    assert second.wait_end() == 3
    assert "cannot be bound" in second.errors()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--gpu", "B9000"], 8, "not in the catalogue"),
        (["--model", "nobody/nothing"], 8, "neither in the catalogue nor a directory"),
        (["--model", "meta-llama/Llama-3.1-70B-Instruct"], 3, "leaves no room for a KV cache"),
        (["--max-model-len", "9000000"], 3, "less than one request of --max-model-len"),
        (["--fault", "gremlins"], 2, "known faults: slow"),
        (["--speed", "0"], 2, "more than 0"),
        (["--max-num-seqs", "999", "--max-num-batched-tokens", "100"], 2, "not every running sequence"),
        (["--api-key-env", "NOT_SET_ANYWHERE"], 2, "no such variable"),
    ],
)
def test_wrong_launches_are_explained(tmp_path, arguments, status, message):
    ended = subprocess.run(
        [sys.executable, "-m", "fleetctl_emulator", "--model", MODEL, "--gpu", GPU, "--port", "0", *arguments],
        capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == status
    assert message in " ".join(ended.stderr.split())


def test_own_figures_need_no_catalogue(start):
    card = {
        "id": "own", "params": 1_000_000_000, "active_params": 1_000_000_000, "num_layers": 16, "hidden_size": 2048,
        "num_heads": 16, "num_kv_heads": 4, "head_dim": 128, "vocab_size": 32000, "context_tokens_max": 8192,
    }  # fmt: skip
    gpu = {"name": "own", "memory_bytes": 2**34, "memory_bytes_per_s": 5e11, "flops": {"bf16": 1e14}}
    engine = start("--model", "own", "--model-card", json.dumps(card), "--gpu", "own", "--gpu-spec", json.dumps(gpu))
    assert engine.state()["max_model_len"] == 8192
    assert engine.chat(max_tokens=3)[0] == 200


def test_model_directory_is_read(start, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
                "num_key_value_heads": 2, "vocab_size": 300, "intermediate_size": 128, "max_position_embeddings": 512,
            }
        )
    )  # fmt: skip
    engine = start("--model", str(tmp_path / "tiny"))
    assert engine.state()["max_model_len"] == 512


def test_steps_keep_the_modelled_pace_or_say_how_much_they_lost(start):
    engine: EngineProcess = start("--speed", "3")
    model = MODEL_8B_L40S
    expected_s = (model.prefill_s(14) + sum(model.decode_step_s(1, 14 + made) for made in range(1, 120))) / 3
    began_s = SYSTEM_CLOCK.monotonic_s()
    assert engine.chat(max_tokens=120, ignore_eos=True)[0] == 200
    took_s = SYSTEM_CLOCK.monotonic_s() - began_s
    assert took_s > 0.97 * expected_s
    assert took_s < 1.1 * expected_s + engine.state()["written_off_s"] + 0.5


def test_idle_engine_uses_next_to_no_time_and_little_memory(start):
    engine: EngineProcess = start()
    engine.chat(max_tokens=20)
    before_s = engine.metric("process_cpu_seconds_total")
    SYSTEM_CLOCK.sleep_blocking(2.0)
    assert engine.metric("process_cpu_seconds_total") - before_s < 0.05
    assert engine.metric("process_resident_memory_bytes") < 80e6


def test_neither_pydantic_nor_httpx_is_loaded():
    code = (
        "import sys, fleetctl_emulator.__main__, fleetctl_emulator.instance as c; c.load_catalogue();"
        "print([m for m in ('pydantic', 'httpx', 'typer', 'prometheus_client') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"


def test_many_clients_are_served_at_once(start):
    engine: EngineProcess = start("--speed", "20", "--max-num-seqs", "32")
    answers: list[str] = []
    lock = threading.Lock()

    def one(number: int) -> None:
        stream = engine.stream(content=f"question {number}", max_tokens=50, ignore_eos=True)
        text = texts_of(stream.rest())
        stream.close()
        with lock:
            answers.append(text)

    with ThreadPoolExecutor(48) as pool:
        list(pool.map(one, range(96)))
    assert answers == [emitted(50)] * 96
    state = engine.state()
    assert (state["running"], state["waiting"], state["kv_blocks_used"], state["in_flight"]) == (0, 0, 0, 0)
