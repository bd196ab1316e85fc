"""The TGI and SGLang look-alikes over HTTP."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.emulator.engine_process import NAME, EngineProcess, emitted, texts_of, until


@pytest.fixture(scope="module")
def tgi(tmp_path_factory):
    process = EngineProcess(
        tmp_path_factory.mktemp("tgi"), "--flavour", "tgi", "--speed", "10", "--max-model-len", "2048"
    )
    yield process
    process.close()


def test_generate_answers_whole_with_details(tgi):
    status, answer = tgi.post("/generate", {"inputs": "Hello", "parameters": {"max_new_tokens": 7, "details": True}})
    assert status == 200
    assert answer["generated_text"] == emitted(7)
    assert answer["details"]["finish_reason"] == "length"
    assert answer["details"]["generated_tokens"] == 7
    assert [token["text"] for token in answer["details"]["tokens"]] == [f"{word} " for word in emitted(7).split()]


def test_generate_stream_numbers_its_tokens_and_ends_with_the_text(tgi):
    stream = tgi.open_stream("/generate_stream", {"inputs": "Hello", "parameters": {"max_new_tokens": 5}})
    events = [json.loads(event) for event in stream.rest()]
    stream.close()
    assert [event["index"] for event in events] == [1, 2, 3, 4, 5]
    assert "".join(event["token"]["text"] for event in events) == emitted(5)
    assert [event["generated_text"] for event in events] == [None] * 4 + [emitted(5)]


def test_generate_continues_what_was_said(tgi):
    _, answer = tgi.post("/generate", {"inputs": "Hello " + emitted(5), "parameters": {"max_new_tokens": 5}})
    assert answer["generated_text"] == emitted(5, start=5)


def test_chat_goes_on_from_a_last_message_of_the_assistant_without_any_flag(tgi):
    question = {"role": "user", "content": "What is a lane?"}
    body = {"messages": [question, {"role": "assistant", "content": emitted(5)}], "max_tokens": 5}
    _, answer = tgi.post("/v1/chat/completions", body)
    assert answer["choices"][0]["message"]["content"] == emitted(5, start=5)


def test_compatible_route_answers_in_a_list(tgi):
    status, answer = tgi.post("/", {"inputs": "Hello", "parameters": {"max_new_tokens": 2}})
    assert status == 200
    assert answer == [{"generated_text": emitted(2)}]
    assert tgi.get("/")[0] == 200


def test_official_client_is_served_and_the_model_not_looked_at(tgi):
    with openai.OpenAI(base_url=f"{tgi.url}/v1", api_key="none", max_retries=0, timeout=20) as client:
        question: Any = [{"role": "user", "content": "What is a lane?"}]
        whole = client.chat.completions.create(model="tgi", messages=question, max_tokens=8)
        assert whole.choices[0].message.content == emitted(8)
        chunks = client.chat.completions.create(
            model="tgi", messages=question, max_tokens=8, stream=True, stream_options={"include_usage": True}
        )
        made = list(chunks)
        assert "".join(c.choices[0].delta.content or "" for c in made if c.choices) == emitted(8)
        assert made[-1].usage is not None
        assert made[-1].usage.completion_tokens == 8
        assert client.completions.create(model="tgi", prompt="x", max_tokens=3).choices[0].text == emitted(3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": "x", "parameters": {"max_new_tokens": 5000}}, "`inputs` tokens + `max_new_tokens` must be <= 2048"),
        ({"inputs": "x", "parameters": {"max_new_tokens": 0}}, "`max_new_tokens` must be strictly positive"),
        ({"inputs": "x " * 5000}, "`inputs` must have less than 2047 tokens"),
        ({"inputs": ""}, "`inputs` cannot be empty"),
        ({"inputs": "x", "parameters": {"stop": list("abcde")}}, "supports up to 4 stop sequences"),
    ],
)
def test_invalid_input_is_422(tgi, body, message):
    status, answer = tgi.post("/generate", body)
    assert status == 422
    assert answer["error_type"] == "validation"
    assert answer["error"].startswith("Input validation error: ")
    assert message in answer["error"]


def test_unreadable_body_is_422_in_plain_text(tgi):
    status, answer = tgi.post("/generate", b'{"input": "x"}')
    assert status == 422
    assert "Failed to deserialize" in answer


def test_failed_generation_is_424(tgi):
    tgi.fault("fail-generation:2")
    status, answer = tgi.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 5}})
    stream = tgi.open_stream("/generate_stream", {"inputs": "x", "parameters": {"max_new_tokens": 5}})
    events = [json.loads(event) for event in stream.rest()]
    stream.close()
    tgi.heal()
    assert (status, answer["error_type"]) == (424, "generation")
    assert events[-1]["error_type"] == "generation"


def test_tokenize_and_info(tgi):
    status, tokens = tgi.post("/tokenize", {"inputs": "lane by lane"})
    assert status == 200
    assert [token["text"] for token in tokens] == ["lane", " by ", "lane"]
    info = json.loads(tgi.get("/info")[1])
    assert (info["model_id"], info["max_total_tokens"], info["version"]) == (NAME, 2048, "3.3.7")


def test_overloaded_tgi_says_429_and_in_streams_an_error_event(start):
    engine: EngineProcess = start("--flavour", "tgi", "--max-num-seqs", "1", "--max-queued-requests", "1")
    running = engine.stream(max_tokens=2000, ignore_eos=True)
    running.first_text()
    status, answer = engine.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 5}})
    assert (status, answer) == (429, {"error": "Model is overloaded", "error_type": "overloaded"})
    refused = engine.stream(max_tokens=2)
    assert refused.status == 200
    assert refused.rest() == ['{"error":{"message":"Model is overloaded","http_status_code":422}}', "[DONE]"]
    running.close()
    refused.close()
    assert engine.metric('tgi_request_failure{err="overloaded"}') == 2


def test_tgi_reserves_the_whole_budget_and_never_preempts(start):
    engine: EngineProcess = start(
        "--flavour", "tgi", "--gpu-memory-utilization", "0.422", "--speed", "200", "--max-num-seqs", "8"
    )
    kv_tokens = engine.state()["kv_blocks"] * 16
    length = min(engine.state()["max_model_len"] - 100, kv_tokens // 2 + 500)
    streams = [engine.stream(content=f"{n}", max_tokens=length, ignore_eos=True) for n in range(2)]
    streams[0].first_text()
    assert engine.state()["running"] == 1
    assert [texts_of(stream.rest())[:4] for stream in streams][1] == emitted(1)
    for stream in streams:
        stream.close()


def test_sglang_refuses_when_too_many_wait_whatever_runs(start):
    engine: EngineProcess = start("--flavour", "sglang", "--max-num-seqs", "1", "--max-queued-requests", "1")
    assert json.loads(engine.get("/get_model_info")[1])["served_model_name"] == NAME
    running = engine.stream(max_tokens=2000, ignore_eos=True)
    running.first_text()
    waiting = engine.stream(max_tokens=2)
    until(lambda: engine.state()["waiting"] == 1, "the second waits")
    status, answer = engine.chat(max_tokens=2)
    assert (status, answer["object"], answer["message"]) == (503, "error", "The request queue is full.")
    refused = engine.stream(max_tokens=2)
    assert refused.status == 200
    assert json.loads(refused.event())["error"]["code"] == 503
    running.close()
    assert texts_of(waiting.rest()) == emitted(2)


@pytest.mark.parametrize(("order", "first"), [((), 5), (("--schedule-low-priority-values-first",), -5)])
def test_sglang_serves_the_higher_priority_first_unless_told_otherwise(start, order, first):
    engine: EngineProcess = start("--flavour", "sglang", "--max-num-seqs", "1", "--priority-scheduling", *order)
    running = engine.stream(max_tokens=30, ignore_eos=True)
    running.first_text()
    streams = {p: engine.stream(content=f"{p}", max_tokens=200, ignore_eos=True, priority=p) for p in (-5, 5)}
    until(lambda: engine.state()["waiting"] == 2, "both wait")
    streams[first].first_text()
    assert engine.state()["waiting"] == 1, "the other still waits"
