"""Requests that engines are held to: good, bad and odd ones, by name. What is compared is up to the test.

`REQUESTS` are what every engine of a fleet answers alike; `WIRE` has them too, and what one engine alone is asked: its own
fields and routes, content types, keys, methods, and what is hardly HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello there"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
PARTS = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def chat(**more: Any) -> tuple[str, Any]:
    return CHAT, {"model": "tiny", "messages": MESSAGES, "max_tokens": 6, "temperature": 0} | more


def text(**more: Any) -> tuple[str, Any]:
    return TEXT, {"model": "tiny", "prompt": "hello", "max_tokens": 6, "temperature": 0} | more


REQUESTS: dict[str, tuple[str, Any]] = {
    "chat": chat(),
    "chat streamed": chat(stream=True),
    "chat streamed with usage": chat(stream=True, stream_options={"include_usage": True}),
    "completion": text(),
    "completion streamed": text(stream=True),
    "completion streamed with usage": text(stream=True, stream_options={"include_usage": True}),
    "max_completion_tokens": (CHAT, {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 5}),
    "stop": chat(stop=["zzzz", "yyyy"]),
    "stop as text": chat(stop="zzzz"),
    "two choices": chat(n=2, temperature=1),
    "two choices streamed": chat(n=2, temperature=1, stream=True),
    "seed": chat(seed=7, temperature=1),
    "penalties": chat(presence_penalty=1, frequency_penalty=1),
    "logit_bias": chat(logit_bias={"5": -100}),
    "user": chat(user="me"),
    "content in parts": chat(messages=PARTS),
    "an unknown field": chat(frobnicate=1),
    "several prompts": text(prompt=["a", "b"]),
    "a prompt of token ids": text(prompt=[5, 6, 7]),
    "messages of the wrong type": chat(messages="hello"),
    "no messages": (CHAT, {"model": "tiny", "max_tokens": 3}),
    "no prompt": (TEXT, {"model": "tiny", "max_tokens": 3}),
    "stream of the wrong type": chat(stream="yes"),
    "max_tokens of the wrong type": chat(max_tokens="many"),
    "max_tokens below zero": chat(max_tokens=-5),
    "max_tokens over the context": chat(max_tokens=5000),
    "temperature of the wrong type": chat(temperature="hot"),
    "no choice": chat(n=0),
    "cut off": (CHAT, b'{"model": "tiny",'),
    "no JSON": (CHAT, b"hello"),
    "a JSON list": (CHAT, b"[]"),
    "no UTF-8": (CHAT, b'{"model":"tiny","messages":[{"role":"user","content":"\xff"}]}'),
    "a prompt over the context": chat(messages=[{"role": "user", "content": "word " * 3000}]),
    "an unknown model": chat(model="nope"),
    "no model": (CHAT, {"messages": MESSAGES, "max_tokens": 4}),
    "an empty prompt": text(prompt=""),
    "a temperature below zero": chat(temperature=-1),
    "top_p over one": chat(top_p=2),
    "a penalty too high": chat(presence_penalty=9),
    "no token": chat(max_tokens=0),
    "tools, automatic": chat(tools=[TOOL]),
    "an image": chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]),
    "JSON by a schema": chat(response_format=SCHEMA),
    "an empty list of messages": chat(messages=[]),
    "eight stop sequences": chat(stop=list("abcdefgh")),
    "four stop sequences": chat(stop=list("wxyz")),
    "a stop sequence of nothing": chat(stop=""),
    "stop of the wrong type": chat(stop=7),
    "no stop": chat(stop=None),
    "no stop sequence": chat(stop=[]),
    "temperature of two": chat(temperature=2),
    "no temperature": chat(temperature=None),
    "top_p of zero": chat(top_p=0),
    "top_p below zero": chat(top_p=-0.1),
    "top_p of one": chat(top_p=1),
    "top_p of the wrong type": chat(top_p="all"),
    "a penalty too low": chat(presence_penalty=-9),
    "a frequency penalty too high": chat(frequency_penalty=9),
    "a frequency penalty of the wrong type": chat(frequency_penalty="much"),
    "penalties at their bounds": chat(presence_penalty=-2, frequency_penalty=2),
    "no penalty": chat(presence_penalty=None),
    "n of the wrong type": chat(n="two"),
    "n below zero": chat(n=-1),
    "no n": chat(n=None),
    "a seed of the wrong type": chat(seed="seven"),
    "a seed below zero": chat(seed=-7),
    "no seed": chat(seed=None),
    "one token": chat(max_tokens=1),
    "no max_tokens": chat(max_tokens=None),
    "a fraction of a token": chat(max_tokens=1.5),
    "max_tokens as text of digits": chat(max_tokens="6"),
    "no completion token": (CHAT, {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 0}),
    "completion tokens below zero": (CHAT, {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": -3}),
    "both lengths": chat(max_completion_tokens=4),
    "no stream": chat(stream=None),
    "not streamed": chat(stream=False),
    "stream options without a stream": chat(stream_options={"include_usage": True}),
    "stream options of the wrong type": chat(stream=True, stream_options="usage"),
    "no stream options": chat(stream=True, stream_options=None),
    "stream without usage": chat(stream=True, stream_options={"include_usage": False}),
    "a model of the wrong type": chat(model=7),
    "an empty model": chat(model=""),
    "a model of null": chat(model=None),
    "an unknown model, streamed": chat(model="nope", stream=True),
    "an unknown model, completion": text(model="nope"),
    "a message without a role": chat(messages=[{"content": "hello"}]),
    "a message without content": chat(messages=[{"role": "user"}]),
    "a message that is text": chat(messages=["hello"]),
    "a message that is null": chat(messages=[None]),
    "messages of null": chat(messages=None),
    "messages as one section": chat(messages={"role": "user", "content": "hello"}),
    "an unknown role": chat(messages=[{"role": "wizard", "content": "hello"}]),
    "a role of the wrong type": chat(messages=[{"role": 7, "content": "hello"}]),
    "content of null": chat(messages=[{"role": "user", "content": None}]),
    "content of the wrong type": chat(messages=[{"role": "user", "content": 7}]),
    "content of nothing": chat(messages=[{"role": "user", "content": ""}]),
    "no parts": chat(messages=[{"role": "user", "content": []}]),
    "a part without a type": chat(messages=[{"role": "user", "content": [{"text": "hello"}]}]),
    "a part of an unknown type": chat(messages=[{"role": "user", "content": [{"type": "smell", "smell": "x"}]}]),
    "sound": chat(messages=[{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]}]),
    "a system message": chat(messages=[{"role": "system", "content": "be brief"}, *MESSAGES]),
    "an answer before": chat(messages=[*MESSAGES, {"role": "assistant", "content": "hi"}, *MESSAGES]),
    "two users in a row": chat(messages=[*MESSAGES, *MESSAGES]),
    "a name": chat(messages=[{"role": "user", "name": "ann", "content": "hello"}]),
    "a text with emoji": chat(messages=[{"role": "user", "content": "\U0001f600 \u4f60\u597d"}]),
    "no tools": chat(tools=[]),
    "tools of null": chat(tools=None),
    "tools, none to be used": chat(tools=[TOOL], tool_choice="none"),
    "tools, automatic, streamed": chat(tools=[TOOL], stream=True),
    "tools of the wrong type": chat(tools="f"),
    "a tool choice without tools": chat(tool_choice="auto"),
    "JSON, any": chat(response_format={"type": "json_object"}),
    "text as the format": chat(response_format={"type": "text"}),
    "an unknown format": chat(response_format={"type": "xml"}),
    "a format of the wrong type": chat(response_format="json"),
    "a bias of the wrong type": chat(logit_bias="none"),
    "a bias too high": chat(logit_bias={"5": 1000}),
    "no bias": chat(logit_bias=None),
    "metadata": chat(metadata={"a": "b"}),
    "a user of the wrong type": chat(user=7),
    "a prompt of null": text(prompt=None),
    "a prompt of the wrong type": text(prompt=7),
    "no prompts": text(prompt=[]),
    "prompts of several types": text(prompt=["a", 5]),
    "several prompts of token ids": text(prompt=[[5, 6], [7]]),
    "completion, no token": text(max_tokens=0),
    "completion, a temperature below zero": text(temperature=-1),
    "completion, top_p over one": text(top_p=2),
    "completion, a penalty too high": text(frequency_penalty=9),
    "completion, two choices": text(n=2, temperature=1),
    "completion, stop": text(stop=["zzzz"]),
    "completion, over the context": text(prompt="word " * 3000),
    "an empty body": (CHAT, b""),
    "null": (CHAT, b"null"),
    "a number": (CHAT, b"7"),
    "twice the same key": (CHAT, b'{"model":"tiny","model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":3}'),
    "trailing comma": (CHAT, b'{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":3,}'),
    "NaN": (CHAT, b'{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"temperature":NaN}'),
}  # fmt: skip

# Not recorded of a real vLLM by itself, but asked of every lane.
# What engines disagree on and the gateway decides, where it checks the requests of a model.
DECIDED: dict[str, tuple[str, Any]] = {
    "a temperature over two": chat(temperature=2.5),
    "several greedy choices": chat(n=2),
    "several greedy choices of a completion": text(n=3),
    "a seed of 64 bits and one": chat(seed=2**63),
    "half a seed": chat(seed=1.5),
    "a seed of digits": chat(seed="7"),
    "top_k below every engine's": chat(top_k=-2),
    "min_p below zero": chat(min_p=-1),
    "a repetition penalty of zero": chat(repetition_penalty=0),
    "fewer tokens than none": chat(min_tokens=-1),
    "alternatives without log probabilities": chat(top_logprobs=3),
    "too many alternatives": chat(logprobs=True, top_logprobs=21),
    "alternatives of the wrong type": chat(logprobs=True, top_logprobs="x"),
    "log probabilities below zero": text(logprobs=-1),
    "log probabilities of the wrong type": text(logprobs=True),
    "parallel tools of the wrong type": chat(parallel_tool_calls="x"),
    "a bias of a word": chat(logit_bias={"x": 1}),
    "a bias that is text": chat(logit_bias={"5": "a"}),
    "a bias over a hundred": chat(logit_bias={"5": 101}),
    "a format without a type": chat(response_format={}),
    "an unknown format": chat(response_format={"type": "foo"}),
    "a format without its schema": chat(response_format={"type": "json_schema"}),
    "a part without its text": chat(messages=[{"role": "user", "content": [{"type": "text"}]}]),
    "a part whose text is a number": chat(messages=[{"role": "user", "content": [{"type": "text", "text": 5}]}]),
    "a part that is text": chat(messages=[{"role": "user", "content": ["hello"]}]),
    "a name that is a number": chat(messages=[{"role": "user", "name": 5, "content": "hello"}]),
    "an assistant that says nothing": chat(messages=[*MESSAGES, {"role": "assistant"}, *MESSAGES]),
    "a tool without a type": chat(tools=[{}], tool_choice="none"),
    "a tool without a function": chat(tools=[{"type": "function"}], tool_choice="none"),
    "a tool whose name is a number": chat(tools=[{"type": "function", "function": {"name": 5}}], tool_choice="none"),
    "a tool of another type": chat(tools=[{"type": "web", "function": {"name": "f"}}], tool_choice="none"),
    "tools that are text": chat(tools="x", tool_choice="none"),
    "tools in one section": chat(tools={}, tool_choice="none"),
    "something behind the answer": text(suffix="x"),
    "several prompts, one empty": text(prompt=["a", ""]),
    "a prompt that is a number": text(prompt=5),
    "a prompt of null": text(prompt=None),
}
SEVERAL_STREAMED = {
    "several prompts, streamed": text(prompt=["a", "b"], stream=True),
    "several prompts, streamed with usage": text(
        prompt=["a", "b"], stream=True, stream_options={"include_usage": True}
    ),
}


JSON = {"Content-Type": "application/json"}
KEY = "sk-engine"
VOCABULARY = 512  # of the tiny model: tests/engine_env/make_tiny_model.py


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRequest:
    """One request as it goes over a socket. `raw`, where it is given, is all of it."""

    method: str = "POST"
    path: str = CHAT
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=JSON.copy)
    key: str | None = KEY
    raw: bytes = b""

    def encoded(self) -> bytes:
        """Return its bytes; the connection is to be closed after it."""
        if self.raw:
            return self.raw
        headers = {"Host": "engine", "Connection": "close", **self.headers}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        if self.method in ("POST", "PUT", "PATCH") and "Transfer-Encoding" not in headers:
            headers["Content-Length"] = str(len(self.body))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self.method} {self.path} HTTP/1.1\r\n{head}\r\n".encode() + self.body


def posted(request: tuple[str, Any], **rest: Any) -> WireRequest:
    """Return a request of REQUESTS, as JSON, with these headers or this key instead of the usual ones."""
    path, body = request
    return WireRequest(path=path, body=body if isinstance(body, bytes) else json.dumps(body).encode(), **rest)


def got(path: str, method: str = "GET", **rest: Any) -> WireRequest:
    """Return a request without a body."""
    return WireRequest(method=method, path=path, headers=rest.pop("headers", {}), **rest)


def plain_tool(choice: Any, **more: Any) -> WireRequest:
    return posted(chat(tools=[TOOL], tool_choice=choice, **more))


NAMED = {"type": "function", "function": {"name": "f"}}
STREAMED_COUNTS = {"include_usage": True, "continuous_usage_stats": True}
LAST_TURN = [*MESSAGES, {"role": "assistant", "content": "well"}]
GENERATE = "/inference/v1/generate"

WIRE: dict[str, WireRequest] = {
    **{name: posted(request) for name, request in REQUESTS.items()},
    # Content types and encodings.
    "no content type": posted(chat(), headers={}),
    "text": posted(chat(), headers={"Content-Type": "text/plain"}),
    "a form": posted(chat(), headers={"Content-Type": "application/x-www-form-urlencoded"}),
    "JSON with a character set": posted(chat(), headers={"Content-Type": "application/json; charset=utf-8"}),
    "JSON in capitals": posted(chat(), headers={"Content-Type": "APPLICATION/JSON"}),
    "JSON of a vendor": posted(chat(), headers={"Content-Type": "application/vnd.api+json"}),
    "an empty content type": posted(chat(), headers={"Content-Type": ""}),
    "no content type, completion": posted(text(), headers={}),
    "no UTF-8, completion": posted((TEXT, b'{"model":"tiny","prompt":"\xff"}')),
    "no UTF-8 in a key": posted((CHAT, b'{"model":"tiny","\xff":1,"messages":[{"role":"user","content":"hi"}],"max_tokens":3}')),
    "UTF-16": posted((CHAT, json.dumps(chat()[1]).encode("utf-16"))),
    "a byte order mark": posted((CHAT, b"\xef\xbb\xbf" + json.dumps(chat()[1]).encode())),
    "half a surrogate": posted((CHAT, b'{"model":"tiny","messages":[{"role":"user","content":"\\ud800"}],"max_tokens":3}')),
    "half a surrogate, completion": posted((TEXT, b'{"model":"tiny","prompt":"\\ud800","max_tokens":3}')),
    "a NUL": posted(chat(messages=[{"role": "user", "content": "a\0b"}])),
    "JSON in a string": posted((CHAT, json.dumps(json.dumps(chat()[1])).encode())),
    "two documents": posted((CHAT, json.dumps(chat()[1]).encode() * 2)),
    "Infinity": posted((CHAT, json.dumps(chat(temperature=float("inf"))[1]).encode())),
    "Infinity, completion": posted((TEXT, json.dumps(text(top_p=float("inf"))[1]).encode())),
    # Keys.
    "no key": posted(chat(), key=None),
    "a wrong key": posted(chat(), key="sk-guess"),
    "no key, models": got("/v1/models", key=None),
    "no key, health": got("/health", key=None),
    "no key, an unknown route": got("/v1/nowhere", key=None),
    "no key, tokenize": WireRequest(path="/tokenize", body=b'{"prompt":"hello"}', key=None),
    "a basic key": posted(chat(), key=None, headers=JSON | {"Authorization": f"Basic {KEY}"}),
    "a key in lower case": posted(chat(), key=None, headers=JSON | {"Authorization": f"bearer {KEY}"}),
    # Methods and routes.
    "health": got("/health"),
    "health, HEAD": got("/health", "HEAD"),
    "health, POST": got("/health", "POST"),
    "health, with a slash": got("/health/"),
    "ping": got("/ping"),
    "ping, POST": got("/ping", "POST"),
    "ping, HEAD": got("/ping", "HEAD"),
    "version": got("/version"),
    "version, HEAD": got("/version", "HEAD"),
    "load": got("/load"),
    "metrics": got("/metrics"),
    "metrics, with a slash": got("/metrics/"),
    "metrics, HEAD": got("/metrics", "HEAD"),
    "metrics, POST": got("/metrics", "POST"),
    "models": got("/v1/models"),
    "models, HEAD": got("/v1/models", "HEAD"),
    "models, POST": got("/v1/models", "POST"),
    "one model": got("/v1/models/tiny"),
    "chat, GET": got(CHAT),
    "chat, HEAD": got(CHAT, "HEAD"),
    "chat, PUT": posted(chat(), method="PUT"),
    "chat, DELETE": got(CHAT, "DELETE"),
    "chat, OPTIONS": got(CHAT, "OPTIONS"),
    "chat, with a slash": posted((CHAT + "/", chat()[1])),
    "chat, with a query": posted((CHAT + "?api-version=1", chat()[1])),
    "chat, in capitals": posted((CHAT.upper(), chat()[1])),
    "the root": got("/"),
    "an unknown route": got("/v1/nowhere"),
    "an unknown route, POST": posted(("/v1/nowhere", {})),
    "documentation": got("/docs"),
    "tokenize": posted(("/tokenize", {"prompt": "hello there"})),
    "tokenize, the model named": posted(("/tokenize", {"model": "tiny", "prompt": "hello there"})),
    "tokenize, an unknown model": posted(("/tokenize", {"model": "nope", "prompt": "hello there"})),
    "tokenize a chat": posted(("/tokenize", {"messages": MESSAGES})),
    "tokenize, as strings": posted(("/tokenize", {"prompt": "hello", "return_token_strs": True})),
    "tokenize nothing": posted(("/tokenize", {})),
    "tokenize, the wrong type": posted(("/tokenize", {"prompt": 7})),
    "tokenize, no content type": posted(("/tokenize", {"prompt": "hello"}), headers={}),
    "detokenize": posted(("/detokenize", {"tokens": [5, 6]})),
    "tokenizer": got("/tokenizer_info"),
    "responses": posted(("/v1/responses", {"model": "tiny", "input": "hello", "max_output_tokens": 5})),
    "responses, one": got("/v1/responses/resp_1"),
    "responses, cancel one": got("/v1/responses/resp_1/cancel", "POST"),
    "messages": posted(("/v1/messages", {"model": "tiny", "messages": MESSAGES, "max_tokens": 5})),
    "count tokens of messages": posted(("/v1/messages/count_tokens", {"model": "tiny", "messages": MESSAGES})),
    "chats in a batch": posted((CHAT + "/batch", {"model": "tiny", "messages": [MESSAGES], "max_tokens": 3})),
    "render a chat": posted((CHAT + "/render", chat()[1])),
    "render a completion": posted((TEXT + "/render", text()[1])),
    "generate from tokens": posted((GENERATE, {"model": "tiny", "token_ids": [5, 6], "sampling_params": {"max_tokens": 3}})),
    "invocations": posted(("/invocations", chat()[1])),
    "embeddings": posted(("/v1/embeddings", {"model": "tiny", "input": "hello"})),
    "rerank": posted(("/rerank", {"model": "tiny", "query": "a", "documents": ["b"]})),
    "rerank, v1": posted(("/v1/rerank", {"model": "tiny", "query": "a", "documents": ["b"]})),
    "score": posted(("/score", {"model": "tiny", "text_1": "a", "text_2": "b"})),
    "classify": posted(("/classify", {"model": "tiny", "input": "a"})),
    "pooling": posted(("/pooling", {"model": "tiny", "input": "a"})),
    "transcriptions": posted(("/v1/audio/transcriptions", {})),
    "translations": posted(("/v1/audio/translations", {})),
    "load an adapter": posted(("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"})),
    "sleep": got("/sleep", "POST"),
    "server info": got("/server_info"),
    "reset the prefix cache": got("/reset_prefix_cache", "POST"),
    "scale elastic": posted(("/scale_elastic_ep", {})),
    # HTTP itself.
    "HTTP/1.0": WireRequest(raw=b"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer sk-engine\r\n\r\n"),
    "HTTP/1.0, a stream": WireRequest(
        raw=b"POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer sk-engine\r\nContent-Type: application/json\r\nContent-Length: 62"
        b'\r\n\r\n{"model":"tiny","prompt":"hello","max_tokens":6,"stream":true}'
    ),
    "in chunks": WireRequest(
        headers=JSON | {"Transfer-Encoding": "chunked"},
        body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(json.dumps(chat()[1])), json.dumps(chat()[1]).encode()),
    ),
    "no HTTP": WireRequest(raw=b"hello there\r\n\r\n"),
    "a length that is none": WireRequest(raw=b"POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\nContent-Length: many\r\n\r\n"),
    "an own request id": posted(chat(), headers=JSON | {"X-Request-Id": "mine"}),
    # Fields of vLLM's own, and of OpenAI's that not every engine has.
    "counts in every event": posted(chat(stream=True, stream_options=STREAMED_COUNTS)),
    "counts in every event, completion": posted(text(stream=True, stream_options=STREAMED_COUNTS)),
    "counts in every event, not at the end": posted(chat(stream=True, stream_options={"continuous_usage_stats": True})),
    "completion streamed, two choices": posted(text(n=2, temperature=1, stream=True)),
    "completion streamed, several prompts": posted(text(prompt=["a", "b"], stream=True)),
    "completion streamed, stop": posted(text(stop=["zzzz"], stream=True)),
    "two choices with usage": posted(chat(n=2, temperature=1, stream=True, stream_options={"include_usage": True})),
    "greedy choices": posted(chat(n=2)),
    "seventeen choices": posted(text(n=17, temperature=1, max_tokens=1)),
    "choices without end": posted(chat(n=100_000, temperature=1)),
    "a token outside the vocabulary": posted(text(prompt=[5, VOCABULARY])),
    "the last token of the vocabulary": posted(text(prompt=[VOCABULARY - 1])),
    "a token far outside": posted(text(prompt=[2**40])),
    "a token below zero": posted(text(prompt=[-1])),
    "half a token": posted(text(prompt=[1.5])),
    "a token as text": posted(text(prompt=["5"])),
    "tokens outside in one of several prompts": posted(text(prompt=[[5], [9999]])),
    "an empty prompt among others": posted(text(prompt=["a", ""])),
    "an empty list of tokens": posted(text(prompt=[[]])),
    "top_k": posted(chat(top_k=5)),
    "top_k below zero": posted(chat(top_k=-2)),
    "top_k of the wrong type": posted(chat(top_k="all")),
    "top_k and a half": posted(chat(top_k=1.5)),
    "min_p": posted(chat(min_p=0.1)),
    "min_p over one": posted(chat(min_p=1.5)),
    "repetition penalty": posted(chat(repetition_penalty=1.1)),
    "no repetition penalty at all": posted(chat(repetition_penalty=0)),
    "a temperature of three": posted(chat(temperature=3)),
    "a temperature as digits": posted(chat(temperature="0.5")),
    "a seed as digits": posted(chat(seed="7")),
    "a seed that is too long": posted(chat(seed=2**70)),
    "a whole number of tokens, as a fraction": posted(chat(max_tokens=6.0)),
    "max_tokens of true": posted(chat(max_tokens=True)),
    "stream as a number": posted(chat(stream=1)),
    "stream as another number": posted(chat(stream=7)),
    "stream as a word": posted(chat(stream="maybe")),
    "min_tokens": posted(chat(min_tokens=2)),
    "min_tokens over max_tokens": posted(chat(min_tokens=9)),
    "min_tokens below zero": posted(chat(min_tokens=-1)),
    "min_tokens of null": posted(chat(min_tokens=None)),
    "ignore_eos": posted(chat(ignore_eos=True)),
    "ignore_eos of the wrong type": posted(chat(ignore_eos="never")),
    "stop of tokens": posted(chat(stop_token_ids=[7])),
    "stop of tokens, of the wrong type": posted(chat(stop_token_ids=["x"])),
    "seventeen stop sequences": posted(chat(stop=[str(index) for index in range(17)])),
    "stop with its text": posted(chat(stop=["zzzz"], include_stop_str_in_output=True)),
    "bad words": posted(chat(bad_words=["zzzz"])),
    "an empty bad word": posted(chat(bad_words=[""])),
    "allowed tokens": posted(chat(allowed_token_ids=[5, 6])),
    "no allowed token": posted(chat(allowed_token_ids=[])),
    "allowed tokens outside": posted(chat(allowed_token_ids=[9999])),
    "a bias outside the vocabulary": posted(chat(logit_bias={"9999": 1})),
    "a bias of no token": posted(chat(logit_bias={"hello": 1})),
    "a priority": posted(chat(priority=3)),
    "a priority of the wrong type": posted(chat(priority="high")),
    "special tokens kept": posted(chat(skip_special_tokens=False)),
    "a prompt cut to its end": posted(text(prompt="hello there", truncate_prompt_tokens=2)),
    "a prompt cut to less than nothing": posted(text(prompt="hello there", truncate_prompt_tokens=-2)),
    "a salt": posted(chat(cache_salt="abc")),
    "an empty salt": posted(chat(cache_salt="")),
    "an id of the request's own": posted(chat(request_id="abc")),
    "extra arguments": posted(chat(vllm_xargs={"a": 1})),
    "token ids returned": posted(chat(return_token_ids=True)),
    "token ids returned, streamed": posted(text(return_token_ids=True, stream=True)),
    "logprobs": posted(chat(logprobs=True)),
    "logprobs, the top": posted(chat(logprobs=True, top_logprobs=2)),
    "the top without logprobs": posted(chat(top_logprobs=2)),
    "too many of the top": posted(chat(logprobs=True, top_logprobs=99)),
    "logprobs, completion": posted(text(logprobs=1)),
    "logprobs below zero, completion": posted(text(logprobs=-2)),
    "logprobs of the prompt": posted(chat(prompt_logprobs=1)),
    "echo": posted(text(echo=True)),
    "echo, streamed": posted(text(echo=True, stream=True)),
    "echo of a chat": posted(chat(echo=True)),
    "suffix": posted(text(suffix="!")),
    "best of two": posted(text(best_of=2)),
    "beams": posted(text(use_beam_search=True, n=2)),
    "no prompt but embeddings": posted((TEXT, {"model": "tiny", "prompt_embeds": "AA=="})),
    "JSON, any, completion": posted(text(response_format={"type": "json_object"})),
    "a schema without one": posted(chat(response_format={"type": "json_schema"})),
    "a pattern": posted(chat(structured_outputs={"regex": "[ab]{2}"})),
    "a choice": posted(chat(structured_outputs={"choice": ["a", "b"]})),
    "a pattern and a choice": posted(chat(structured_outputs={"regex": "a", "choice": ["a"]})),
    "structured outputs of the wrong type": posted(chat(structured_outputs="a")),
    "a removed field of guidance": posted(chat(guided_choice=["a"])),
    "a tool to be used": plain_tool("required"),
    "a named tool": plain_tool(NAMED),
    "a named tool that is not there": plain_tool({"type": "function", "function": {"name": "g"}}),
    "an unknown tool choice": plain_tool("sometimes"),
    "a tool choice of null": plain_tool(None),
    "a tool choice of the wrong type": plain_tool(7),
    "a named tool without tools": posted(chat(tool_choice=NAMED)),
    "required without tools": posted(chat(tool_choice="required")),
    "none without tools": posted(chat(tool_choice="none")),
    "a tool without a function": posted(chat(tools=[{"type": "function"}])),
    "a tool that is no function": posted(chat(tools=[{"type": "retrieval"}])),
    "tools, none to be used, streamed": plain_tool("none", stream=True),
    "parallel tool calls": posted(chat(parallel_tool_calls=False)),
    "an answer of a tool": posted(
        chat(
            messages=[
                *MESSAGES,
                {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "ok"},
            ]
        )
    ),
    "reasoning effort": posted(chat(reasoning_effort="low")),
    "reasoning effort, unknown": posted(chat(reasoning_effort="great")),
    "no reasoning": posted(chat(include_reasoning=False)),
    "a template of one's own": posted(chat(chat_template="{{ messages[0]['content'] }}")),
    "arguments of the template": posted(chat(chat_template_kwargs={"a": 1})),
    "documents": posted(chat(documents=[{"title": "a", "text": "b"}])),
    "a continued message": posted(chat(messages=LAST_TURN, continue_final_message=True, add_generation_prompt=False)),
    "a continued message and a new one": posted(chat(messages=LAST_TURN, continue_final_message=True)),
    "no opening of an answer": posted(chat(add_generation_prompt=False)),
    "a service tier": posted(chat(service_tier="flex")),
    "stored": posted(chat(store=True)),
    "of several modalities": posted(chat(modalities=["text"])),
    "a video": posted(chat(messages=[{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA"}}]}])),
    "an image without an address": posted(chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}])),
    "a part that is text": posted(chat(messages=[{"role": "user", "content": ["hello"]}])),
    "a part without text": posted(chat(messages=[{"role": "user", "content": [{"type": "text"}]}])),
    "a refusal as content": posted(chat(messages=[*MESSAGES, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, *MESSAGES])),
    "a developer's message": posted(chat(messages=[{"role": "developer", "content": "be brief"}, *MESSAGES])),
}  # fmt: skip
