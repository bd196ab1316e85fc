"""Feeds an answer to a detector as a stream does: chunk by chunk, with a look whenever one is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.repetition.detector import LoopDetector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.repetition.detector import Loop


def found_in(answer: Sequence[str], *, chunk: int = 1, escapes: bool = True) -> Loop | None:
    """Return the first loop that is found in an answer's tokens, so many a chunk; as JSON writes them, with `escapes`."""
    detector, text = LoopDetector(), bytearray()
    for place in range(0, len(answer), chunk):
        piece = answer[place : place + chunk]
        joined = "".join(piece)
        text += msgspec.json.encode(joined)[1:-1] if escapes else joined.encode()
        if len(text) >= detector.next_bytes and (found := detector.look(text, place + len(piece))) is not None:
            return found
    return None
