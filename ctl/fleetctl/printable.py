"""Text as a terminal may show it: what engines, people and machines wrote can move no cursor and forge no line."""

from __future__ import annotations

import faulthandler
import logging
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

# C0 and C1 controls, DEL, line and paragraph separators, whatever turns the direction of writing, invisible tags and
# annotations, and halves of surrogate pairs, which no terminal can be written at all.
_UNSAFE = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
_ANY = re.compile(f"[{_UNSAFE}]")
_ANY_BUT_LINES = re.compile(f"(?!\\n)[{_UNSAFE}]")

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def printable(text: str, *, keeps_lines: bool = False) -> str:
    r"""Return `text` on one line, each control or invisible character as an escape: \x1b, \n, \u202e."""
    return (_ANY_BUT_LINES if keeps_lines else _ANY).sub(_escape, text)


def printable_json(text: str) -> str:
    r"""Return JSON with \uXXXX for what its writer left raw inside strings; its own line breaks stay."""
    return _ANY_BUT_LINES.sub(_json_escape, text)


def shortened(text: str, length_max: int) -> str:
    """Return a text of at most so many characters: a longer one ends after a whole word, with an ellipsis."""
    if len(text) <= length_max:
        return text
    kept = text[: length_max - 1]
    whole = kept if text[length_max - 1].isspace() else kept.rpartition(" ")[0]
    return f"{(whole or kept).rstrip(' ,;:.')}…"


def is_printable(text: str) -> bool:
    """Whether a text of several lines may be shown as it is."""
    return _ANY_BUT_LINES.search(text) is None


class PrintableFormatter(logging.Formatter):
    """Writes a record on one line, whatever is in it, and a traceback under it."""

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the base class's name
        """Return the record's line."""
        return printable(super().formatMessage(record))

    def formatException(  # noqa: N802  # the base class's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return the traceback."""
        return printable(super().formatException(ei), keeps_lines=True)


def log_to_stderr() -> None:
    """Set up a process of ours: its log is what it writes to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if sys.stderr is not None:  # it is None for a process that was started with it closed
        faulthandler.enable()  # a crash of the interpreter leaves its stack there too


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
