"""Finds shipped data: the user's own directory first, then the checkout, then the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import NotFoundError
from fleetctl.paths import config_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = Path(__file__).resolve().parent


def roots(kind: str) -> Iterator[Path]:
    """Yield the directories that may hold `kind` ("templates" or "profiles"), most specific first."""
    yield config_dir() / kind
    # An editable install leaves the wheel's copy stale, so the checkout comes before the package.
    checkout = _PACKAGE.parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "ctl").is_dir():
        yield checkout / kind
    yield _PACKAGE / "_data" / kind


def find(kind: str, name: str) -> Path:
    """Return the first file or directory called `name`. Raises NotFoundError listing what there is."""
    for root in roots(kind):
        path = root / name
        if path.exists():
            return path
    raise NotFoundError(f"no {kind} file named {name!r}", hint=f"available: {', '.join(available(kind))}")


def available(kind: str) -> list[str]:
    """Return the relative names of every file of a kind, each once, sorted."""
    names: set[str] = set()
    for root in roots(kind):
        if root.is_dir():
            names.update(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
    return sorted(names)


def packaged(kind: str) -> Path:
    """Return the directory of a kind as this release has it, without what the user put in its place."""
    return next(root for root in list(roots(kind))[1:] if root.is_dir())
