"""The OpenAI request bodies, as vLLM takes them; unknown fields are ignored, as there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason
from fleetctl_emulator.requests import GenerationRequest
from fleetctl_emulator.tokens import TOKEN_BYTES, Prompt, render_chat, render_text

if TYPE_CHECKING:
    from fleetctl_emulator.tokens import AnswerText, AnswerTexts

N_MAX = 16


class StreamOptions(msgspec.Struct, frozen=True):
    """Which usage figures a stream carries."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Message(msgspec.Struct, frozen=True):
    """One turn of a chat."""

    role: str
    content: str | list[Any] | None = None
    tool_calls: list[Any] | None = None


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    n: int | None = 1
    seed: int | None = None
    stop: str | list[str] | None = None
    priority: int = 0
    echo: bool | None = False
    use_beam_search: bool = False
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    truncate_prompt_tokens: int | None = None
    include_stop_str_in_output: bool = False


class ChatBody(_Common, frozen=True, kw_only=True):
    """The body of /v1/chat/completions."""

    messages: list[Message]
    tools: list[Any] | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    logprobs: bool | None = False
    tool_choice: str | dict[str, Any] | None = None


class CompletionBody(_Common, frozen=True, kw_only=True):
    """The body of /v1/completions."""

    prompt: str | list[str | int | list[int]] = ""  # one prompt, as text or as token ids, or several
    logprobs: int | None = None
    suffix: str | None = None


Body = TypeVar("Body", bound=msgspec.Struct)


def read_body(kind: type[Body], raw: bytes) -> Body:
    """Return a request's body, every value of exactly its type. Raises EngineRefusal."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise EngineRefusal(RefusalReason.MALFORMED, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineRefusal(RefusalReason.UNREADABLE, str(error)) from error


def chat_generation(body: ChatBody, *, seed: int, request_id: str) -> GenerationRequest:
    """Return what a chat asks for. Raises EngineRefusal for what cannot be or is not emulated."""
    _refuse_unsupported(body)
    _refuse_if(bool(body.logprobs), "logprobs are not emulated", "logprobs")
    _refuse_if(
        body.tool_choice not in (None, "none", "auto"),
        "a forced tool call is not emulated: use tool_choice auto or none",
        "tool_choice",
    )
    _refuse_if(not body.messages, "messages must not be empty")
    _refuse_if(
        body.continue_final_message and body.add_generation_prompt,
        "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
    )
    # Templates write the tools down before the conversation, as JSON; a model reads and counts them.
    listed_tools = [("system", msgspec.json.encode(body.tools))] if body.tools else []
    prompt = render_chat(
        [*listed_tools, *((message.role, _text_of(message)) for message in body.messages)],
        opens_answer=body.add_generation_prompt,
        continues_final=body.continue_final_message,
    )
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return _generation(body, (prompt,), limit, seed=seed, request_id=request_id)


def completion_generation(
    body: CompletionBody, texts: AnswerTexts, *, seed: int, request_id: str, vocabulary: int
) -> GenerationRequest:
    """Return what a completion asks for; token ids are below `vocabulary`. Raises EngineRefusal as `chat_generation` does."""
    _refuse_unsupported(body)
    _refuse_if(body.logprobs is not None, "logprobs are not emulated", "logprobs")
    _refuse_if(body.suffix is not None, "suffix is not currently supported", "suffix")
    _refuse_if(body.prompt == "", "the prompt must not be empty", "prompt")
    prompts = _prompts(body.prompt, texts.of(_seed(body, seed)), vocabulary)
    _refuse_if(not prompts or any(not p.tokens for p in prompts), "the prompt must not be empty")
    # vLLM's default for this route.
    limit = 16 if body.max_tokens is None else body.max_tokens
    return _generation(body, tuple(prompts), limit, seed=seed, request_id=request_id)


def _prompts(given: str | list[str | int | list[int]], answer: AnswerText, vocabulary: int) -> list[Prompt]:
    if isinstance(given, str):
        return [render_text(given.encode(), answer)]
    if given and isinstance(given[0], int):
        return [Prompt(_from_ids(given, vocabulary))]
    return [
        render_text(item.encode(), answer) if isinstance(item, str) else Prompt(_from_ids(item, vocabulary))
        for item in given
    ]


def _generation(
    body: _Common, prompts: tuple[Prompt, ...], limit: int | None, *, seed: int, request_id: str
) -> GenerationRequest:
    options = body.stream_options or StreamOptions()
    return GenerationRequest(
        prompts=prompts,
        seed=_seed(body, seed),
        n=body.n or 1,
        max_tokens=limit,
        min_tokens=body.min_tokens,
        ignores_eos=body.ignore_eos,
        stop=stop_strings(body),
        is_stream=bool(body.stream),
        wants_usage=bool(options.include_usage),
        wants_continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        priority=body.priority,
        request_id=request_id,
    )


def stop_strings(body: _Common) -> tuple[str, ...]:
    """Return what ends an answer."""
    return (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())


def _seed(body: _Common, engine_seed: int) -> str:
    return str(engine_seed if body.seed is None else body.seed)


def _refuse_unsupported(body: _Common) -> None:
    n = 1 if body.n is None else body.n
    _refuse_if(n > N_MAX, f"n must be at most {N_MAX}, got {n}: more is not emulated")
    _refuse_if(n < 1, f"n must be at least 1, got {n}.")
    _refuse_if(body.min_tokens < 0, f"min_tokens must be greater than or equal to 0, got {body.min_tokens}.")
    _refuse_if("" in stop_strings(body), "stop cannot contain an empty string.")
    for name, what in _NOT_EMULATED.items():
        _refuse_if(bool(getattr(body, name)), f"{what} not emulated", name)
    wanted = (body.response_format or {}).get("type", "text")
    _refuse_if(wanted != "text", f"response_format {wanted!r} is not emulated: answers are words", "response_format")
    _refuse_if(
        body.stream_options is not None and not body.stream,
        "Stream options can only be defined when `stream=True`.",
        "stream_options",
    )


# What would change an answer's text or keys, and cannot be had here.
_NOT_EMULATED = {
    "echo": "echo is",
    "use_beam_search": "beam search is",
    "structured_outputs": "structured outputs are",
    "prompt_logprobs": "logprobs of the prompt are",
    "return_token_ids": "token ids in answers are",
    "truncate_prompt_tokens": "a prompt that is cut by the engine is",
    "include_stop_str_in_output": "a stop string that stays in the answer is",
}


def _refuse_if(is_wrong: bool, message: str, param: str | None = None) -> None:
    if is_wrong:
        raise EngineRefusal(RefusalReason.INVALID, message, param=param)


def _text_of(message: Message) -> bytes:
    return _content_of(message) + (msgspec.json.encode(message.tool_calls) if message.tool_calls else b"")


def _content_of(message: Message) -> bytes:
    if not isinstance(message.content, list):
        return (message.content or "").encode()
    return "".join(_part_text(part) for part in message.content).encode()


def _part_text(part: object) -> str:
    fields = part if isinstance(part, dict) else {}
    kind = fields.get("type")
    _refuse_if(kind not in ("text", "refusal"), f"content of type {kind!r} is not emulated: only text")
    written = fields.get(kind)
    _refuse_if(not isinstance(written, str), f"a part of type {kind!r} has no {kind}")
    return str(written)


def _from_ids(ids: object, vocabulary: int) -> bytes:
    if not isinstance(ids, list) or not all(isinstance(i, int) and i >= 0 for i in ids):
        raise EngineRefusal(
            RefusalReason.INVALID, "prompt must be text, token ids, or a list of either", param="prompt"
        )
    outside = next((i for i in ids if i >= vocabulary), None)
    _refuse_if(outside is not None, f"Token id {outside} is out of vocabulary")
    return b"".join(i.to_bytes(TOKEN_BYTES, "big") for i in ids)
