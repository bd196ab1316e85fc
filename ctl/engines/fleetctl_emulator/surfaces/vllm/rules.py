"""What vLLM 0.32 refuses of a body as it came, before it looks at types: its own validators of what belongs together."""

from __future__ import annotations

from typing import Any

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

_SALT_CHARACTERS_MAX = 128
_SALT_FORBIDDEN = frozenset("@/\\\x00")


def check_chat(body: object, *, reads_tools: bool) -> None:
    """Raise EngineRefusal for a chat; `reads_tools`: it was started with a parser of tool calls, and to use it."""
    if not isinstance(body, dict):
        return
    _refuse("messages" in body and body["messages"] is None, "messages must be a list", None)
    _check_both(body)
    is_top_wanted = _is_number(body.get("top_logprobs")) and body["top_logprobs"] != 0
    _refuse(
        is_top_wanted and not body.get("logprobs"),
        "when using `top_logprobs`, `logprobs` must be set to true.",
        "top_logprobs",
    )
    _refuse(_kinds_of_structure(body) > 1, "You can only use one kind of constraints for structured outputs", None)
    _check_tools(body, reads_tools=reads_tools)
    _refuse(bool(body.get("chat_template")), "Chat template is passed with request, but it is not trusted", None)


def check_completion(body: object) -> None:
    """Raise EngineRefusal for a completion."""
    if not isinstance(body, dict):
        return
    _check_both(body)
    _refuse(
        _kinds_of_structure(body) > 1,
        "You can only use one kind of constraints for structured outputs",
        "structured_outputs",
    )
    _refuse(
        body.get("prompt_embeds") is not None, "You must set `--enable-prompt-embeds` to input them", "prompt_embeds"
    )
    _refuse(body.get("prompt") is None, "Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    logprobs = body.get("logprobs")
    _refuse(logprobs is not None and not _is_number(logprobs), "`logprobs` must be an integer.", "logprobs")
    _refuse(isinstance(logprobs, int | float) and logprobs < 0, "`logprobs` must be a positive value.", "logprobs")


def _check_both(body: dict[str, Any]) -> None:
    wanted = body.get("response_format")
    _refuse(
        isinstance(wanted, dict) and wanted.get("type") == "json_schema" and wanted.get("json_schema") is None,
        "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        "response_format",
    )
    salt = body.get("cache_salt")
    _refuse(
        salt is not None
        and (
            not isinstance(salt, str) or not 0 < len(salt) <= _SALT_CHARACTERS_MAX or bool(_SALT_FORBIDDEN & set(salt))
        ),
        "Parameter 'cache_salt' must be a non-empty string if provided.",
        "cache_salt",
    )


def _check_tools(body: dict[str, Any], *, reads_tools: bool) -> None:
    tools = body.get("tools")
    _refuse(tools == [], "`tools` must not be an empty array.", "tools")
    choice = body.get("tool_choice", "auto" if tools else None)
    if choice in (None, "none"):
        return
    _refuse(tools is None, "When using `tool_choice`, `tools` must be set.", "tool_choice")
    _refuse(
        choice not in ("auto", "required") and not isinstance(choice, dict),
        f"Invalid value for `tool_choice`: {choice}!",
        "tool_choice",
    )
    if isinstance(choice, dict):
        _check_named(choice, tools)
    if not reads_tools and isinstance(tools, list) and all(_name_of(tool) for tool in tools):
        what = f'"{choice}"' if isinstance(choice, str) else "a named"
        message = f"{what} tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"
        raise EngineRefusal(RefusalReason.INVALID, message)


def _check_named(choice: dict[str, Any], tools: object) -> None:
    name = _name_of(choice)
    _refuse(not isinstance(choice.get("function"), dict), "Invalid value for `function`", "tool_choice.function")
    _refuse(name is None, "Expected field `name` in `function`", "tool_choice.function.name")
    known = {_name_of(tool) for tool in tools} if isinstance(tools, list) else set()
    _refuse(
        name not in known,
        "The tool specified in `tool_choice` does not match any of the specified `tools`",
        "tool_choice",
    )


def _name_of(tool: object) -> str | None:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type", "function") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _kinds_of_structure(body: dict[str, Any]) -> int:
    given = body.get("structured_outputs")
    return sum(given.get(kind) is not None for kind in ("json", "regex", "choice")) if isinstance(given, dict) else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(is_wrong: bool, message: str, param: str | None) -> None:
    if is_wrong:
        raise EngineRefusal(RefusalReason.INVALID, message, param=param)
