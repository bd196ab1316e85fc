"""The fleetctl of this machine as an archive that a head runs: its packages, its data, the releases of what it needs."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import re
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl import resources

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "fleetctl"
_DATA = ("templates", "profiles")
_SKIPPED = {"__pycache__"}
# zip keeps no instant before it; all files have the same, so that equal files are an equal archive.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?[^;]*(?:;(?P<marker>.*))?")


def make_archive() -> tuple[bytes, str]:
    """Return the archive and its sha256: the same for the same files, wherever and whenever it is made."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in sorted(_files()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            out.writestr(entry, content, zipfile.ZIP_DEFLATED)
    archive = packed.getvalue()
    return archive, hashlib.sha256(archive).hexdigest()


def requirements(name: str = _NAME) -> list[str]:
    """Return what a distribution needs, and what that needs, each at the release that is installed here."""
    found: dict[str, str] = {}
    waiting = [*_needed(distribution(name))]
    while waiting:
        each = waiting.pop()
        key = re.sub(r"[-_.]+", "-", each).lower()
        if key in found:
            continue
        try:
            there = distribution(each)
        except PackageNotFoundError:
            continue  # for another system, or another Python
        found[key] = f"{key}=={there.version}"
        waiting += _needed(there)
    return sorted(found.values())


def _needed(of: Distribution) -> Iterator[str]:
    for line in of.requires or ():
        match = _REQUIREMENT.fullmatch(line.strip())
        if match and "extra" not in (match["marker"] or ""):
            yield match["name"]


def _files() -> Iterator[tuple[str, bytes]]:
    """Yield each file of the archive, by its name there."""
    ours = distribution(_NAME)
    packages = sorted({entry.value.partition(":")[0].partition(".")[0] for entry in ours.entry_points} | {_NAME})
    for package in packages:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from _below(Path(place), package)
    for kind in _DATA:
        yield from _below(resources.packaged(kind), f"{_NAME}/_data/{kind}")
    about = f"{_NAME}-{ours.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        yield f"{about}/{name}", (ours.read_text(name) or "").encode()
    yield "requirements.txt", "".join(f"{line}\n" for line in requirements()).encode()


def _below(directory: Path, name: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        # What an earlier build left as a copy of the data is brought along below, as it is now; compiled modules are of
        # this machine's kind alone.
        if _SKIPPED & set(inside.parts) or inside.parts[0] == "_data" or path.suffix in (".so", ".pyc", ".pyd"):
            continue
        if path.is_file():
            yield f"{name}/{inside.as_posix()}", path.read_bytes()
