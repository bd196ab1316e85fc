"""Responses in JSON, as engines send them: aiohttp's own name a character set, theirs do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping


def as_json(tree: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the response with this body."""
    return web.Response(body=msgspec.json.encode(tree), status=status, headers=headers, content_type="application/json")
