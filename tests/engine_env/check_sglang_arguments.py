"""Puts `sglang.launch_server` command lines before SGLang's own parser, without a GPU: its Python alone, from its wheel.

Runs inside the engine environment with the unpacked wheel on PYTHONPATH, and answers each line that it reads with one: to
a JSON array of argument lists (what stands behind `-m sglang.launch_server`) a JSON array of verdicts, "" for one that
the parser takes, else its complaint; to `null` a JSON array of all its flags. It catches unknown flags, wrong choices and
types, not ranges.
"""

import argparse
import contextlib
import importlib
import io
import json
import sys
from typing import Any

importlib.import_module("without_kernels").install()  # beside this file, in no package: it runs in the engines' Python

server_args: Any = importlib.import_module("sglang.srt.server_args")  # after what stands in for its kernels

parser = argparse.ArgumentParser()
server_args.ServerArgs.add_cli_args(parser)


def _verdict(arguments: list[str]) -> str:
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            parser.parse_args(arguments)
    except SystemExit:
        return complaints.getvalue().strip().rpartition("\n")[2] or "refused"
    return ""


for line in sys.stdin:
    question = json.loads(line)
    found = (
        sorted(parser._option_string_actions) if question is None else [_verdict(argv) for argv in question]
    )  # argparse has no other way
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()
