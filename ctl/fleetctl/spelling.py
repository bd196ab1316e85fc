"""Finds the known word that somebody meant by an unknown one."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


# What fleets, lanes and profiles may be called: it is part of paths, of unit files and of metrics.
NAME_PATTERN = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
NAME_RULE = "write lower-case letters, digits and dashes, a letter first, 40 at most"


def is_name(text: str) -> bool:
    """Whether a fleet or a lane may be called so."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def suggest(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the nearest known word, or nothing when none is near."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    # Abbreviations ("quant", "max_cost") are far in edit distance and yet plain to a reader.
    near = near or [name for name in names if len(word) > 2 and name.startswith(word)][:1]
    return f" (did you mean {near[0]!r}?)" if near else ""
