"""What holds for every test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.time_limit import put_in_order, skip_if_over

if TYPE_CHECKING:
    from collections.abc import Iterator

# A job started in the background of a script inherits SIGINT ignored, and so would every process the tests start and
# then interrupt; a handler of ours is reset to the default when they are executed.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So is SIGHUP under nohup, and a terminal that hangs up would end nobody.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A plan is simulated in a second or two, hundreds of times in a run; the tests of proofs have it done.
os.environ["FLEETCTL_NO_PROOF"] = "1"

# How fast a property is tried says something of the machine, not of the property.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


@pytest.fixture(scope="session", autouse=True)
def own_temporary_directory() -> Iterator[None]:
    """A temporary directory of this run's own: what killed processes and abandoned fleets leave goes with it.

    Its path is short, as sockets are made below it.
    """
    before, directory = os.environ.get("TMPDIR"), tempfile.mkdtemp(prefix="ft-")
    Path(directory).chmod(0o711)  # some tests are of other users, who have to come by
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    yield
    tempfile.tempdir = None
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    shutil.rmtree(directory, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests in the order in which they are begun."""
    put_in_order(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin a test where there is time for it."""
    skip_if_over(item)
