"""The id a request is known by: the client's own where it is lawful, else one of this gateway's."""

from __future__ import annotations

import re
from itertools import chain, count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

REQUEST_ID = b"x-request-id"
TRACEPARENT = b"traceparent"
# What can go into a header, a log line and a shell's argument as it is; as long as a UUID or a ULID with a prefix, and more.
_LAWFUL = re.compile(rb"[A-Za-z0-9._:@/+=~-]{1,128}")
# Every request has an id, and formatting costs more than two bytes put together.
_ENDS = tuple(b"%03x" % number for number in range(4096))
# https://www.w3.org/TR/trace-context: version, trace-id, parent-id, flags.
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class RequestIds:
    """Makes ids that no other request of this fleet has: of the gateway's start, and a count."""

    __slots__ = ("next_id",)

    def __init__(self, started_at: datetime) -> None:
        prefix = b"req-%x-" % int(started_at.timestamp() * 1000)
        blocks = (map((b"%b%x" % (prefix, block)).__add__, _ENDS) for block in count())
        self.next_id: Callable[[], bytes] = chain.from_iterable(blocks).__next__

    def id_of(self, named: bytes) -> bytes:
        """Return the id of a request whose client gives it one."""
        return named if _LAWFUL.fullmatch(named) else self.next_id()


def is_lawful(named: bytes) -> bool:
    """Whether an id can go into a header, a log line and a shell's argument as it is, and is no longer than others."""
    return _LAWFUL.fullmatch(named) is not None


def trace_id(traceparent: bytes | None) -> str:
    """Return the trace id of a traceparent header; empty: there is none, or it is not lawful."""
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent is not None else None
    return found[1].decode() if found else ""
