"""SGLang's own parser, made in the Python that has SGLang: `engine_kit/describe_parser.py` runs this file there."""

from __future__ import annotations

import argparse
import importlib
from typing import Any


def own_parser() -> tuple[Any, dict[str, list[str]]]:
    """Return the parser of `sglang.launch_server`, which names the parsers of tool calls and thoughts itself."""
    parser = argparse.ArgumentParser(prog="sglang.launch_server")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser, {}
