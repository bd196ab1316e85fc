"""What a process has written, in pieces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of a log. Its bytes are whatever the process wrote: not checked, not printable for sure."""

    text: str
    end: int  # the byte behind it, from where the next piece is read
