"""Writes the priority of a request's tier into its body, for engines that were started to schedule by it."""

from __future__ import annotations

import msgspec

_OWN = b'priority"'
_ESCAPED = b"\\u00"  # a key may be spelt with escapes of its letters
_OWN_MAX = 2**31  # engines read 64 bits and refuse more; nobody needs as many


def with_priority(body: bytes, rank: int, sign: int) -> bytes:
    """Return the body with the priority of a tier, 0 the highest; `sign` 1: the engine serves lower ones first, -1: higher.

    A client may put its request behind others of its tier by a priority of its own, and never before them.
    """
    priority = sign * rank
    start = body.find(b"{") + 1
    if body.find(_OWN) < 0 and body.find(_ESCAPED) < 0 and not body[start:].lstrip().startswith(b"}"):
        return b'%b"priority":%d,%b' % (body[:start], priority, body[start:])
    request = msgspec.json.decode(body)
    own = request.get("priority")
    if isinstance(own, int) and not isinstance(own, bool) and priority * sign < own * sign <= _OWN_MAX:
        priority = own
    request["priority"] = priority
    return msgspec.json.encode(request)
