"""Faults of a cluster's control plane, each there for as long as its context lasts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

from tests.kube.live_fleet import LiveFleet

Outage = Callable[[LiveFleet], AbstractContextManager[None]]
_API = "kube-apiserver"


@contextmanager
def api_server_killed(fleet: LiveFleet) -> Iterator[None]:
    fleet.cluster.component("kill", _API)
    yield
    fleet.cluster.component("start", _API)
    fleet.cluster.until_it_answers()


@contextmanager
def api_server_stopped(fleet: LiveFleet) -> Iterator[None]:
    """It takes connections and answers none."""
    fleet.cluster.component("stop", _API)
    yield
    fleet.cluster.component("continue", _API)
    fleet.cluster.until_it_answers()


@contextmanager
def etcd_stopped(fleet: LiveFleet) -> Iterator[None]:
    """The API server answers what it has cached, and waits for everything else."""
    fleet.cluster.component("stop", "etcd")
    yield
    fleet.cluster.component("continue", "etcd")
    fleet.cluster.until_it_answers()


@contextmanager
def etcd_killed(fleet: LiveFleet) -> Iterator[None]:
    fleet.cluster.component("kill", "etcd")
    yield
    fleet.cluster.component("start", "etcd")
    fleet.cluster.until_it_answers()


@contextmanager
def token_taken_away(fleet: LiveFleet) -> Iterator[None]:
    """The token ends with the Secret it is bound to; then another is in its place."""
    fleet.take_token_away()
    yield
    fleet.new_token()


@contextmanager
def pod_lost_meanwhile(fleet: LiveFleet) -> Iterator[None]:
    """A pod is deleted in the same moment as the API server goes."""
    name = fleet.cluster.core.list_namespaced_pod(fleet.namespace).items[0].metadata.name
    fleet.cluster.core.delete_namespaced_pod(name, fleet.namespace, grace_period_seconds=20)
    with api_server_killed(fleet):
        yield


OUTAGES: dict[str, Outage] = {
    "API server killed": api_server_killed,
    "API server stopped": api_server_stopped,
    "etcd stopped": etcd_stopped,
    "etcd killed": etcd_killed,
    "token taken away": token_taken_away,
    "pod deleted, API server killed": pod_lost_meanwhile,
}
