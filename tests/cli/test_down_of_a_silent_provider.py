"""`down` while the provider refuses: it says what holds the fleet up, and `status` does too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.cli.main import main
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    import pytest

REFUSED = "list_nodes: the credentials are no longer valid; nothing is believed gone"


def test_down_and_status_say_what_holds_the_fleet_up(capsys: pytest.CaptureFixture[str]) -> None:
    fakes = FakeSite()
    store = fakes.store
    store.put_fleet(samples.profile(), samples.plan(), now=fakes.clock.now())
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    fakes.host.controllers["demo"] = lambda: replace(fakes.live_status("demo"), reason=REFUSED)
    try:
        assert main(["down", "demo", "--yes", "--timeout", "30s"], site=fakes.site) != 0
        assert f"demo: 1 replicas left; {REFUSED}" in capsys.readouterr().err
        main(["status", "demo"], site=fakes.site)
        assert f"STOPPING  1 replicas still hold a node; {REFUSED}" in capsys.readouterr().out
    finally:
        store.close()
