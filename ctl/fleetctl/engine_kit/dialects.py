"""In which notation a model writes tool calls and what it thinks, by its name: as its publisher documents it."""

from __future__ import annotations

import re

# The first that matches the last part of a model's id, in lower case. A base model has no notation: its name has none
# of "instruct", "chat" or "it", and it is found here only where its family has no base of that name.
_TOOL_CALLS = (
    (r"llama-3\.[123]-.*instruct", "llama3"),
    (r"llama-4-.*instruct", "llama4"),
    (r"qwen3-coder", "qwen3-coder"),
    (r"qwen2\.5-(?!coder|math).*instruct|qwen3-(?!.*(?:base|embedding|reranker))|qwq|hermes-[23]", "hermes"),
    (r"mistral-7b-instruct-v0\.3|mistral-(?:small|nemo|large)|ministral|devstral|magistral", "mistral"),
    (r"gpt-oss", "gpt-oss"),
    (r"deepseek-v3\.1", "deepseek-v3.1"),
    (r"deepseek-v3|deepseek-r1-0528$", "deepseek-v3"),
    (r"kimi-k2", "kimi-k2"),
    (r"glm-4\.[56]", "glm-4.5"),
)
_REASONING = (
    (r"qwen3-(?!.*(?:instruct|coder|base|embedding|reranker))", "qwen3"),
    (r"deepseek-r1|qwq", "deepseek-r1"),
    (r"gpt-oss", "gpt-oss"),
    (r"magistral", "mistral"),
    (r"kimi-k2-thinking", "kimi-k2"),
    (r"glm-4\.[56]", "glm-4.5"),
)


def tool_call_dialect(model_id: str) -> str:
    """Return in which notation a model writes tool calls; empty: none is known."""
    return _first(_TOOL_CALLS, model_id)


def reasoning_dialect(model_id: str) -> str:
    """Return in which notation a model sets off what it thinks; empty: it does not, or none is known."""
    return _first(_REASONING, model_id)


def _first(table: tuple[tuple[str, str], ...], model_id: str) -> str:
    name = model_id.rstrip("/").rsplit("/", 1)[-1].lower()
    return next((dialect for pattern, dialect in table if re.search(pattern, name)), "")
