"""Writes a recording: JSON lines in gzip, each batch complete on the disk's side before the next begins."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Final

from fleetctl.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from fleetctl.model.recording import RecordingRow

GZIP: Final = 16 + zlib.MAX_WBITS


class RecordingWriter:
    """Appends rows to a new file. Whatever `write` has returned from is readable if its process is killed then."""

    def __init__(self, path: Path, *, may_replace: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if may_replace else os.O_EXCL)
        # What clients asked for, and when, is the fleet's owner's business.
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
        self._gzip = zlib.compressobj(wbits=GZIP)
        self.bytes = 0  # written so far
        self.rows = 0

    def write(self, rows: Iterable[RecordingRow]) -> None:
        """Write rows. Raises OSError on a full disk."""
        lines = [encode(row) + b"\n" for row in rows]
        if not lines:
            return
        self._append(self._gzip.compress(b"".join(lines)) + self._gzip.flush(zlib.Z_SYNC_FLUSH))
        self.rows += len(lines)

    def close(self) -> None:
        """End the file."""
        if not self._file.closed:
            with self._file:
                self._append(self._gzip.flush(zlib.Z_FINISH))

    def _append(self, raw: bytes) -> None:
        self._file.write(raw)
        self._file.flush()
        self.bytes += len(raw)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
