"""The local provider with real processes, seen through its port and through the kernel."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl import free_ports as ports
from fleetctl.catalogue.known import load_catalogue
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import CapacityError, ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeRequest, NodeState
from fleetctl.paths import FleetPaths, state_dir
from fleetctl.plugins import load_provider
from fleetctl.testing.orders import create, listed, listen_port
from fleetctl.testing.samples import node_request
from fleetctl_local import kernel
from fleetctl_local.provider import LocalProvider
from fleetctl_local.registry import Registry
from tests.providers.conftest import tagged_pids
from tests.providers.gpu_readings import gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.provider import Interruptions, Provider

DEADLINE_S = 20.0
SLEEP = (sys.executable, "-c", "import signal; signal.pause()")
DEAF = (
    sys.executable, "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\nwhile True: signal.pause()",
)  # fmt: skip
# As vLLM: a leader with children in its group, which dies of SIGTERM and leaves them to themselves.
FAMILY = (sys.executable, "-c", """
import os, signal, subprocess, sys
deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\\nwhile True: signal.pause()"
subprocess.Popen([sys.executable, "-c", deaf])
subprocess.Popen([sys.executable, "-c", deaf], env={})
subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
print("family", flush=True)
signal.pause()
""")  # fmt: skip


def order(owner: str, token: str = "t-1", **changes: object) -> NodeRequest:  # noqa: S107  # an id
    return node_request(token, **{"owner": owner, "argv": SLEEP, "market": Market.SPOT, "notice_s": 120.0, **changes})


async def only(provider: LocalProvider, owner: str) -> Node:
    (node,) = await listed(provider, owner=owner, fleet="demo")
    return node


async def until_gone(provider: LocalProvider, owner: str) -> Node:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
    while SYSTEM_CLOCK.monotonic_s() < deadline_s:
        node = await only(provider, owner)
        if node.state is NodeState.GONE:
            return node
        await SYSTEM_CLOCK.sleep(0.02)
    raise AssertionError("the node is still there")


async def eventually(claim: Callable[[], bool]) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
    while not claim():
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, "never came true"
        await SYSTEM_CLOCK.sleep(0.02)


async def logged(owner_log: Path, word: str) -> None:
    await eventually(lambda: owner_log.exists() and word in owner_log.read_text())


def log_of(replica: str = "r1") -> Path:
    return FleetPaths(fleet="demo").logs / f"{replica}.log"


def leader_of() -> kernel.Ident:
    record = Registry().get("t-1")
    assert record is not None
    assert record.leader is not None
    return record.leader


def family_of(owner: str) -> list[kernel.Ident]:
    return kernel.members(leader_of(), tags={"FLEETCTL_OWNER": owner, "FLEETCTL_NODE_TOKEN": "t-1"})


def test_is_reached_by_its_entry_point_and_implements_both_ports() -> None:
    loaded = load_provider("local")
    assert isinstance(loaded, LocalProvider)
    provider: Provider = loaded
    interruptible: Interruptions = loaded
    assert provider.name == "local"
    assert interruptible is loaded


async def test_offerings_hold_the_list_prices_and_a_notice_on_spot_alone(local: LocalProvider) -> None:
    sold = [offering for offering in await local.offerings() if offering.is_emulated]
    prices = {(o.instance_type, o.gpu, o.gpu_count): o.price_usd_per_hour for o in sold if o.market is Market.ON_DEMAND}
    assert prices["p5.4xlarge", "H100", 1] == 6.88
    assert prices["p5.48xlarge", "H100", 8] == 55.04
    assert prices["g6e.xlarge", "L40S", 1] == 1.861
    assert prices["p6-b200.48xlarge", "B200", 8] == 113.9328
    assert prices["p6-b300.48xlarge", "B300", 8] == 142.416
    assert prices["g7e.2xlarge", "RTX PRO 6000 Server", 1] == 3.36312
    assert {gpu for _, gpu, _ in prices} <= load_catalogue().gpus.keys()
    assert {o.zone for o in sold} == {"local-a", "local-b", "local-c"}
    assert len({o.key for o in sold}) == len(sold)
    assert {o.notice_s for o in sold if o.market is Market.SPOT} == {120.0}
    assert {o.notice_s for o in sold if o.market is Market.ON_DEMAND} == {0.0}
    by_key = {(o.instance_type, o.zone, o.market): o.price_usd_per_hour for o in sold}
    assert all(by_key[t, z, Market.SPOT] < by_key[t, z, Market.ON_DEMAND] for t, z, _ in by_key)


async def test_a_node_runs_in_its_own_session_with_its_log_and_tags(local: LocalProvider, owner: str) -> None:
    show = "import os, sys; print(os.environ['X'], os.environ.get('FLEETCTL_LISTEN_FDS'), flush=True); sys.stdin.read(); import signal; signal.pause()"
    os.environ["FLEETCTL_LISTEN_FDS"] = "7"
    try:
        node = await create(local, order(owner, argv=(sys.executable, "-c", show), env={"X": "its own"}))
    finally:
        del os.environ["FLEETCTL_LISTEN_FDS"]
    assert (node.state, node.token, node.owner, node.fleet, node.replica_id) == (
        NodeState.RUNNING, "t-1", owner, "demo", "r1",
    )  # fmt: skip
    (pid,) = tagged_pids(owner, {"FLEETCTL_FLEET": "demo", "FLEETCTL_NODE_TOKEN": "t-1", "FLEETCTL_REPLICA": "r1"})
    assert os.getsid(pid) == pid == os.getpgid(pid)
    tags = kernel.environment(pid)
    assert tags["FLEETCTL_STATE_DIR"] == str(state_dir())
    assert "FLEETCTL_STATE" not in tags  # to a fleetctl that is run in there it would be an address of its own state
    await logged(log_of(), "its own None")
    assert stat.S_IMODE(log_of().stat().st_mode) == 0o600
    assert await only(local, owner) == node


async def test_secrets_in_the_environment_are_not_in_the_registry(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner, env={"VLLM_API_KEY": "sk-very-secret"}))
    kept = "".join(path.read_text() for path in Registry().directory.iterdir())
    assert "t-1" in kept
    assert "very-secret" not in kept


async def test_the_same_token_yields_the_same_node_from_any_provider_object(local: LocalProvider, owner: str) -> None:
    first = await create(local, order(owner))
    assert await create(local, order(owner)) == first
    assert await create(LocalProvider(), order(owner)) == first
    assert len(tagged_pids(owner)) == 1


async def test_a_token_of_an_ended_node_starts_nothing_new(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner, argv=(sys.executable, "-c", "raise SystemExit(3)")))
    ended = await until_gone(local, owner)
    assert ended.exit_reason == "exit 3"
    assert (await create(local, order(owner))).state is NodeState.GONE
    assert tagged_pids(owner) == []


async def test_a_token_belongs_to_one_replica(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner))
    with pytest.raises(ProviderError, match="already made r1"):
        await create(local, order(owner, replica_id="r2"))


async def test_a_program_that_is_not_there_is_an_error_and_leaves_no_node(local: LocalProvider, owner: str) -> None:
    with pytest.raises(ProviderError, match="/nonexistent/engine") as caught:
        await create(local, order(owner, argv=("/nonexistent/engine",)))
    assert "doctor" in caught.value.hint
    assert await listed(local, owner=owner, fleet="demo") == ()
    assert (await create(local, order(owner))).state is NodeState.RUNNING


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "example.com"])  # noqa: S104  # refused, which is the point
async def test_an_engine_may_listen_on_loopback_alone(local: LocalProvider, owner: str, host: str) -> None:
    with pytest.raises(ProviderError, match="cannot listen"):
        await create(local, order(owner, host=host))


async def test_a_token_that_leads_out_of_the_registry_is_refused(local: LocalProvider, owner: str) -> None:
    with pytest.raises(ProviderError, match="file name"):
        await create(local, order(owner, "../../escape"))
    await local.stop("local-../../escape", grace_s=0)


async def test_nodes_are_listed_by_owner_and_fleet(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner, "t-1"))
    await create(local, order(owner, "t-2", fleet="other"))
    await create(local, order(f"{owner}-stranger", "t-3"))
    try:
        assert [n.token for n in await listed(local, owner=owner, fleet="demo")] == ["t-1"]
        assert [n.token for n in await listed(local, owner=owner, fleet="other")] == ["t-2"]
    finally:
        await local.stop("local-t-3", grace_s=0)
        await eventually(lambda: not tagged_pids(f"{owner}-stranger"))


async def test_a_crash_is_told_by_its_status_and_kept(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner))
    os.kill(leader_of().pid, signal.SIGKILL)
    node = await until_gone(local, owner)
    assert node.exit_reason == "signal 9"
    assert kernel.look(leader_of().pid) is None  # reaped, no zombie stays
    assert (await only(LocalProvider(), owner)).exit_reason == "signal 9"


async def test_another_process_reads_a_zombies_status_before_its_parent_does(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner, argv=(sys.executable, "-c", "raise SystemExit(7)")))
    pid = leader_of().pid
    await eventually(lambda: (seen := kernel.look(pid)) is not None and seen.is_zombie)
    seen = kernel.look(pid)
    assert seen is not None
    assert os.waitstatus_to_exitcode(seen.wait_status or 0) == 7
    assert (await until_gone(local, owner)).exit_reason == "exit 7"


async def test_a_stopped_node_ends_and_says_so(local: LocalProvider, owner: str) -> None:
    node = await create(local, order(owner))
    await local.stop(node.id, grace_s=30)
    assert (await only(local, owner)).state in (NodeState.STOPPING, NodeState.GONE)
    assert (await until_gone(local, owner)).exit_reason == "stopped"
    await local.stop(node.id, grace_s=30)
    await local.stop("local-never-was", grace_s=30)
    await local.stop("i-0abc", grace_s=30)


async def test_a_node_deaf_to_sigterm_is_killed_after_its_grace(local: LocalProvider, owner: str) -> None:
    node = await create(local, order(owner, argv=DEAF))
    await logged(log_of(), "deaf")
    await local.stop(node.id, grace_s=0.3)
    assert (await until_gone(local, owner)).exit_reason == "stopped"


async def test_a_second_stop_can_only_shorten_the_grace(local: LocalProvider, owner: str) -> None:
    node = await create(local, order(owner, argv=DEAF))
    await logged(log_of(), "deaf")
    await local.stop(node.id, grace_s=600)
    await local.stop(node.id, grace_s=900)
    record = Registry().get("t-1")
    assert record is not None
    assert record.stop_deadline is not None
    assert (record.stop_deadline - SYSTEM_CLOCK.now()).total_seconds() <= 600
    await local.stop(node.id, grace_s=0)
    await until_gone(local, owner)


async def test_no_member_of_a_nodes_family_survives_it(local: LocalProvider, owner: str) -> None:
    """Not the one deaf to SIGTERM, not the one without the tags, not the one in a session of its own."""
    node = await create(local, order(owner, argv=FAMILY))
    await logged(log_of(), "family")
    family = family_of(owner)
    assert len(family) == 4
    await local.stop(node.id, grace_s=30)
    await until_gone(local, owner)
    await eventually(lambda: not any(kernel.is_alive(member) for member in family))


async def test_the_family_of_a_killed_leader_is_swept_by_the_next_listing(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner, argv=FAMILY))
    await logged(log_of(), "family")
    family = family_of(owner)
    os.kill(leader_of().pid, signal.SIGKILL)
    assert (await until_gone(local, owner)).exit_reason == "signal 9"
    await eventually(lambda: not any(kernel.is_alive(member) for member in family))


async def test_the_family_of_a_leader_that_nobody_recorded_is_swept_too(local: LocalProvider, owner: str) -> None:
    await create(local, order(owner, argv=FAMILY))
    await logged(log_of(), "family")
    leader, family = leader_of(), family_of(owner)
    (Registry().directory / "t-1.json").unlink()
    os.kill(leader.pid, signal.SIGKILL)
    await eventually(lambda: not kernel.is_alive(leader))
    assert len(tagged_pids(owner)) == 2
    # The one in a session of its own looks like a leader, so it may be adopted first; then it is nobody's engine.
    for node in await listed(LocalProvider(), owner=owner, fleet="demo"):
        await local.stop(node.id, grace_s=0)
    await eventually(lambda: tagged_pids(owner) == [])
    for member in family:  # without record, leader and tags, nothing tells the third from a stranger's process
        kernel.send(member, signal.SIGKILL)


async def test_an_interrupted_node_shows_its_notice_and_is_taken_at_the_deadline(
    local: LocalProvider, owner: str
) -> None:
    node = await create(local, order(owner, argv=DEAF))
    await local.interrupt(node.id, notice_s=1.5)
    noticed = await only(local, owner)
    assert noticed.state is NodeState.RUNNING
    assert noticed.notice is not None
    assert noticed.notice.deadline is not None
    ended = await until_gone(local, owner)
    assert SYSTEM_CLOCK.now() >= noticed.notice.deadline
    assert (ended.exit_reason, ended.notice) == ("interrupted", noticed.notice)


async def test_a_node_that_left_before_its_deadline_was_not_interrupted(local: LocalProvider, owner: str) -> None:
    node = await create(local, order(owner))
    await local.interrupt(node.id, notice_s=60)
    await local.stop(node.id, grace_s=30)
    assert (await until_gone(local, owner)).exit_reason == "stopped"


async def test_without_notice_a_node_is_taken_at_once(local: LocalProvider, owner: str) -> None:
    node = await create(local, order(owner, argv=DEAF))
    await local.interrupt(node.id, notice_s=0)
    assert (await until_gone(local, owner)).exit_reason == "interrupted"


async def test_only_living_spot_nodes_can_be_interrupted(local: LocalProvider, owner: str) -> None:
    node = await create(local, order(owner, market=Market.ON_DEMAND))
    with pytest.raises(ProviderError, match="only spot"):
        await local.interrupt(node.id, notice_s=0)
    with pytest.raises(ProviderError, match="no living node"):
        await local.interrupt("local-absent", notice_s=0)
    assert (await only(local, owner)).state is NodeState.RUNNING


async def test_a_promise_whose_reclaimer_was_killed_is_carried_on_by_the_next_listing(
    local: LocalProvider, owner: str
) -> None:
    node = await create(local, order(owner, argv=DEAF))
    await logged(log_of(), "deaf")
    await local.stop(node.id, grace_s=1.0)
    record = Registry().get("t-1")
    assert record is not None
    assert record.stopper is not None
    os.kill(record.stopper.pid, signal.SIGKILL)
    assert (await until_gone(local, owner)).exit_reason == "stopped"


async def test_free_ports_are_free_distinct_and_out_of_reach_of_outgoing_connections(
    local: LocalProvider, owner: str
) -> None:
    first = await listen_port(local, avoid=frozenset())
    second = await listen_port(local, avoid=frozenset({first}))
    assert first != second
    await create(local, order(owner, port=first))
    assert await listen_port(local, avoid=frozenset()) != first
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", second))
        listener.listen()
        assert await listen_port(local, avoid=frozenset()) not in (first, second)
    low, high = (int(n) for n in ports._RANGE_FILE.read_text().split())
    assert not low <= first <= high


async def test_ended_nodes_are_forgotten_after_an_hour(local: LocalProvider, owner: str) -> None:
    from datetime import timedelta

    from fleetctl.testing.clocks import ManualClock

    clock = ManualClock(SYSTEM_CLOCK.now())
    local = LocalProvider(clock)
    await create(local, order(owner, argv=(sys.executable, "-c", "")))
    await until_gone(local, owner)
    clock.jump(timedelta(minutes=59).total_seconds())
    assert (await only(local, owner)).state is NodeState.GONE
    clock.jump(timedelta(minutes=2).total_seconds())
    assert await listed(local, owner=owner, fleet="demo") == ()
    assert list(Registry().directory.iterdir()) == []


async def test_gpus_are_pinned_to_each_node_and_free_again_when_it_has_ended(owner: str) -> None:
    show = "import os, signal; print('gpus', os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); signal.pause()"
    local = LocalProvider(gpus=gpus(3))
    argv = (sys.executable, "-c", show)
    pair = await create(local, order(owner, "t-1", replica_id="short-1", argv=argv, gpu_count=2))
    one = await create(local, order(owner, "t-2", replica_id="short-2", argv=argv, gpu_count=1))
    none = await create(local, order(owner, "t-3", replica_id="short-3", argv=argv, gpu_count=0))
    assert [node.gpu_indices for node in (pair, one, none)] == [(0, 1), (2,), ()]
    assert len({node.machine_id for node in (pair, one, none)}) == 1
    await logged(log_of("short-1"), "gpus 0,1")
    await logged(log_of("short-2"), "gpus 2")
    with pytest.raises(CapacityError, match="1 GPU is needed, and 0 of this machine's 3 are free"):
        await create(local, order(owner, "t-4", replica_id="short-4", gpu_count=1))
    await local.stop(one.id, grace_s=5)
    await eventually(lambda: not tagged_pids(owner, {"FLEETCTL_REPLICA": "short-2"}))
    await listed(local, owner=owner, fleet="demo")
    assert (await create(local, order(owner, "t-5", replica_id="short-5", gpu_count=1))).gpu_indices == (2,)


async def test_a_machine_without_gpus_pins_none_to_emulated_ones(owner: str) -> None:
    assert (await create(LocalProvider(gpus=gpus(0)), order(owner, gpu_count=8))).gpu_indices == ()


async def test_a_batch_has_a_result_for_each_order(local: LocalProvider, owner: str) -> None:
    orders = (
        order(owner, "t-1"),
        order(owner, "t-2", replica_id="short-2", argv=("/nonexistent/engine",)),
        order(owner, "t-3", replica_id="short-3"),
    )
    good, bad, also_good = await local.create(orders, resolve_secrets=dict)
    assert good.node is not None
    assert also_good.node is not None
    assert isinstance(bad.error, ProviderError)


async def test_secrets_are_resolved_at_the_start_and_kept_nowhere(local: LocalProvider, owner: str) -> None:
    show = "import os, signal; print('token', os.environ['HF_TOKEN'], flush=True); signal.pause()"
    request = order(owner, argv=(sys.executable, "-c", show), env={"HF_TOKEN": "env:SOMEWHERE"})
    await local.create((request,), resolve_secrets=lambda env: {**env, "HF_TOKEN": "very-secret"})
    await logged(log_of(), "token very-secret")
    assert "very-secret" not in "".join(path.read_text() for path in Registry().directory.iterdir())


async def test_what_an_engine_wrote_last_is_kept_with_its_end_and_read_on_request(
    local: LocalProvider, owner: str
) -> None:
    script = "import sys; print('one'); print('error: no such flag', file=sys.stderr); raise SystemExit(2)"
    await create(local, order(owner, argv=(sys.executable, "-c", script)))
    node = await until_gone(local, owner)
    assert "error: no such flag" in node.log_tail
    logs = local.capabilities.logs
    assert logs is not None
    chunk = await logs.read_log(owner=owner, fleet=node.fleet, replica_id=node.replica_id, after=None, bytes_max=4096)
    assert "error: no such flag" in chunk.text
    again = await logs.read_log(
        owner=owner, fleet=node.fleet, replica_id=node.replica_id, after=chunk.end, bytes_max=4096
    )
    assert (again.text, again.end) == ("", chunk.end)


async def test_an_engine_that_starts_begins_its_log_anew(local: LocalProvider, owner: str) -> None:
    def saying(words: str) -> tuple[str, ...]:
        return (sys.executable, "-c", f"print('{words}'); raise SystemExit(2)")

    await create(local, order(owner, "t-1", argv=saying("error: unrecognized arguments")))
    await until_gone(local, owner)
    await create(local, order(owner, "t-2", argv=saying("killed")))
    await eventually_gone(local, owner, "t-2")
    ends = {node.token: node.log_tail for node in await listed(local, owner=owner, fleet="demo")}
    assert ends == {"t-1": "error: unrecognized arguments\n", "t-2": "killed\n"}
    assert log_of().with_name("r1.log.1").read_text() == "error: unrecognized arguments\n"


async def eventually_gone(local: LocalProvider, owner: str, token: str) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
    while True:
        node = await local.describe(token, owner=owner)
        if node is not None and node.state is NodeState.GONE:
            return
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        await SYSTEM_CLOCK.sleep(0.02)


LEAVING = """
import os, signal, socket, tempfile
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(f"{tempfile.gettempdir()}/0af9f88e-35d3-4530-94d6-99e39d2e88da")
print(tempfile.gettempdir(), os.environ["TORCHINDUCTOR_CACHE_DIR"], flush=True)
signal.pause()
"""


def sockets_in(directory: str) -> list[str] | None:
    """Return the names of the sockets in a directory; None: it is not there."""
    path = Path(directory)
    return [each.name for each in path.iterdir() if each.is_socket()] if path.exists() else None


async def test_what_a_killed_engine_left_in_its_temporary_directory_is_removed(
    local: LocalProvider, owner: str
) -> None:
    node = await create(local, order(owner, argv=(sys.executable, "-c", LEAVING)))
    await logged(log_of(), "fleetctl-node-")
    directory, kernels = log_of().read_text().split()
    assert sockets_in(directory) == ["0af9f88e-35d3-4530-94d6-99e39d2e88da"]
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700  # noqa: PTH116  # Path's blocks just as well
    assert not kernels.startswith(directory)
    (leader,) = tagged_pids(owner)
    os.kill(leader, signal.SIGKILL)
    await until_gone(local, owner)
    assert sockets_in(directory) is None
    assert node.exit_reason == ""


async def test_a_temporary_directory_that_a_lane_names_is_its_own(
    local: LocalProvider, owner: str, tmp_path: Path
) -> None:
    show = "import os, signal; print(os.environ['TMPDIR'], flush=True); signal.pause()"
    await create(local, order(owner, argv=(sys.executable, "-c", show), env={"TMPDIR": str(tmp_path)}))
    await logged(log_of(), str(tmp_path))


PARENT = """
import os, signal
if os.fork() == 0:
    os._exit(3)
if os.fork() == 0:
    signal.pause()
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGKILL)
print("parent", flush=True)
signal.pause()
"""


async def test_the_processes_of_a_node_are_told_with_how_those_ended_that_nobody_waited_for(
    local: LocalProvider, owner: str
) -> None:
    await create(local, order(owner, argv=(sys.executable, "-c", PARENT)))
    await logged(log_of(), "parent")
    shown = local.capabilities.processes
    assert shown is not None
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
    while True:
        found = (await shown.processes(owner=owner, fleet="demo"))["t-1"]
        ends = sorted(process.exit_reason for process in found)
        if ends == ["", "", "exit 3", "signal 9"]:
            break
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, found
    assert [process.is_leader for process in found].count(True) == 1
    assert all(process.name.startswith("python") for process in found)
    assert await shown.processes(owner=owner, fleet="other") == {}


async def test_processes_without_an_environment_are_not_waited_for_once_they_have_been_there_for_long(
    local: LocalProvider, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each login's sshd is such a process: with thirty of them every create took three seconds."""
    bare = without_environment()
    try:
        await eventually(lambda: kernel.environment(bare.pid) == {} and b"sleep" in cmdline(bare.pid))
        monkeypatch.setattr(kernel, "_NEWBORN_S", 0.0)
        waited: list[float] = []
        monkeypatch.setattr(type(SYSTEM_CLOCK), "sleep_blocking", lambda _, seconds: waited.append(seconds))
        node = await create(local, order(owner))
        assert waited == []
        await local.stop(node.id, grace_s=0)
    finally:
        bare.kill()
        bare.wait()


def without_environment() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sleep", "60"], env={}, start_new_session=True)


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
