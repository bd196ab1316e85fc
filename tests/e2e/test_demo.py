"""`fleetctl demo` where nobody watches: figures, a verdict, and nothing left, however it ends."""

from __future__ import annotations

import json
import signal

import pytest

from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.essential, pytest.mark.timeout(600)]


def test_the_demo_measures_every_lane_and_cleans_up(home):
    ran = home.run("demo", "--duration", "10s", "-o", "json")
    assert ran.code in (0, 5), ran.err  # 5: this machine was too slow for the SLO, which it says
    report = json.loads(ran.out)
    assert (ran.code == 5) is (report["compliance"] == "missed")
    assert {"short", "long"} <= {lane["lane"] for lane in report["lanes"]}
    assert report["total"]["failed"] == {}
    assert "demo is down; nothing is left" in ran.err
    assert home.processes() == []
    assert home.sockets() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("output", ["replicas ready", "in flight"])
def test_a_demo_that_is_ended_takes_its_fleet_along(output, number, code, home):
    # A port of its own: another demo that starts meanwhile may take the one that both find free.
    with home.start("demo", "--duration", "60s", "--port", str(free_port())) as running:
        assert running.stderr is not None
        seen = []
        for line in running.stderr:
            seen.append(line)
            if output in line:
                break
        else:
            pytest.fail(f"it ended before anything was {output!r}: {''.join(seen)}")
        running.send_signal(number)
        _, err = running.communicate(timeout=240)
    assert running.returncode == (130 if output == "in flight" else code), err
    assert "Traceback" not in err
    assert home.processes() == []
    assert home.sockets() == []
