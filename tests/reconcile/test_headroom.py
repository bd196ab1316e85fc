"""What is left for another replica, and what would make room where nothing is."""

from __future__ import annotations

import pytest

from fleetctl.core.reconcile.headroom import GpuPool, Headroom, ReplicaNeed
from fleetctl.model.profile import CapacitySpec

NEED = ReplicaNeed(price_usd_per_hour=1.0, nodes=1, pool="here/H100", gpus=2)


@pytest.mark.parametrize(
    ("nodes", "left", "remedy"), [(3, 1, "plan fewer replicas"), (0, 8, "raise the cap"), (0, 1, "raise the cap")]
)
def test_a_cap_can_be_raised_and_a_machine_has_what_it_has(nodes: int, left: int, remedy: str) -> None:
    pool = GpuPool(gpu="H100", there=8, left=left)
    headroom = Headroom(nodes=nodes, usd_per_hour=None, capacity=CapacitySpec(max_nodes=4), pools={"here/H100": pool})
    assert headroom.refusal(NEED)
    assert headroom.remedy(NEED) == remedy
