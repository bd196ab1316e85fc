"""`restart`: what a person asks for is on record, and what cannot be done is refused before anything is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.cli.main import main
from fleetctl.errors import ConfigError, FrozenError, ProviderError, UnavailableError
from fleetctl.model.desired import WHOLE_FLEET, Terms
from fleetctl.model.engine_restart import EngineRestart, RestartPhase
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.replica import ReplicaState
from fleetctl.operations import restarting
from fleetctl.testing import samples
from fleetctl.testing.provider import FakeProvider
from tests.operations.test_replicas import a_replica

if TYPE_CHECKING:
    from fleetctl.model.replica import Replica


@pytest.fixture
def restarts(fakes):
    """The provider of the site can start engines anew."""
    fakes.provider = FakeProvider(fakes.clock, restarts=True)


def over(record: Replica, **changes: Any) -> Replica:
    restart = EngineRestart(at=samples.EPOCH, by_operator=True, started_before=samples.EPOCH, orders=1, **changes)
    return replace(record, restart=restart)


def test_an_order_is_on_record_once_until_it_is_followed(restarts, controlled, site, store, host):
    record = a_replica(store)
    for _ in range(2):
        assert restarting.restart(site, "demo", "node-r1", reason="it leaks").id == "r1"
    assert store.fleet("demo").overrides.restarts == {"r1": 1}
    assert [(e.action, e.reason) for e in store.journal("demo")] == [("restart", "asked for by hand: it leaks")] * 2
    store.put_replica(over(record, phase=RestartPhase.OVER))
    restarting.restart(site, "demo", "r1")
    assert store.fleet("demo").overrides.restarts == {"r1": 2}
    assert host.calls["wake", "demo"] == 3


def test_a_new_profile_does_not_take_an_order_back(restarts, controlled, site, store):
    a_replica(store)
    restarting.restart(site, "demo", "r1")
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    assert store.fleet("demo").overrides.restarts == {"r1": 1}


def test_a_provider_that_cannot_says_so_and_what_to_do_instead(controlled, site, store):
    a_replica(store)
    with pytest.raises(ConfigError, match="provider fake restarts no engines") as caught:
        restarting.restart(site, "demo", "r1")
    assert "fleetctl drain r1 -f demo" in caught.value.hint
    assert store.fleet("demo").overrides.restarts == {}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": ReplicaState.BOOTING}, "it is booting, and has to have served"),
        ({"state": ReplicaState.DRAINING, "ready_at": samples.EPOCH}, "it is draining"),
        ({"drain_requested": True}, "it was asked to leave"),
        ({"notice": Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)}, "gives notice of its node"),
        (
            {
                "state": ReplicaState.BOOTING,
                "ready_at": samples.EPOCH,
                "restart": EngineRestart(at=samples.EPOCH, by_operator=False, started_before=samples.EPOCH),
            },
            "it starts anew already",
        ),
    ],
)
def test_a_replica_that_is_not_to_be_restarted_is_refused(changes, why, restarts, controlled, site, store):
    a_replica(store, **changes)
    with pytest.raises(ConfigError) as caught:
        restarting.restart(site, "demo", "r1")
    assert why.replace("it starts", "its engine starts") in caught.value.message
    assert store.fleet("demo").overrides.restarts == {}


def test_a_freeze_holds_it_back(restarts, controlled, site, store):
    a_replica(store)
    held = replace(store.fleet("demo").overrides, freezes={WHOLE_FLEET: Terms(reason="launch")})
    store.set_overrides("demo", held, now=samples.EPOCH)
    with pytest.raises(FrozenError):
        restarting.restart(site, "demo", "r1")


def test_following_ends_when_it_serves_again_or_says_why_it_does_not(restarts, controlled, site, store):
    record = a_replica(store)
    followed = restarting.follow_restart(site, record, timeout_s=20)
    assert next(followed).state is ReplicaState.READY
    store.put_replica(replace(over(record), state=ReplicaState.BOOTING))
    assert next(followed).is_recovering is False  # it has no record of having served
    store.put_replica(over(record, phase=RestartPhase.OVER))
    assert [seen.state for seen in followed] == [ReplicaState.READY]

    store.put_replica(over(record, phase=RestartPhase.FAILED, fault="no agent answers"))
    with pytest.raises(ProviderError, match="r1 could not be restarted: no agent answers"):
        list(restarting.follow_restart(site, record, timeout_s=20))
    store.put_replica(replace(record, state=ReplicaState.STOPPING, fault="not ready after its restart in 10m"))
    with pytest.raises(ProviderError, match="r1 was not restarted: not ready after its restart in 10m"):
        list(restarting.follow_restart(site, record, timeout_s=20))
    store.put_replica(record)
    with pytest.raises(UnavailableError, match="r1 is still ready after 1 s"):
        list(restarting.follow_restart(site, record, timeout_s=1))


def test_the_command_says_what_it_would_do_asks_and_refuses(fakes, restarts, controlled, store, capsys):
    a_replica(store)
    assert main(("restart", "r1", "--dry-run"), site=fakes.site) == 0
    assert "r1 (ready) would be restarted" in capsys.readouterr().err
    assert main(("restart", "r1"), site=fakes.site) == 2
    assert main(("restart", "r1", "--yes", "--detach"), site=fakes.site) == 0
    assert store.fleet("demo").overrides.restarts == {"r1": 1}
    assert restarting.serves_alone(fakes.site, store.replicas("demo")[0])
    fakes.provider = FakeProvider(fakes.clock)
    capsys.readouterr()
    assert main(("restart", "r1", "--yes"), site=fakes.site) == 3
    assert "restarts no engines" in capsys.readouterr().err
