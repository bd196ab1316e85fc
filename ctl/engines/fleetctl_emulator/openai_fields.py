"""The fields of OpenAI's bodies and their kinds, as vLLM 0.32 declares them (entrypoints/openai/*/protocol.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl_emulator.bodies import Body, ChatBody, CompletionBody
from fleetctl_emulator.field_kinds import (
    INT64_MAX,
    INT64_MIN,
    anything,
    flag,
    list_of,
    mapping_of,
    number,
    one_of,
    optional,
    section,
    text,
    text_or,
    whole,
    wrong,
)

if TYPE_CHECKING:
    from fleetctl_emulator.field_kinds import Kind, Where

STOP_STRINGS_MAX = 4  # VLLM_MAX_STOP_STRINGS

_INT64 = whole(INT64_MIN, INT64_MAX)
_FORMAT = section(
    {
        "type": one_of("text", "json_object", "json_schema", "structural_tag"),
        "json_schema": optional(mapping_of(anything)),
    },
    required=("type",),
)
_COMMON: dict[str, Kind] = {
    "model": optional(text), "user": optional(text), "request_id": text, "cache_salt": optional(text),
    "stream": optional(flag), "echo": optional(flag), "use_beam_search": flag, "ignore_eos": flag,
    "skip_special_tokens": flag, "spaces_between_special_tokens": flag, "include_stop_str_in_output": flag,
    "add_special_tokens": flag, "return_token_ids": optional(flag),
    "frequency_penalty": optional(number), "presence_penalty": optional(number), "temperature": optional(number),
    "top_p": optional(number), "min_p": optional(number), "repetition_penalty": optional(number), "length_penalty": number,
    "top_k": optional(whole()), "max_tokens": optional(whole()), "min_tokens": whole(), "prompt_logprobs": optional(whole()),
    "seed": optional(_INT64), "priority": _INT64, "truncate_prompt_tokens": optional(whole(-1, INT64_MAX)),
    "stop": optional(text_or(list_of(text, most=STOP_STRINGS_MAX))), "stop_token_ids": optional(list_of(whole())),
    "allowed_token_ids": optional(list_of(whole())), "bad_words": list_of(text), "logit_bias": optional(mapping_of(number)),
    "stream_options": optional(section({"include_usage": optional(flag), "continuous_usage_stats": optional(flag)})),
    "response_format": optional(_FORMAT), "structured_outputs": optional(mapping_of(anything)),
    "vllm_xargs": optional(mapping_of(anything)), "kv_transfer_params": optional(mapping_of(anything)),
}  # fmt: skip

# A message is tried as each of OpenAI's roles; of those that do not take it the first is told.
_FIRST_ROLE = "ChatCompletionDeveloperMessageParam"


def _message(value: object, where: Where) -> object:
    where = (*where, _FIRST_ROLE)
    if not isinstance(value, dict):
        raise wrong(where, "Input should be a valid dictionary")
    if not isinstance(value.get("role"), str):
        raise wrong((*where, "role"), "Input should be a valid string")
    content = value.get("content", "")
    if not isinstance(content, str | list) and not (content is None and value["role"] != "user"):
        raise wrong((*where, "content"), "Input should be a valid string")
    return value


_TOOL = section(
    {"type": one_of("function"), "function": section({"name": text}, required=("name",))}, required=("function",)
)

_CHAT = section(
    {
        **_COMMON,
        "messages": list_of(_message),
        "n": optional(whole()),
        "max_completion_tokens": optional(whole()),
        "logprobs": optional(flag),
        "top_logprobs": optional(whole()),
        "tools": optional(list_of(_TOOL)),
        "reasoning_effort": optional(one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        "include_reasoning": flag,
        "parallel_tool_calls": optional(flag),
        "add_generation_prompt": flag,
        "continue_final_message": flag,
        "chat_template": optional(text),
        "chat_template_kwargs": optional(mapping_of(anything)),
        "documents": optional(list_of(mapping_of(text))),
    },
    required=("messages",),
)


_TOKEN = whole(0)


def _prompt(value: object, where: Where) -> object:
    """Take text, texts, token ids, or lists of them; of the rest the first that is no token id is told."""
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        return value
    if isinstance(value, list) and isinstance(value[0], list):
        return list_of(list_of(_TOKEN))(value, where)
    return list_of(_TOKEN)(value, where)


_COMPLETION = section(
    {**_COMMON, "prompt": _prompt, "n": whole(), "logprobs": optional(whole()), "suffix": optional(text)},
    required=("prompt",),
)


def chat_body(value: object) -> ChatBody:
    """Return a chat's body. Raises EngineRefusal for a value that is not of its field's type."""
    return _as(ChatBody, _CHAT(value, ()))


def completion_body(value: object) -> CompletionBody:
    """Return a completion's body. Raises EngineRefusal as `chat_body` does."""
    return _as(CompletionBody, _COMPLETION(value, ()))


def _as(kind: type[Body], value: object) -> Body:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise wrong((), str(error)) from error


TOKENIZE_TEXT = section(
    {"model": optional(text), "prompt": text, "return_token_strs": optional(flag)}, required=("prompt",)
)
TOKENIZE_CHAT = section(
    {
        "model": optional(text),
        "messages": list_of(_message),
        "return_token_strs": optional(flag),
        "add_generation_prompt": flag,
    }
)
