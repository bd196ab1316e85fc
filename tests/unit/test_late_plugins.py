"""A package that is installed while a process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl import plugins
from fleetctl.core.reconcile import reconcile
from fleetctl.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_plugin_installed_meanwhile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotFoundError, match="no policy named 'late' is installed"):
        plugins.load_policy("late")
    package = tmp_path / "late-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[fleetctl.policy]\nlate = fleetctl.core.reconcile:reconcile\n")
    assert plugins.load_policy("late") is reconcile
