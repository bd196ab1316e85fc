"""What messages, tools and formats of answers may not be: an engine that fails at one answers 500, as if it were its own fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.gateway.wrong_request import WrongRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHOWN_MAX = 40
_DECIDES = (None, "auto", "required")  # a tool_choice by which the model decides
_FORMATS = ("text", "json_object", "json_schema")


def wrong_messages(messages: object, refused: Mapping[str, str]) -> Iterator[WrongRequest]:
    """Yield what is wrong with the messages of a chat; `refused` are the kinds of content that are not served, and why."""
    if not isinstance(messages, list):
        yield WrongRequest("`messages` must be a list of messages", "messages")
    elif not messages:
        yield WrongRequest("`messages` must not be empty", "messages")
    for message in messages if isinstance(messages, list) else ():
        yield from (WrongRequest(wrong, "messages") for wrong in _wrong_message(message))
    for part in _parts(messages):
        kind = part.get("type")
        if isinstance(kind, str) and kind in refused:
            yield WrongRequest(f"content of type {kind} is not served here: {refused[kind]}", "messages")


def _wrong_message(message: object) -> Iterator[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str):
        yield "each of `messages` must have a `role`, a text"
        return
    content = message.get("content")
    if role != "assistant" and content is None:
        yield f"a message of role {role[:_SHOWN_MAX]} must have `content`"
    if role == "assistant" and content is None and not (message.get("tool_calls") or message.get("function_call")):
        yield "a message of role assistant must have `content` or `tool_calls`"
    if not isinstance(content, str | list | None):
        yield "`content` of a message must be a text or a list of parts"
    if not isinstance(message.get("name"), str | None):
        yield "`name` of a message must be a text"
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            yield "each part of a message must have a `type`, a text"
        elif part["type"] == "text" and not isinstance(part.get("text"), str):
            yield "a part of type text must have a `text`"


def _parts(messages: object) -> Iterator[dict[str, Any]]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict))


def wrong_tools(request: dict[str, Any], refused: Mapping[str, str]) -> Iterator[WrongRequest]:
    """Yield what is wrong with the tools of a chat, and with what it says of their choice."""
    tools, choice = request.get("tools"), request.get("tool_choice")
    if tools == []:
        yield WrongRequest("`tools` must not be empty", "tools")
    if tools is None and choice not in (None, "none"):
        yield WrongRequest("`tool_choice` wants `tools`", "tool_choice")
    if not isinstance(tools, list | None) or not all(_is_tool(each) for each in tools or ()):
        yield WrongRequest("each of `tools` must have `type`: function and a `function` with a `name`", "tools")
    if tools and "tools" in refused and choice in _DECIDES:
        yield WrongRequest(f"tools are not served here: {refused['tools']}", "tools")


def _is_tool(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def wrong_response_format(section: object) -> Iterator[WrongRequest]:
    """Yield what is wrong with the format that an answer is to have."""
    if not isinstance(section, dict):
        return
    kind, schema = section.get("type"), section.get("json_schema")
    if kind not in _FORMATS:
        yield WrongRequest(f"`type` of `response_format` must be one of {', '.join(_FORMATS)}", "response_format")
    elif kind == "json_schema" and not (isinstance(schema, dict) and isinstance(schema.get("schema"), dict)):
        yield WrongRequest(
            "a `response_format` of type json_schema must have a `json_schema` with a `schema`", "response_format"
        )
