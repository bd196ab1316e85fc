"""Puts `sglang.launch_server` command lines before SGLang's own parser, without a GPU: its Python alone, from its wheel.

Runs inside the engine environment with the unpacked wheel on PYTHONPATH, and answers each line that it reads with one: to
a JSON array of argument lists (what stands behind `-m sglang.launch_server`) a JSON array of verdicts, "" for one that
the parser takes, else its complaint; to `null` a JSON array of all its flags. It catches unknown flags, wrong choices and
types, not ranges.
"""

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import sys
import types
from typing import Any

# Kernels and shells that reading arguments has no use for, and whose packages are large.
_UNUSED = ("triton", "IPython", "orjson")


class _Unused(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(f"{self.__name__}.{name}")

    def __call__(self, *given: object, **_: object) -> object:
        return given[0] if len(given) == 1 and callable(given[0]) else self

    def __getitem__(self, _: object) -> object:
        return self


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if name.split(".", maxsplit=1)[0] in _UNUSED
            else None
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Unused(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


sys.meta_path.insert(0, _Finder())

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
