"""A state in ConfigMaps of a real API server: processes that are killed, answers that are lost, what others have put there."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4  # noqa: TID251  # a name for what no other test may have

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from kubernetes import client

from fleetctl.cli.main import main
from fleetctl.environment import STATE_URL, state_variables
from fleetctl.errors import ConfigError, CredentialsError, FencedError, StateError
from fleetctl.model.subject import Subject
from fleetctl.paths import state_db
from fleetctl.ports.lease import LeaseHolder
from fleetctl.ports.objects import OutdatedVersionError, UnconfirmedWriteError
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.state.opening import open_objects, open_store
from fleetctl.state.shared import SharedStore
from fleetctl.state.shared_identity import check_conditions
from fleetctl.testing.samples import EPOCH
from fleetctl_kubernetes.state_objects import OBJECT_BYTES_MAX, object_name
from tests.kube.fault_proxy import Fault, FaultProxy, proxy_thread
from tests.state.conftest import NAMESPACE
from tests.state.test_s3 import COMMITS, spawn
from tests.state.test_state_commands import fill
from tests.state.test_store_machine import StoreMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.state.opening import OpenStore
    from fleetctl.testing.clocks import ManualClock
    from tests.kube.api_server import ApiServer
    from tests.state.conftest import ClusterPlace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@contextmanager
def proxied(server: ApiServer, path: Path, choose: Callable[[str, str], Fault | None]) -> Iterator[FaultProxy]:
    """Run a proxy before the API server, and write a kubeconfig that leads to it."""
    with proxy_thread(server.url, choose) as (proxy, url):
        server.kubeconfig_to(url, path)
        yield proxy


def test_six_processes_of_which_two_are_killed_and_whose_answers_are_lost_write_each_line_once(
    cluster_place: ClusterPlace, tmp_path: Path
) -> None:
    dice, struck = Random(11), Counter[str]()
    kinds = {
        "cut after": Fault(after=True), "cut before": Fault(), "busy": Fault(status=503),
        "throttled": Fault(status=429, headers={"Retry-After": "1"}), "none": None,
    }  # fmt: skip

    def choose(method: str, path: str) -> Fault | None:
        if method not in ("PATCH", "POST") or not path.endswith((".head", "/configmaps")):
            return None
        (kind,) = dice.choices(tuple(kinds), (3, 1, 1, 1, 14))
        struck[kind] += 1
        return kinds[kind]

    kubeconfig = tmp_path / "proxied"
    with closing(cluster_place.open()) as store, proxied(cluster_place.server, kubeconfig, choose):
        assert store.owner
        environment = {"KUBECONFIG": str(kubeconfig)}
        lives = [spawn(cluster_place.url, f"p{n}", COMMITS, environment) for n in range(4)]
        killed = [spawn(cluster_place.url, f"k{n}", 10_000, environment) for n in range(2)]
        acknowledged: list[str] = []
        for victim in killed:
            assert victim.stdout is not None
            acknowledged += [victim.stdout.readline().strip() for _ in range(dice.randint(2, 6))]
            os.kill(victim.pid, signal.SIGKILL)
            acknowledged += victim.stdout.read().split()
            victim.wait(timeout=20)
            victim.stdout.close()
        for process in lives:
            acknowledged += process.communicate(timeout=120)[0].split()
            assert process.returncode == 0
        lines = Counter(acknowledged)
        del lines["open"]
        found = [entry.reason for entry in store.journal("demo", limit=100_000)]
    assert len(found) == len(set(found)), "no line is there twice"
    assert set(lines) <= set(found)
    assert len(set(found) - set(lines)) <= len(killed), "only a line of a killed one may lack its answer"
    assert len(found) >= 4 * COMMITS
    assert struck["cut after"] > 3


def test_a_throttled_or_cut_reading_is_made_again(
    cluster_place: ClusterPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [Fault(status=429, headers={"Retry-After": "1"}), Fault(status=500), Fault(), Fault(after=True)]
    kubeconfig = tmp_path / "proxied"
    with proxied(cluster_place.server, kubeconfig, lambda *_: faults.pop() if faults else None):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        with closing(open_store(cluster_place.url)) as store:
            assert store.fleets() == ()
    assert faults == []


def test_an_api_server_that_does_not_answer_is_an_error_within_the_deadline(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        path = api_server.kubeconfig_to(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path / "silent")
        monkeypatch.setenv("KUBECONFIG", str(path))
        with closing(open_objects(f"kubernetes://{NAMESPACE}", deadline_s=0.5)) as objects:
            with pytest.raises(StateError, match=r"has not answered for 0\.5 s"):
                objects.get("head")
            with pytest.raises(UnconfirmedWriteError):
                objects.put("head", b"", replaces=None)


def test_config_maps_keep_to_conditions_and_no_other_prefixs_are_seen(cluster_place: ClusterPlace) -> None:
    with (
        closing(open_objects(cluster_place.url)) as objects,
        closing(open_objects(f"kubernetes://{NAMESPACE}")) as bare,
    ):
        check_conditions(objects)
        assert objects.list_keys("") == ()
        first = objects.put("fleets/a/head", b"1", replaces=None)
        known = objects.get("fleets/a/head")
        assert known is not None
        assert (known.data, known.version) == (b"1", first)
        assert objects.get("fleets/a/head", known=known) is known
        second = objects.put("fleets/a/head", b"2", replaces=first)
        found = objects.get("fleets/a/head", known=known)
        assert found is not None
        assert (found.data, found.version) == (b"2", second)
        with pytest.raises(OutdatedVersionError):
            objects.put("absent", b"1", replaces=first)
        assert objects.get("absent") is None
        assert bare.get("fleets/a/head") is None
        assert "fleets/a/head" not in bare.list_keys("")
        objects.delete("fleets/a/head")
        objects.delete("fleets/a/head")
        assert objects.list_keys("") == ()


def test_what_others_have_put_on_an_object_stays_and_what_is_theirs_is_left_alone(cluster_place: ClusterPlace) -> None:
    core = cluster_place.server.core
    with closing(open_objects(cluster_place.url)) as objects:
        version = objects.put("identity", b"1", replaces=None)
        name = object_name(cluster_place.prefix, "identity")
        version = core.patch_namespaced_config_map(
            name, NAMESPACE, {"metadata": {"labels": {"team": "llm"}}}
        ).metadata.resource_version
        objects.put("identity", b"2", replaces=version)
        assert core.read_namespaced_config_map(name, NAMESPACE).metadata.labels["team"] == "llm"
        theirs = object_name(cluster_place.prefix, "common/head")
        core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": theirs}, "data": {"x": "y"}})
        with pytest.raises(OutdatedVersionError):
            objects.put("common/head", b"1", replaces=None)
        for call in (objects.get, objects.delete):
            with pytest.raises(StateError, match="somebody else's"):
                call("common/head")
        assert core.read_namespaced_config_map(theirs, NAMESPACE).data == {"x": "y"}


def test_what_lacks_is_said(api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_objects("kubernetes://nowhere")) as objects:
        assert objects.get("identity") is None
        with pytest.raises(StateError, match='namespaces "nowhere" not found') as missing:
            objects.put("identity", b"1", replaces=None)
        assert "kubectl create namespace nowhere" in missing.value.hint
    with (
        closing(open_objects("kubernetes://elsewhere/x")) as objects,
        pytest.raises(CredentialsError, match="no context elsewhere"),
    ):
        objects.get("identity")
    api_server.core.create_namespace({"metadata": {"name": "ending"}, "spec": {"finalizers": ["kubernetes"]}})
    api_server.core.delete_namespace("ending")  # and nothing here finishes it
    with closing(open_objects("kubernetes://ending")) as objects, pytest.raises(StateError, match="being terminated"):
        objects.put("identity", b"1", replaces=None)
    monkeypatch.setenv("KUBECONFIG", str(without_rights(api_server, tmp_path / "nobody")))
    with closing(open_objects(f"kubernetes://{NAMESPACE}")) as objects:
        with pytest.raises(CredentialsError, match="not allowed") as refused:
            objects.get("identity")
        assert f"of configmaps in {NAMESPACE}" in refused.value.hint


def without_rights(server: ApiServer, path: Path) -> Path:
    """Write a kubeconfig of an account that may do nothing."""
    server.core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "nobody"}})
    issued = server.core.create_namespaced_service_account_token("nobody", NAMESPACE, {"spec": {}})
    found = json.loads(server.kubeconfig.read_text())
    found["users"][0]["user"] = {"token": issued.status.token}
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize(
    ("place", "location"),
    [
        ("llm", "kubernetes://llm"),
        ("prod/llm", "kubernetes://prod/llm"),
        ("prod/llm/team-a", "kubernetes://prod/llm/team-a"),
        ("/llm/team-a", "kubernetes:///llm/team-a"),
        ("arn:aws:eks:eu-west-1:1:cluster%2Fprod/llm", "kubernetes://arn%3Aaws%3Aeks%3Aeu-west-1%3A1%3Acluster%2Fprod/llm"),
    ],
)  # fmt: skip
def test_a_place_is_a_namespace_of_a_context_and_a_prefix(
    place: str, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEETCTL_KUBE_CONTEXT", raising=False)
    assert open_objects(f"kubernetes://{place}").location == location


@pytest.mark.parametrize("place", ["LLM", "a/b/c/d", "ctx/", "ctx/ns/UPPER", "/ns/with.dot"])
def test_what_is_no_namespace_is_said(place: str) -> None:
    with pytest.raises(ConfigError, match="no namespace of a cluster"):
        open_objects(f"kubernetes://{place}")


def test_a_base_larger_than_an_object_is_cut(cluster_place: ClusterPlace) -> None:
    dice, texts = Random(5), {}
    with closing(cluster_place.open()) as store:
        for number in range(60):  # some 3 MB that compress to two
            texts[f"{number:02}"] = dice.randbytes(30_000).hex()
            store.put_record(
                StoredRecord.of(Collection.AUDIT, f"{number:02}", texts[f"{number:02}"], at=EPOCH, fleet="demo")
            )
    with closing(cluster_place.open()) as store:
        found = {each.key: each.value_as(str) for each in store.records(Collection.AUDIT, fleet="demo")}
    assert found == texts
    sizes = {name: size for name, size in stored(cluster_place).items() if ".fleets.demo." in name}
    assert sum("base" in name for name in sizes) > 1
    assert max(sizes.values()) <= OBJECT_BYTES_MAX


def stored(place: ClusterPlace) -> dict[str, int]:
    """Return the bytes of each of a prefix's ConfigMaps, as kubectl sees them."""
    found: Any = place.server.core.list_namespaced_config_map(
        NAMESPACE, label_selector=f"fleetctl.dev/state={place.prefix}"
    )
    return {each.metadata.name: len(each.binary_data["object"]) * 3 // 4 for each in found.items}


def test_a_state_moves_into_the_cluster_and_back(
    cluster_place: ClusterPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with closing(open_store("")) as store:
        fill(store)
        owner = store.owner
    assert main(["state", "migrate", cluster_place.url, "--yes"]) == 0
    assert f"export {STATE_URL}={cluster_place.url}" in capsys.readouterr().err
    monkeypatch.setenv(STATE_URL, cluster_place.url)
    assert main(["state", "show"]) == 0
    shown = capsys.readouterr().out
    assert cluster_place.url in shown
    assert owner in shown
    assert main(["state", "unlock", "alpha", "--yes"]) == 0
    assert main(["doctor"]) in (0, 1)  # this machine's other findings are no matter
    assert f"{cluster_place.url}, schema" in capsys.readouterr().out
    assert main(["state", "migrate", "local", "--yes"]) == 0
    monkeypatch.delenv(STATE_URL)
    assert state_db().exists()
    with closing(open_store("")) as store:
        assert store.owner == owner
        assert [each.reason for each in store.journal("alpha", subjects=(Subject.lane("short"),))] == ["one", "two"]


def test_whoever_holds_a_fleet_is_shown_as_a_lease_and_nobody_is_who_was_fenced(
    cluster_place: ClusterPlace, clock: ManualClock
) -> None:
    leases = client.CoordinationV1Api(cluster_place.server.api)
    name = f"fleetctl-{cluster_place.prefix}.demo"

    def shown() -> Any:
        return leases.read_namespaced_lease(name, NAMESPACE).spec

    with closing(cluster_place.open()) as store, closing(cluster_place.open()) as other:
        first = store.under(store.acquire_lease("demo", holder("pod-a"), now=clock.now()))
        assert (shown().holder_identity, shown().lease_transitions, shown().lease_duration_seconds) == (
            "pod-a_7",
            1,
            30,
        )
        acquired = shown().acquire_time
        first.renew_lease(now=clock.now() + timedelta(seconds=5))
        assert (shown().renew_time - acquired).total_seconds() == 5
        assert shown().acquire_time == acquired
        other.break_lease("demo", holder("pod-b"), now=clock.now())
        assert (shown().holder_identity or "", shown().lease_transitions) == ("", 2)
        second = other.under(other.acquire_lease("demo", holder("pod-b"), now=clock.now()))
        with pytest.raises(FencedError):
            first.renew_lease(now=clock.now())
        # Frozen between its last write to the state and showing it: it shows itself over nobody.
        stored = store.lease("demo")
        assert stored is not None
        with closing(open_objects(cluster_place.url)) as objects:
            objects.show_lease(replace(stored, epoch=1, holder=holder("pod-a")))
        assert (shown().holder_identity, shown().lease_transitions) == ("pod-b_7", 3)
        second.release_lease(now=clock.now())
        assert (shown().holder_identity or "", shown().lease_transitions) == ("", 3)


def test_a_lease_object_that_is_another_programs_is_left_alone_and_the_lease_holds(
    cluster_place: ClusterPlace, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    leases = client.CoordinationV1Api(cluster_place.server.api)
    name = f"fleetctl-{cluster_place.prefix}.demo"
    leases.create_namespaced_lease(NAMESPACE, {"metadata": {"name": name}, "spec": {"holderIdentity": "theirs"}})
    with closing(cluster_place.open()) as store:
        held = store.under(store.acquire_lease("demo", holder("pod-a"), now=clock.now()))
        held.renew_lease(now=clock.now())
        held.check_lease()
    assert [record.message for record in caplog.records if "somebody else's" in record.message] != []
    assert len([record for record in caplog.records if "is not shown" in record.message]) <= 2
    assert leases.read_namespaced_lease(name, NAMESPACE).spec.holder_identity == "theirs"


def holder(host: str) -> LeaseHolder:
    return LeaseHolder(pid=7, host=host, boot_id=f"boot of {host}", started_at=EPOCH)


class ClusterStoreMachine(StoreMachine):
    """The model of a store, on the API server that the environment leads to."""

    def make_place(self) -> None:
        self.url = f"kubernetes:///{NAMESPACE}/{uuid4().hex}"

    def open_store(self) -> OpenStore:
        return SharedStore(open_objects(self.url), clock=self.clock, head_bytes_max=1_000)


def test_a_store_in_the_cluster_holds_what_its_model_does(api_server: ApiServer) -> None:
    run_state_machine_as_test(
        ClusterStoreMachine, settings=settings(max_examples=8, stateful_step_count=25, deadline=None)
    )


def test_processes_of_a_fleet_get_what_leads_to_the_cluster() -> None:
    assert "KUBECONFIG" in state_variables({STATE_URL: "kubernetes://llm"})
    assert "KUBECONFIG" not in state_variables({STATE_URL: "s3://bucket"})
