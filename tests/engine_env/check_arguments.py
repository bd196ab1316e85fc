"""Puts `vllm serve` command lines before vLLM's own parser and its engine configuration, without a GPU or a server.

Runs inside the engine environment and answers each line that it reads with one: to a JSON array of argument lists (what
stands behind `vllm serve`) a JSON array of verdicts, "" for one vLLM takes, else its complaint; to `null` a JSON array of
all the parser's flags. The parser catches unknown flags, wrong choices and types; the engine configuration catches ranges
and settings that contradict each other.
"""

import contextlib
import importlib
import io
import json
import os
import sys
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
# The model's shape is a stand-in; lengths beyond it are the profile's business.
os.environ.setdefault("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")

# The module has moved twice: 0.33, 0.29 to 0.32, and before.
_HOMES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)


def _cli_args() -> Any:
    for home in _HOMES:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(home)
    raise ModuleNotFoundError(f"this vLLM has its arguments in none of {_HOMES}")


def _verdict(arguments: list[str]) -> str:
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            parsed = parser.parse_args(arguments)
            parsed.model = parsed.model_tag or parsed.model
            cli_args.validate_parsed_serve_args(parsed)
            # The server looks at this one at its start only.
            if (
                parsed.tool_call_parser
                and parsed.tool_call_parser not in tool_parsers.ToolParserManager.list_registered()
            ):
                return f"invalid tool call parser: {parsed.tool_call_parser}"
            engine_arguments.AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    except SystemExit:
        return complaints.getvalue().strip() or "refused without a word"
    except Exception as refusal:  # noqa: BLE001  # vLLM refuses with whatever its validators raise
        return f"{type(refusal).__name__}: {refusal}"
    return ""


if __name__ == "__main__":
    cli_args = _cli_args()
    engine_arguments = importlib.import_module("vllm.engine.arg_utils")
    tool_parsers = importlib.import_module("vllm.tool_parsers")
    argparse_utils = importlib.import_module("vllm.utils.argparse_utils")
    parser = cli_args.make_arg_parser(argparse_utils.FlexibleArgumentParser(prog="vllm serve"))
    flags = sorted({flag for action in parser._actions for flag in action.option_strings})
    # vLLM prints to standard output too.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        question = json.loads(line)
        print(
            json.dumps(flags if question is None else [_verdict(each) for each in question]), file=answers, flush=True
        )
