"""Whole fleets of real processes, in a user's directories of their own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.fleet import Home

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    home = Home(root=root)
    yield home
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []
