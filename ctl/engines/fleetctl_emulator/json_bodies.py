"""A request's body, as FastAPI reads it: of which type, in which encoding, and where it stops being JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from aiohttp import web

_JSON = "application/json"


async def read_json(request: web.Request) -> object:
    """Return the body. Raises EngineRefusal: another content type, no JSON, or text that cannot be decoded."""
    kind = request.headers.get("Content-Type", "").lower().split(";", maxsplit=1)[0]
    if kind != _JSON:
        raise EngineRefusal(
            RefusalReason.WRONG_TYPE, f"1 validation error:\n  Unsupported Media Type: Only '{_JSON}' is allowed"
        )
    return parse_json(await request.read())


def parse_json(raw: bytes) -> object:
    """Return what the bytes say. Raises EngineRefusal."""
    if not raw:
        raise EngineRefusal(RefusalReason.MALFORMED, "1 validation error:\n  body: Field required", param="body")
    try:
        found: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_as_python(raw)
    return found


def _parse_as_python(raw: bytes) -> object:
    """Return what Python's own parser makes of it: it takes NaN, UTF-16 and halves of surrogates, and says where it stops."""
    try:
        value: object = json.loads(raw)
    except json.JSONDecodeError as error:
        message = f"1 validation error:\n  body.{error.pos}: JSON decode error: {error.msg}"
        raise EngineRefusal(RefusalReason.MALFORMED, message, param=f"body.{error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise EngineRefusal(RefusalReason.UNREADABLE, "There was an error parsing the body") from error
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise EngineRefusal(RefusalReason.INVALID, str(error)) from error
    return value
