"""Which fleet a demo takes."""

from __future__ import annotations

import pytest

from fleetctl.errors import LockHeldError
from fleetctl.operations.demo import claim_demo
from fleetctl.testing import samples


def test_the_first_demo_takes_the_plain_name_and_the_profiles_port(site):
    demo = claim_demo(site, may_reuse=False)
    assert (demo.profile.name, demo.profile.gateway.port, demo.is_reused) == ("demo", 8080, False)


def test_a_demo_beside_another_takes_the_next_name_until_the_other_ends(site):
    first = claim_demo(site, may_reuse=False)
    assert claim_demo(site, may_reuse=False).profile.name == "demo-2"
    first.claim.close()
    assert claim_demo(site, may_reuse=False).profile.name == "demo"


def test_a_taken_port_is_left_to_whoever_has_it(site, host):
    host.taken_ports = {8080}
    assert claim_demo(site, may_reuse=False).profile.gateway.port == host.free_port("127.0.0.1")
    assert claim_demo(site, port=9000, may_reuse=False).profile.gateway.port == 9000


def test_a_fleet_that_an_earlier_demo_left_is_taken_again_or_passed_by(site, fleet):
    assert claim_demo(site, may_reuse=False).profile.name == "demo-2"
    assert claim_demo(site, may_reuse=True).profile == samples.profile()


def test_there_is_an_end_to_demos(site, store, host):
    host.held = {("demo", "demo"), *((f"demo-{number}", "demo") for number in range(2, 10))}
    with pytest.raises(LockHeldError, match="9 demo fleets"):
        claim_demo(site, may_reuse=True)
