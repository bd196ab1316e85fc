"""Two people bring the same fleet up at once, from homes that share its state: one's controller keeps it, and neither fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.kube.placed_fleet import PlacedFleet, placed

if TYPE_CHECKING:
    from tests.e2e.fleet import Home, Ran

__all__ = ["placed"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]


def test_of_two_ups_at_once_the_later_leaves_the_fleet_to_the_other(placed: PlacedFleet) -> None:
    placed.write_profile(
        (f"namespace: {placed.namespace}}}", f'namespace: {placed.namespace}, image: "tests/emulator:1"}}'),
        ('host: {kind: kubernetes, image: "tests/fleetctl:1"}', ""),
        ("host: 0.0.0.0", "host: 127.0.0.1"),
        (", api_keys: [env:LLM_KEY]", ""),
    )

    def up(home: Home) -> Ran:
        return home.run("up", str(placed.profile), "--yes", "--detach", timeout_s=120)

    with ThreadPoolExecutor(2) as both:
        ended = list(both.map(up, (placed.laptop, placed.other)))
    try:
        texts = [each.err for each in ended]
        assert not any("while starting" in each for each in texts), texts
        assert [each.code for each in ended] == [0, 0], texts
    finally:
        for home in (placed.laptop, placed.other):
            home.run("down", "chat", "--yes", timeout_s=120)
