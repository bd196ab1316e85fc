"""Writes what an engine's own argument parser takes: `PYTHON describe_parser.py OWN_PARSER.py`, one line of JSON.

It runs in the Python that has the engine, which need not be fleetctl's, and imports nothing of fleetctl. The file it is
given has a function `own_parser`, which returns the parser and, by flag, the names of values that only the engine's
registries know. Types are not read but tried: of a few words, which would each option take?
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from typing import Any

_SAMPLES = ("x", "1", "1.5", "1k", "{}")


def described(parser: Any, names: dict[str, list[str]]) -> list[dict[str, Any]]:  # noqa: ANN401  # an argparse of another Python's
    """Return each option: its flags, how many values it takes as argparse spells that, its choices, words it would take."""
    found: list[dict[str, Any]] = []
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to list them
        if not action.option_strings:
            continue
        named = next((names[flag] for flag in action.option_strings if flag in names), None)
        choices = named if named is not None else action.choices
        found.append(
            {
                "flags": list(action.option_strings),
                "values": "1" if action.nargs is None else str(action.nargs),
                "choices": None if choices is None else [str(choice) for choice in choices],
                "takes": [word for word in _SAMPLES if _takes(action, word)],
            }
        )
    return found


def _takes(action: Any, word: str) -> bool:  # noqa: ANN401  # as above
    if not callable(action.type):
        return True
    try:
        action.type(word)
    except Exception:  # noqa: BLE001  # a parser's types refuse with whatever they like
        return False
    return True


def main() -> None:
    """Describe the parser of the file that is named, on standard output."""
    del sys.path[0]  # this directory, whose modules would hide the engine's of the same name
    answer, quiet = sys.stdout, io.StringIO()
    with contextlib.redirect_stdout(quiet):  # engines print while they are imported
        parser, names = runpy.run_path(sys.argv[1])["own_parser"]()
        found = described(parser, names)
    answer.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
