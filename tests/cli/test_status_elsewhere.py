"""What `status` shows of a fleet whose processes run on another machine, of which this one sees the state alone."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.cli.fleet_views import status_view
from fleetctl.cli.output import Format, text_of
from tests.tui import fleets

UNSEEN = replace(
    fleets.busy(), controller_alive=False, controller_pid=0, gateway_alive=False, gateway_pid=0, gateways=()
)  # fmt: skip


def shown(status: object) -> list[str]:
    text = text_of(status_view(status), Format.TABLE)  # type: ignore[arg-type]
    return [line for line in text.splitlines() if line.startswith(("Gateway ", "Control "))]


def test_what_runs_elsewhere_is_not_called_dead():
    gateway, control = shown(replace(UNSEEN, controller_host="bastion"))
    assert gateway.endswith("/v1  (on bastion, not seen from here)")
    assert control == "Control  on bastion, not seen from here"


def test_what_runs_nowhere_is():
    gateway, control = shown(UNSEEN)
    assert gateway.endswith("/v1  (not answering)")
    assert control == "Control  not running"
