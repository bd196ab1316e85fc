"""What goes to stderr: progress, cautions and questions. Plain lines wherever no terminal shows them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from fleetctl.cli.output import has_colour
from fleetctl.errors import UnconfirmedError
from fleetctl.model.preflight import Verdict
from fleetctl.printable import printable
from fleetctl.views.preflight import finding_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from fleetctl.model.preflight import Finding

_FRAMES = "|/-\\"


@dataclass(slots=True, kw_only=True)
class Progress:
    """Shows on stderr what goes on: one line redrawn on a terminal, a line per change elsewhere."""

    quiet: bool = False
    _drawn: str = field(default="", init=False)
    _turn: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._erase()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.paint(printable(text, keeps_lines=True))

    def paint(self, text: str) -> None:
        """Print lines that stay, in the colours they have."""
        if not self.quiet:
            self._erase()
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def caution(self, text: str) -> None:
        """Print a warning, also when quiet."""
        self._erase()
        yellow, plain = ("\x1b[33m", "\x1b[0m") if has_colour(is_tty=sys.stderr.isatty()) else ("", "")
        sys.stderr.write(f"{yellow}caution:{plain} {printable(text, keeps_lines=True)}\n")
        sys.stderr.flush()

    def working(self, text: str) -> None:
        """Show on a terminal what takes a moment, until the next line."""
        if sys.stderr.isatty():
            self.update(text)

    def update(self, text: str) -> None:
        """Show how far it is; call it often, on a terminal the spinner turns."""
        if self.quiet:
            return
        text = printable(text)
        if not sys.stderr.isatty():
            if text != self._drawn:
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()
            self._drawn = text
            return
        self._turn += 1
        frame = _FRAMES[self._turn % len(_FRAMES)]
        sys.stderr.write(f"\r\x1b[K{frame} {_cut(text)}")
        sys.stderr.flush()
        self._drawn = text

    def _erase(self) -> None:
        if self._drawn and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._drawn = ""


def _cut(text: str) -> str:
    import shutil

    width = shutil.get_terminal_size().columns - 3
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"


def note_cautions(cautions: Iterable[str], progress: Progress) -> None:
    """Print what may not go as one would think, a line each."""
    for caution in cautions:
        progress.caution(caution)


def note_findings(findings: tuple[Finding, ...], progress: Progress) -> None:
    """Say what a preflight finds wanting, once nothing was refused over it."""
    for finding in findings:
        if finding.verdict is not Verdict.OK:
            progress.caution(finding_line(finding))


def confirm(question: str, *, yes: bool) -> bool:
    """Ask y/N on a terminal; without one there is nobody to ask, so --yes must have been given. Raises UnconfirmedError."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UnconfirmedError(f"{question} needs a yes, and this is no terminal to ask on", hint="pass --yes")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
