"""An account that never bought spot, and may not make the role that spot takes: replicas are bought on demand, and it is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.aws.booted_home import booted_home
from tests.aws.cloud.client import running_cloud
from tests.e2e.fleet import live_replicas
from tests.living_profiles import placed_profile
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.enable_socket]

FLEET = "spotless"
COMMAND = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
PROFILE = placed_profile(
    FLEET,
    provider="aws",
    lane="chat",
    replicas="min: 1, max: 1",
    ttft="2s",
    output_tokens="p50: 32, p99: 100",
    keys="""\
    spot: all
capacity: {gpus: [L40S], max_nodes: 2}
gateway: {host: 127.0.0.1, port: PORT}
""",
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        running.limit(market="spot", error="AuthFailure.ServiceLinkedRoleCreationNotPermitted")
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, FLEET) as home:
        yield home


def test_without_spots_role_a_replica_is_bought_on_demand_and_status_has_the_command(home: Home, cloud: Cloud) -> None:
    profile = home.root / f"{FLEET}.yaml"
    profile.write_text(PROFILE.replace("PORT", str(free_port())))
    shown = home.run("up", str(profile), "--yes", timeout_s=120)
    assert shown.code == 0, shown.err
    (replica,) = [row.record for row in live_replicas(home.status(FLEET)) if row.record.state.value == "ready"]
    assert replica.market.value == "on-demand"
    assert COMMAND in home.fleetctl("status", FLEET)
    assert [each["id"] for each in cloud.instances()] == [replica.node_id]
