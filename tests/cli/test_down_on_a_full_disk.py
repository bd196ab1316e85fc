"""`down` where the fleet's end cannot be written down: what runs is ended all the same, and only where that was said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from fleetctl.cli.main import main
from fleetctl.errors import MAKE_ROOM, DiskFullError
from fleetctl.ports.host import OrphanedProcess
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from collections.abc import Iterator

GATEWAY = OrphanedProcess(pid=4711, fleet="demo", role="gateway")


def no_room(*_: Any, **__: Any) -> NoReturn:  # stands in for methods of any signature
    raise DiskFullError("state.db: disk full", hint=MAKE_ROOM)


class FullBeforeTheQuestion(SqliteStore):
    replicas = no_room


class FullAtTheEnd(SqliteStore):
    set_phase = no_room


@pytest.fixture(params=[FullBeforeTheQuestion, FullAtTheEnd])
def fakes(request: pytest.FixtureRequest) -> Iterator[FakeSite]:
    fakes = FakeSite()
    fakes.store = request.param(None, clock=fakes.clock)
    fakes.site = replace(fakes.site, store=fakes.store)
    fakes.store.put_fleet(samples.profile(), samples.plan(), now=fakes.clock.now())
    fakes.host.orphaned = (GATEWAY,)
    yield fakes
    fakes.store.close()


def test_nothing_is_ended_that_nobody_said_yes_to(fakes, capsys):
    assert main(["down", "demo"], site=fakes.site) != 0
    assert fakes.host.orphaned == (GATEWAY,)
    assert "pass --yes" in capsys.readouterr().err


def test_with_a_yes_the_processes_are_ended_and_it_says_what_is_left_to_do(fakes, capsys):
    assert main(["down", "demo", "--yes"], site=fakes.site) == 1
    assert fakes.host.orphaned == ()
    err = capsys.readouterr().err
    assert "4711 (gateway of demo)" in err
    assert "the state still says that it is up" in err
    assert "fleetctl down demo" in err
