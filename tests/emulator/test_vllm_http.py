"""The vLLM look-alike over HTTP, by the official client and by hand."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.emulator.engine_process import NAME, EngineProcess, chat_body, emitted, text_of, texts_of, until


@pytest.fixture
def client(quick):
    with openai.OpenAI(base_url=f"{quick.url}/v1", api_key="none", max_retries=0, timeout=20) as made:
        yield made


def complete(client: openai.OpenAI, *, messages: Any = None, **fields: Any) -> Any:
    return client.chat.completions.create(
        model=NAME, messages=messages or [{"role": "user", "content": "What is a lane?"}], **fields
    )


def test_official_client_gets_the_same_answer_whole_and_streamed(client):
    whole = complete(client, max_tokens=12)
    assert whole.choices[0].message.content == emitted(12)
    assert whole.choices[0].finish_reason == "length"
    # 1 + (4 + 4 words' bytes in fours + 1) + 4, as the template costs
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (14, 12)

    chunks = list(complete(client, max_tokens=12, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert deltas[0] == ""
    assert chunks[0].choices[0].delta.role == "assistant"
    assert deltas[1:] == emitted(12).split(" ")[:-1] or [d.strip() for d in deltas[1:]] == emitted(12).split()
    assert chunks[-1].usage.completion_tokens == 12
    assert chunks[-1].usage.prompt_tokens == 14
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


def test_official_client_streams_completions_of_several_prompts(client):
    chunks = client.completions.create(model=NAME, prompt=["One", "Two"], max_tokens=5, n=2, stream=True)
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert sorted(texts) == [0, 1, 2, 3]
    assert texts[0] == texts[2] == emitted(5)
    assert texts[1] == texts[3] != emitted(5)


def test_model_is_listed_and_another_is_not_found(client):
    assert [model.id for model in client.models.list()] == [NAME]
    with pytest.raises(openai.NotFoundError, match="The model `gpt-9` does not exist"):
        client.completions.create(model="gpt-9", prompt="x")


def test_answer_ends_by_itself_and_repeats(client):
    first, again = (complete(client) for _ in range(2))
    assert first.choices[0].finish_reason == "stop"
    assert (
        first.choices[0].message.content == again.choices[0].message.content == emitted(first.usage.completion_tokens)
    )
    other = complete(client, messages=[{"role": "user", "content": "Something else entirely?"}])
    assert other.usage.completion_tokens != first.usage.completion_tokens


@pytest.mark.parametrize("stopped_at", [1, 7, 30])
def test_chat_continues_where_an_interrupted_stream_stopped(client, stopped_at):
    question = {"role": "user", "content": "What is a lane?"}
    whole = complete(client, messages=[question], max_tokens=40, extra_body={"ignore_eos": True})
    rest = complete(
        client,
        messages=[question, {"role": "assistant", "content": emitted(stopped_at)}],
        max_tokens=40 - stopped_at,
        extra_body={"ignore_eos": True, "continue_final_message": True, "add_generation_prompt": False},
    )
    assert emitted(stopped_at) + rest.choices[0].message.content == whole.choices[0].message.content
    assert rest.usage.prompt_tokens == whole.usage.prompt_tokens + stopped_at


def test_continued_answer_ends_where_it_would_have_ended(client):
    whole = complete(client)
    length = whole.usage.completion_tokens
    kept = length // 2
    rest = complete(
        client,
        messages=[
            {"role": "user", "content": "What is a lane?"},
            {"role": "assistant", "content": emitted(kept)},
        ],
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )
    assert rest.usage.completion_tokens == length - kept
    assert rest.choices[0].finish_reason == "stop"


def test_completion_continues_when_the_prompt_ends_in_what_was_said(quick):
    _, first = quick.post("/v1/completions", {"model": NAME, "prompt": "Say: ", "max_tokens": 6})
    _, rest = quick.post("/v1/completions", {"model": NAME, "prompt": "Say: " + emitted(6), "max_tokens": 6})
    assert first["choices"][0]["text"] + rest["choices"][0]["text"] == emitted(12)


def test_stop_string_ends_an_answer_before_itself(quick):
    words = emitted(20).split()
    _, answer = quick.chat(max_tokens=20, ignore_eos=True, stop=[words[9], words[15]])
    assert answer["choices"][0]["message"]["content"].split() == words[:9]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["stop_reason"] == words[9]


def test_min_tokens_and_ignore_eos_set_the_length(quick):
    for fields, length in (
        ({"max_tokens": 700, "min_tokens": 700}, 700),
        ({"max_tokens": 600, "ignore_eos": True}, 600),
    ):
        _, answer = quick.chat(**fields)
        assert answer["usage"]["completion_tokens"] == length
        assert answer["choices"][0]["finish_reason"] == "length"


def test_continuous_usage_counts_every_token(quick):
    stream = quick.stream(
        max_tokens=5, stream_options={"include_usage": True, "continuous_usage_stats": True}, ignore_eos=True
    )
    events = [json.loads(event) for event in stream.rest() if event != "[DONE]"]
    stream.close()
    assert [e["usage"]["completion_tokens"] for e in events] == [0, 1, 2, 3, 4, 5, 5]


def test_shared_prefix_is_found_in_the_cache(quick):
    long_context = "The same long context for everybody. " * 60
    _, first = quick.chat(content=long_context + "A?", max_tokens=2)
    _, second = quick.chat(content=long_context + "B?", max_tokens=2)
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert 0.9 * second["usage"]["prompt_tokens"] < cached < second["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("body", "status", "message", "param"),
    [
        (b'{"model": "chat", "messages": [', 400, "JSON decode error", "body.31"),
        ({"model": NAME}, 400, "body.messages: Field required", "body.messages"),
        ({"model": NAME, "messages": "hi"}, 400, "Input should be a valid list", "body.messages"),
        (chat_body("x", max_tokens=0), 400, "max_tokens must be at least 1, got 0.", "max_tokens"),
        (chat_body("x", max_tokens=9999), 400, "max_tokens=9999 cannot be greater than max_model_len=2048", "max_tokens"),
        (chat_body("x " * 9000), 400, "This model's maximum context length is 2048 tokens.", "input_tokens"),
        (chat_body("x", n=99), 400, "n must be at most 16, got 99: more is not emulated", None),
        (chat_body("x", logprobs=True), 400, "logprobs are not emulated", "logprobs"),
        (chat_body("x", tool_choice="required"), 400, "`tools` must be set", "tool_choice"),
        (chat_body("x", response_format={"type": "json_object"}), 400, "not emulated", "response_format"),
        (chat_body("x", continue_final_message=True), 400, "Cannot set both", None),
        (chat_body("x", stream_options={}), 400, "only be defined when `stream=True`", "stream_options"),
        ({**chat_body("x"), "model": "other"}, 404, "The model `other` does not exist.", "model"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_in_openai_shape(quick, body, status, message, param):
    code, answer = quick.post("/v1/chat/completions", body)
    assert code == status
    assert answer["error"]["code"] == status
    assert message in answer["error"]["message"]
    assert answer["error"]["param"] == param
    assert answer["error"]["type"]


def test_other_routes_answer(quick):
    assert quick.get("/health") == (200, "")
    assert quick.get("/ping") == (200, "")
    assert json.loads(quick.get("/version")[1]) == {"version": "0.32.0"}
    assert json.loads(quick.get("/load")[1]) == {"server_load": 0}
    assert quick.post("/tokenize", {"prompt": "12345678901"})[1]["count"] == 3
    assert quick.get("/nowhere")[0] == 404


def test_client_that_goes_away_frees_the_engine_within_a_moment(start):
    engine: EngineProcess = start()
    stream = engine.stream(max_tokens=2000, ignore_eos=True)
    stream.first_text()
    assert engine.metric("vllm:num_requests_running") == 1
    stream.close()
    gone_s = SYSTEM_CLOCK.monotonic_s()
    until(lambda: engine.state()["running"] == 0, "the sequence is aborted")
    assert SYSTEM_CLOCK.monotonic_s() - gone_s < 10.0  # 0.3 s in a real one; its answer would take a minute
    assert engine.state()["kv_blocks_used"] == 0
    assert engine.metric("vllm:request_success_total") == 0

    waiting = engine.open_stream("/v1/completions", {"model": NAME, "prompt": "x", "stream": True, "max_tokens": 9})
    assert len([e for e in waiting.rest() if text_of(e)]) == 9
    waiting.close()


def test_client_that_gives_up_on_a_whole_answer_frees_the_engine_too(start):
    engine: EngineProcess = start()
    connection = http.client.HTTPConnection("127.0.0.1", engine.port)
    body = json.dumps(chat_body("x", max_tokens=3000, ignore_eos=True))
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    until(lambda: engine.state()["running"] == 1, "it runs")
    connection.close()
    until(lambda: engine.state()["running"] == engine.state()["in_flight"] == 0, "the sequence is aborted", 5)


def test_client_that_does_not_read_gets_everything_later_in_fewer_events(start):
    engine: EngineProcess = start("--speed", "1000")
    stream = engine.stream(max_tokens=30_000, ignore_eos=True)
    until(lambda: engine.metric("vllm:request_success_total") == 1, "generation does not wait for the reader")
    events = stream.rest()
    stream.close()
    assert texts_of(events) == emitted(30_000)
    assert events[-1] == "[DONE]"
    assert len(events) < 30_000


def test_key_guards_v1_only(start):
    engine = start("--api-key-env", "EMULATOR_KEY", EMULATOR_KEY="s3cret")
    assert engine.chat(max_tokens=2)[0] == 401
    assert engine.get("/v1/models")[0] == 401
    assert engine.get("/health")[0] == engine.get("/metrics")[0] == engine.get("/version")[0] == 200
    status, _ = engine.post("/v1/chat/completions", chat_body("x", max_tokens=2), Authorization="Bearer s3cret")
    assert status == 200


def test_full_queue_rejects_what_comes_within_one_step_inside_a_200(start):
    # So slow that all twelve are there within one step: what is known before a response begins is a step old.
    engine: EngineProcess = start("--max-num-seqs", "1", "--max-queued-requests", "6", "--speed", "0.2")
    with ThreadPoolExecutor(12) as clients:
        streams = list(clients.map(lambda _: engine.stream(max_tokens=8, ignore_eos=True), range(12)))
    inside = before = served = 0
    for stream in streams:
        events = stream.rest() if stream.status == 200 else []
        if stream.status == 503:
            assert stream.response.getheader("Retry-After") is None
            before += 1
        elif '"code":503' in events[0]:
            assert events[1:] == ["[DONE]"]
            inside += 1
        else:
            assert texts_of(events) == emitted(8)
            served += 1
        stream.close()
    assert served >= 2
    assert inside > 0
    assert (
        engine.metric('vllm:admission_rejections_total{model_name="chat",reason="max_num_queued_reqs"}')
        == inside + before
    )


def test_full_queue_refuses_whole_answers_with_503(start):
    engine: EngineProcess = start("--max-num-seqs", "1", "--max-queued-requests", "1")
    stream = engine.stream(max_tokens=2000, ignore_eos=True)
    stream.first_text()
    status, answer = engine.chat(max_tokens=2)
    stream.close()
    assert status == 503
    assert answer["error"]["code"] == 503
    assert answer["error"]["type"] == "Service Unavailable"


def test_lower_priority_number_is_served_first_when_asked_to(start):
    engine: EngineProcess = start("--max-num-seqs", "1", "--priority-scheduling")
    first = engine.stream(max_tokens=60, ignore_eos=True)
    first.first_text()
    late = engine.stream(content="late", max_tokens=40, ignore_eos=True, priority=5)
    soon = engine.stream(content="soon", max_tokens=40, ignore_eos=True, priority=-5)
    until(lambda: engine.state()["waiting"] == 2, "both wait")
    soon.first_text()
    assert engine.state()["waiting"] == 1, "the higher number still waits"
    for stream in (first, late, soon):
        stream.close()
