"""A fleet kept from the foreground: what died is started again, what was taken down is left, and no replica ends with us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import StateError
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations import lifecycle
from fleetctl.operations.staying import keep, leave
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = samples.profile().name


class Looks:
    """Waits without waiting: does something before each look, and then says to go."""

    def __init__(self, *before: Callable[[], object]) -> None:
        self._before = list(before)

    def __call__(self, within_s: float) -> bool:
        assert within_s > 0
        if not self._before:
            return True
        self._before.pop(0)()
        return False


@pytest.fixture
def made() -> FakeSite:
    made = FakeSite()
    lifecycle.up(made.site, samples.profile(), samples.plan())
    made.host.gateways.add(FLEET)
    return made


def die(made: FakeSite) -> None:
    made.host.controllers.clear()
    made.host.gateways.clear()


def test_a_fleet_both_of_whose_processes_died_is_started_again(made: FakeSite) -> None:
    keep(made.site, FLEET, waits=Looks(lambda: None, lambda: die(made)))
    assert FLEET in made.host.controllers


def test_one_that_cannot_be_started_now_is_tried_again(made: FakeSite, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        die(made)
        made.host.on_start = None

    def recover() -> None:
        made.host.on_start = made.start_controller

    keep(made.site, FLEET, waits=Looks(fail, recover))
    assert FLEET in made.host.controllers
    assert "did not answer" in caplog.text


def test_a_fleet_that_was_taken_down_and_forgotten_is_left_down(made: FakeSite) -> None:
    def forget() -> None:
        made.store.set_phase(FLEET, DesiredPhase.DOWN, now=made.clock.now())
        made.store.remove_fleet(FLEET)
        die(made)

    keep(made.site, FLEET, waits=Looks(forget, lambda: None))
    assert made.host.controllers == {}


def test_leaving_ends_controller_and_gateway_and_the_fleet_stays_wanted(made: FakeSite) -> None:
    leave(made.site, FLEET, within_s=1.0)
    assert not made.host.processes(FLEET).is_any
    found = made.store.fleet(FLEET)
    assert found is not None
    assert found.phase is DesiredPhase.UP


def test_processes_that_something_else_starts_again_and_again_are_an_error(
    made: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(made.host), "end_orphaned", lambda *_, **__: ())
    with pytest.raises(StateError, match="again and again"):
        leave(made.site, FLEET, within_s=1.0)
