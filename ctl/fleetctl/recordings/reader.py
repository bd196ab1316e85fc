"""Reads a recording row by row, a cut one up to where it was cut."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.recording import RECORDING_VERSION, RecordingHeader, RecordingRow
from fleetctl.recordings.writer import GZIP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK_BYTES = 1 << 16
# A row holds a profile and its plan at the most; whoever sends a bomb of one line is refused.
_LINE_BYTES_MAX = 16 << 20


def read_header(path: Path) -> RecordingHeader:
    """Return what a recording begins with. Raises ConfigError on what is none, NotFoundError."""
    for row in read_recording(path):
        if row.header is not None:
            return row.header
    raise ConfigError(f"{path}: is empty", hint="it was cut before its first row was written")


def read_recording(path: Path) -> Iterator[RecordingRow]:
    """Yield the rows, the header first. Raises ConfigError naming the line that is none, NotFoundError."""
    for number, line in enumerate(_lines(path), 1):
        try:
            row = decode(RecordingRow, line)
        except msgspec.DecodeError as exc:
            _refuse_version(path, line)
            raise ConfigError(f"{path}:{number}: is no row of a recording: {exc}") from exc
        if number == 1 and row.header is None:
            raise ConfigError(f"{path}: is no recording", hint="`fleetctl record FLEET -o FILE` makes one")
        yield row


class _Version(msgspec.Struct):
    version: int = 0


class _Versioned(msgspec.Struct):
    header: _Version


def _refuse_version(path: Path, line: bytes) -> None:
    try:
        found = msgspec.json.decode(line, type=_Versioned).header.version
    except msgspec.DecodeError:
        return
    if found != RECORDING_VERSION:
        hint = "use the fleetctl that wrote it, or a newer one"
        raise ConfigError(f"{path}: is a recording of version {found}, not {RECORDING_VERSION}", hint=hint)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield whole lines; what was cut in the middle of one is left out."""
    pending = b""
    for chunk in _chunks(path):
        *whole, pending = (pending + chunk).split(b"\n")
        yield from whole
        if len(pending) > _LINE_BYTES_MAX:
            raise ConfigError(f"{path}: has a line of more than {_LINE_BYTES_MAX} bytes: it is no recording")


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield what is in a gzip file, of all its members; one without its end is read up to there."""
    try:
        with path.open("rb") as file:
            gzip, raw = zlib.decompressobj(wbits=GZIP), b""
            while raw or (raw := file.read(_CHUNK_BYTES)):
                yield gzip.decompress(raw, _LINE_BYTES_MAX)
                raw = gzip.unconsumed_tail or gzip.unused_data
                if gzip.eof:
                    gzip = zlib.decompressobj(wbits=GZIP)
    except FileNotFoundError as exc:
        raise NotFoundError(f"there is no recording at {path}") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except zlib.error as exc:
        raise ConfigError(f"{path}: is no recording: {exc}", hint="`fleetctl record FLEET -o FILE` makes one") from exc
