from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ssh.hosts import SSHD, some_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ssh.hosts import Host


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[str, Host]]:
    """Two machines and their inventory, for all tests of a file."""
    if not Path(SSHD).exists() and os.environ.get("CI") != "true":
        pytest.skip("no sshd: ./install.sh test installs it where apt-get is")
    root = Path(tempfile.mkdtemp(prefix="fs-"))
    with some_hosts(root) as hosts:
        yield hosts
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def inventory(machines: dict[str, Host]) -> Path:
    return next(iter(machines.values())).directory.parent / "inventory.yaml"
