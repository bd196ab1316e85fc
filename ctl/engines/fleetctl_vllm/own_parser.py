"""vLLM's own parser, made in the Python that has vLLM: `engine_kit/describe_parser.py` runs this file there."""

from __future__ import annotations

import importlib
import os
from typing import Any

# The module has moved twice: 0.33, 0.29 to 0.32, and before.
_HOMES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
_PARSERS = {
    "--tool-call-parser": (("vllm.tool_parsers", "vllm.entrypoints.openai.tool_parsers"), "ToolParserManager"),
    "--reasoning-parser": (("vllm.reasoning",), "ReasoningParserManager"),
}


def own_parser() -> tuple[Any, dict[str, list[str]]]:
    """Return the parser of `vllm serve`, and the parsers of tool calls and thoughts by their flags: it lists them nowhere else."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    parsers = _first("vllm.utils.argparse_utils", "vllm.utils").FlexibleArgumentParser(prog="vllm serve")
    parser = _first(*_HOMES).make_arg_parser(parsers)
    parser.add_argument("-O", dest="optimization", default=None)  # -O3, which its preprocessor takes
    return parser, {flag: _registered(*where) for flag, where in _PARSERS.items()}


def _registered(modules: tuple[str, ...], manager: str) -> list[str]:
    found = getattr(_first(*modules), manager)
    listed = found.list_registered() if hasattr(found, "list_registered") else found.tool_parsers
    return sorted(listed)


def _first(*names: str) -> Any:  # noqa: ANN401  # a module of another Python's
    """Return the first of these modules that this vLLM has. Raises ModuleNotFoundError."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if not name.startswith(str(missing.name)):
                raise
    raise ModuleNotFoundError(f"this vLLM has none of {', '.join(names)}")
