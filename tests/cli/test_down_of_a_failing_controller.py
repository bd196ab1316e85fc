"""`down` while every tick of the controller fails: it says so, once, and waits on."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.cli.main import main
from fleetctl.testing import samples
from tests.sites import FakeSite


def test_down_says_why_nothing_goes(capsys):
    fakes = FakeSite()
    store = fakes.store
    store.put_fleet(samples.profile(), samples.plan(), now=fakes.clock.now())
    store.begin_replica(samples.replica(), samples.node_request(), now=samples.EPOCH)
    since = fakes.clock.now()
    fakes.host.controllers["demo"] = lambda: replace(
        fakes.live_status("demo"), controller_failing_since=since, reason="the last tick failed: no module named gone"
    )
    try:
        assert main(["down", "demo", "--yes", "--timeout", "30s"], site=fakes.site) != 0
    finally:
        store.close()
    err = capsys.readouterr().err
    assert err.count("caution: ") == 1
    assert "replicas still hold a node; the last tick failed: no module named gone; so do all since" in err
    assert "fleetctl logs controller --fleet demo" in err
    assert "not down after 30 s" in err
