"""One cloud for the tests of a worker: it starts in two seconds of computing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.aws.cloud.client import running_cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud


@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[Cloud]:
    with running_cloud() as running:
        yield running


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Cloud:
    """The worker's cloud, behaving again as at its start and with nothing running."""
    shared_cloud.control("POST", "reset")
    return shared_cloud
