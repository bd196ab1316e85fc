"""Reads which version an engine says it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from fleetctl.printable import printable

if TYPE_CHECKING:
    from fleetctl.ports.engine import VersionSource

_VERSION_CHARS_MAX = 80
# As packages and programs print them: 0.32.0, 3.3.7-dev0, 0.5.23.post1+cu129.
_VERSION = re.compile(r"\bv?(\d+(?:\.\d+)+[0-9A-Za-z.+_-]*)")


def version_on(page: str, source: VersionSource) -> str:
    """Return the version on an engine's page; empty: it does not say."""
    try:
        answer = msgspec.json.decode(page)
    except msgspec.DecodeError:
        return ""
    reported = answer.get("version") if isinstance(answer, dict) else None
    del source
    return printable(reported)[:_VERSION_CHARS_MAX] if isinstance(reported, str) else ""


def version_in(text: str) -> str:
    """Return the first version in what a program prints; empty: there is none."""
    found = _VERSION.search(text)
    return found[1][:_VERSION_CHARS_MAX] if found else ""
