"""The parser of the launcher that serves with xllamacpp: `engine_kit/describe_parser.py` runs this file in its Python."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any


def own_parser() -> tuple[Any, dict[str, list[str]]]:
    """Return the launcher's parser: it knows fewer flags than llama.cpp's own server does."""
    return runpy.run_path(str(Path(__file__).parent / "launcher" / "__main__.py"))["parser"](), {}
