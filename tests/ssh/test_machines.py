"""Machines that fail: each says, or is said of it, by name what is the matter, and nothing is lost or made twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import CapacityError, ConfigError, CredentialsError, EngineMissingError, ProviderError
from fleetctl.model.node import NodeState, NoticeKind
from fleetctl.model.preflight import Verdict
from fleetctl.testing.orders import as_it_is
from fleetctl.testing.samples import node_request
from fleetctl_ssh.provider import SshProvider
from fleetctl_ssh.settings import SshSettings
from tests.ssh.hosts import keygen, write_inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.model.node import CreateResult, Node, NodeRequest
    from tests.ssh.hosts import Host

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SLEEPS = ("/bin/sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600")


@pytest.fixture
def owner(request: pytest.FixtureRequest) -> str:
    return f"owner-{abs(hash(request.node.nodeid)) % 10**9}"


def provider(inventory: Path, *, expires_s: float = 60.0) -> SshProvider:
    return SshProvider(settings=SshSettings(inventory=str(inventory), expires_s=expires_s))


def order(token: str, owner: str, machine: str = "gpu-a", **changes: object) -> NodeRequest:
    named = {
        "owner": owner,
        "argv": ("/bin/sleep", "600"),
        "offering": f"1xL40S/{machine}/on-demand",
        "replica_id": token,
    }
    return node_request(token, **{**named, **changes})


async def made(provider: SshProvider, request: NodeRequest) -> CreateResult:
    (result,) = await provider.create((request,), resolve_secrets=as_it_is)
    return result


async def until(provider: SshProvider, token: str, owner: str, holds: Callable[[Node], bool]) -> Node:
    until_s = SYSTEM_CLOCK.monotonic_s() + 60
    while (node := await provider.describe(token, owner=owner)) is None or not holds(node):
        assert SYSTEM_CLOCK.monotonic_s() < until_s, node
        await SYSTEM_CLOCK.sleep(0.2)
    return node


def test_an_engine_that_ignores_sigterm_is_killed_with_all_it_started(
    inventory: Path, machines: dict[str, Host], owner: str
) -> None:
    async def scenario() -> None:
        ssh = provider(inventory)
        result = await made(ssh, order("t1", owner, argv=SLEEPS))
        assert result.node is not None
        await ssh.stop(result.node.id, grace_s=0.5)
        gone = await until(ssh, "t1", owner, lambda node: node.state is NodeState.GONE)
        assert gone.exit_reason == "stopped"

    asyncio.run(scenario())
    assert [pid for pid in machines["gpu-a"].engines() if b"sleep" in cmdline(pid)] == []


def cmdline(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def test_an_engine_nobody_asks_for_ends_by_itself(inventory: Path, owner: str) -> None:
    async def scenario() -> None:
        ssh = provider(inventory, expires_s=2.0)
        await made(ssh, order("t1", owner))
        # `describe` renews nothing: it is a listing that a controller makes again and again.
        gone = await until(ssh, "t1", owner, lambda node: node.state is NodeState.GONE)
        assert gone.exit_reason.startswith("expired")

    asyncio.run(scenario())


def test_what_a_killed_supervisor_leaves_is_ended_and_said(
    inventory: Path, machines: dict[str, Host], owner: str
) -> None:
    async def scenario() -> None:
        ssh = provider(inventory)
        before = set(machines["gpu-a"].engines())
        await made(ssh, order("t1", owner, argv=("/bin/sleep", "601")))
        started = set(machines["gpu-a"].engines()) - before
        (engine,) = [pid for pid in started if b"601" in cmdline(pid)]
        for pid in started - {engine}:
            os.kill(pid, signal.SIGKILL)
        gone = await until(ssh, "t1", owner, lambda node: node.state is NodeState.GONE)
        assert gone.exit_reason == "its supervisor was killed"
        assert b"601" not in cmdline(engine)

    asyncio.run(scenario())


def test_one_token_is_one_engine_however_many_ask_at_once(inventory: Path, owner: str) -> None:
    async def scenario() -> None:
        askers = [provider(inventory) for _ in range(4)]
        results = await asyncio.gather(*(made(each, order("t1", owner)) for each in askers))
        assert {result.node.id for result in results if result.node is not None} == {f"gpu-a/{owner}/t1"}
        assert len((await askers[0].list_nodes(owner=owner, fleet="demo")).nodes) == 1

    asyncio.run(scenario())


def test_gpus_of_a_machine_are_pinned_once_whoever_owns_the_engines(
    inventory: Path, machines: dict[str, Host], owner: str
) -> None:
    async def scenario() -> None:
        machines["gpu-b"].write_gpus(2)
        ssh = provider(inventory)
        first = await made(ssh, order("t1", owner, "gpu-b", gpu_count=1))
        second = await made(ssh, order("t2", f"{owner}-other", "gpu-b", gpu_count=1))
        third = await made(ssh, order("t3", owner, "gpu-b", gpu_count=1))
        assert first.node is not None
        assert second.node is not None
        assert {*first.node.gpu_indices, *second.node.gpu_indices} == {0, 1}
        assert isinstance(third.error, CapacityError)
        assert third.error.zone == "gpu-b"
        assert "0 of its 2 are free" in third.error.message

    asyncio.run(scenario())


def test_a_program_that_is_not_there_is_named_with_its_machine(inventory: Path, owner: str) -> None:
    result = asyncio.run(made(provider(inventory), order("t1", owner, argv=("no-such-engine",))))
    assert isinstance(result.error, EngineMissingError)
    assert "gpu-a" in result.error.message
    assert "no-such-engine" in result.error.message


def test_secrets_reach_the_engine_and_no_file(inventory: Path, machines: dict[str, Host], owner: str) -> None:
    async def scenario() -> None:
        ssh = provider(inventory)
        shows = ("/bin/sh", "-c", 'test "$TOKEN" = hush-4711 && echo it is there; sleep 600')
        await made(ssh, order("t1", owner, argv=shows, env={"TOKEN": "hush-4711"}))
        until_s = SYSTEM_CLOCK.monotonic_s() + 30
        while (
            "it is there"
            not in (await ssh.read_log(owner=owner, fleet="demo", replica_id="t1", after=None, bytes_max=1000)).text
        ):
            assert SYSTEM_CLOCK.monotonic_s() < until_s
            await SYSTEM_CLOCK.sleep(0.1)

    asyncio.run(scenario())
    written = [path.read_bytes() for path in machines["gpu-a"].state.rglob("*") if path.is_file()]
    assert written
    assert not any(b"hush-4711" in raw for raw in written)


def test_a_machine_that_vanishes_is_said_and_comes_back_with_its_engines(
    inventory: Path, machines: dict[str, Host], owner: str
) -> None:
    host = machines["gpu-b"]
    if not host.namespace:
        pytest.skip("network namespaces are not allowed here, so no cable can be cut")

    async def scenario() -> None:
        ssh = provider(inventory)
        await made(ssh, order("t1", owner, "gpu-b"))
        await made(ssh, order("t2", owner, "gpu-a"))
        assert len((await ssh.list_nodes(owner=owner, fleet="demo")).nodes) == 2
        host.vanish()
        try:
            listing = await ssh.list_nodes(owner=owner, fleet="demo")
            assert listing.is_complete
            assert [each for each in listing.warnings if each.startswith("gpu-b")] == list(listing.warnings) != []
            notices = {node.token: node.notice.kind if node.notice else None for node in listing.nodes}
            assert notices == {"t1": NoticeKind.NOT_READY, "t2": None}
            # Who has never seen it cannot know what is there.
            assert not (await provider(inventory).list_nodes(owner=owner, fleet="demo")).is_complete
            found = {finding.name: finding for finding in await ssh.findings(())}
            assert found["machine gpu-b"].verdict is Verdict.FAIL
            assert "gpu-b" in found["machine gpu-b"].detail
            assert found["machine gpu-a"].verdict is Verdict.OK
        finally:
            host.come_back()
        until_s = SYSTEM_CLOCK.monotonic_s() + 60
        while any(node.notice for node in (await ssh.list_nodes(owner=owner, fleet="demo")).nodes):
            assert SYSTEM_CLOCK.monotonic_s() < until_s
        assert not (await ssh.list_nodes(owner=owner, fleet="demo")).warnings
        assert {node.state for node in (await ssh.list_nodes(owner=owner, fleet="demo")).nodes} == {NodeState.RUNNING}

    asyncio.run(scenario())


def test_an_unknown_host_key_is_refused(inventory: Path, machines: dict[str, Host], tmp_path: Path, owner: str) -> None:
    keygen(tmp_path / "other")
    public = (tmp_path / "other.pub").read_text().split()
    host = machines["gpu-a"]
    (tmp_path / "known").write_text(f"[{host.address}]:{host.port} {public[0]} {public[1]}\n")
    host.extra = {"known_hosts": str(tmp_path / "known")}
    try:
        changed = write_inventory(tmp_path, {"gpu-a": host})
    finally:
        host.extra = {}
    result = asyncio.run(made(provider(changed), order("t1", owner)))
    assert isinstance(result.error, CredentialsError)
    assert "its host key is not the one that is known" in result.error.message
    assert "gpu-a" in result.error.message


@pytest.mark.parametrize("is_another_known", [False, True])
def test_what_a_host_key_error_advises_lets_the_next_call_in(
    machines: dict[str, Host], tmp_path: Path, *, is_another_known: bool
) -> None:
    host, known = machines["gpu-b"], tmp_path / "known hosts"
    if is_another_known:
        keygen(tmp_path / "other")
        kind, key, *_ = (tmp_path / "other.pub").read_text().split()
        known.write_text(f"[{host.address}]:{host.port} {kind} {key}\n")
    with with_entry(host, tmp_path, known_hosts=str(known)) as inventory:
        with pytest.raises(CredentialsError, match="not the one" if is_another_known else "is not known") as caught:
            asyncio.run(provider(inventory).offerings())
        subprocess.run(["/bin/sh", "-c", caught.value.hint.partition("then: ")[2]], check=True, capture_output=True)
        assert asyncio.run(provider(inventory).offerings())


def test_a_refused_login_names_the_key_file_that_is_not_there_and_the_command_to_try(
    machines: dict[str, Host], tmp_path: Path
) -> None:
    host = machines["gpu-b"]
    with (
        with_entry(host, tmp_path, identity_file=str(tmp_path / "lost")) as inventory,
        pytest.raises(CredentialsError, match="Permission denied") as caught,
    ):
        asyncio.run(provider(inventory).offerings())
    assert f"identity_file {tmp_path / 'lost'} is not there" in caught.value.hint
    assert f"ssh -p {host.port} -i {tmp_path / 'lost'} " in caught.value.hint


def test_a_gpu_whose_memory_is_not_said_costs_no_other_of_its_machine(
    inventory: Path, machines: dict[str, Host]
) -> None:
    rows = ("0, GPU-a-0, NVIDIA L40S, [N/A], [N/A], [N/A]", "1, GPU-a-1, NVIDIA L40S, 46068, 45500, [N/A]")
    with showing(machines["gpu-a"], *rows):
        offered = asyncio.run(provider(inventory).offerings())
        found = {finding.name: finding for finding in asyncio.run(provider(inventory).findings(()))}
    assert {each.gpu_count for each in offered if each.zone == "gpu-a"} == {1}
    detail = found["machine gpu-a"].detail
    assert "1 NVIDIA L40S" in detail
    assert "GPU 0: its memory is not said" in detail


def test_a_gpu_that_others_fill_is_not_on_offer_and_one_that_our_engine_fills_is(
    inventory: Path, machines: dict[str, Host], owner: str
) -> None:
    rows = [
        f"{index}, GPU-b-{index}, NVIDIA L40S, 46068, 1200, [N/A]" for index in (6, 7)
    ]  # what earlier tests had were 0 and 1
    free = [row.replace(" 1200,", " 45500,") for row in rows]

    async def scenario() -> None:
        own = provider(inventory)
        with showing(machines["gpu-b"], *free):
            result = await made(own, order("t1", owner, machine="gpu-b", gpu_count=1))
            assert result.node is not None
            with showing(machines["gpu-b"], *rows):
                offered = await own.offerings()
                found = {finding.name: finding for finding in await own.findings(())}
            await own.stop(result.node.id, grace_s=1.0)
        assert {each.gpu_count for each in offered if each.zone == "gpu-b"} == {1}
        (price,) = {each.price_usd_per_hour for each in offered if each.zone == "gpu-b"}
        assert price == pytest.approx(0.75)  # of two
        assert "other people's processes fill GPU 7, which is not on offer" in found["machine gpu-b"].detail

    asyncio.run(scenario())


def test_a_machine_by_two_names_is_found_by_its_gpus(inventory: Path, machines: dict[str, Host]) -> None:
    rows = ("0, GPU-b-0, NVIDIA L40S, 46068, 45500, [N/A]",)
    with showing(machines["gpu-a"], *rows), showing(machines["gpu-b"], *rows):
        findings = asyncio.run(provider(inventory).findings(()))
    (twins,) = [each for each in findings if each.verdict is Verdict.FAIL]
    assert twins.detail == "gpu-a and gpu-b are one machine: they have the same GPUs"


@contextlib.contextmanager
def showing(host: Host, *rows: str) -> Iterator[None]:
    """Have a machine's nvidia-smi print these rows."""
    program = host.directory / "bin" / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(rows) + "\nEND\n")
    try:
        yield
    finally:
        host.write_gpus(host.gpus)


@contextlib.contextmanager
def with_entry(host: Host, directory: Path, **extra: object) -> Iterator[Path]:
    """Give an inventory of one machine whose entry has these keys."""
    host.extra = extra
    try:
        yield write_inventory(directory, {host.name: host})
    finally:
        host.extra = {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts: []", "1 to 1000 machines"),
        ("hosts: [{name: a}]", "`host` is missing"),
        ("hosts: [{host: -oProxyCommand=x}]", "host"),
        ("hosts: [{host: a, pirce: 3}]", "pirce"),
        ("hosts: [{host: a}, {host: a}]", "two machines"),
        ("hosts: [{host: a, name: b}, {host: a, name: c, user: d}]", "b and c are one machine"),
        ("hosts: [{host: a, port: 99999}]", "port"),
        ("{", "no YAML"),
    ],
)
def test_a_wrong_inventory_says_where_and_what(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"inventory\.yaml") as caught:
        asyncio.run(provider(file).offerings())
    assert says in caught.value.message
    assert caught.value.hint


def test_no_machine_at_all_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text("hosts: [{host: 127.0.0.1, port: 9, name: nowhere}]")
    with pytest.raises(ProviderError, match="nowhere cannot be reached"):
        asyncio.run(provider(file).offerings())
