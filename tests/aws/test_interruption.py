"""What follows a spot interruption, in which order, while requests are answered."""

from __future__ import annotations

import pytest

from fleetctl import plugins
from tests.aws.interruption import living_fleet, timeline

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(500),
    pytest.mark.enable_socket,
    pytest.mark.skipif("aws" not in plugins.installed(plugins.PROVIDERS), reason="no provider `aws` is installed"),
]
# A busy machine's; docs/aws.md has what was measured.
SEEN_WITHIN_S = 10.0


def test_a_substitute_serves_before_the_noticed_replica_leaves_and_no_request_fails() -> None:
    with living_fleet() as fleet:
        at_s = timeline(fleet, notice_s=90.0)
    order = ["message", "seen", "ordered", "serving", "out", "drained"]
    assert sorted(order, key=at_s.__getitem__) == order
    assert at_s["gone"] >= at_s["out"]
    assert at_s["seen"] < SEEN_WITHIN_S
    assert set(fleet.answers) == {"answered"}
    assert fleet.answers["answered"] > 5
