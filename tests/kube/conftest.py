"""One cluster for the tests of a worker: it starts in some five seconds and takes a gigabyte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kube.assets import control_plane_assets
from tests.kube.cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    with running_cluster(control_plane_assets()) as running:
        running.node("spot-1", labels={"karpenter.sh/capacity-type": "spot"})
        running.node("on-demand-1", labels={"karpenter.sh/capacity-type": "on-demand"})
        yield running
