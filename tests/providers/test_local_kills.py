"""Creators killed at random between order, spawn and note: no orphan and no double, counted by the kernel."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.catalogue import Market
from fleetctl.model.node import NodeState
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.orders import create, listed
from fleetctl.testing.samples import EPOCH, node_request
from fleetctl_local import kernel
from fleetctl_local.provider import LocalProvider
from fleetctl_local.registry import Record, Registry
from tests.providers.conftest import tagged_pids

if TYPE_CHECKING:
    from pathlib import Path

# As the controller does: open intents are resolved by their token first, then new replicas are begun.
CREATOR = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.store import IntentState
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.orders import create, listed, listen_port
from fleetctl.testing.samples import node_request, replica
from fleetctl_local.provider import LocalProvider

async def main(path, owner, wanted, name):
    store, provider = SqliteStore(path), LocalProvider()
    for intent in store.open_intents("demo"):
        (made,) = [r for r in store.replicas("demo") if r.id == intent.replica_id]
        if made.lane != name:
            continue
        nodes = await listed(provider, owner=owner, fleet="demo")
        found = [n for n in nodes if n.token == intent.token]
        if found:
            store.settle_intent(intent.token, IntentState.DONE, replica=replace(made, node_id=found[0].id))
        else:
            store.settle_intent(
                intent.token, IntentState.ABANDONED, replica=replace(made, state=ReplicaState.FAILED)
            )
    while sum(r.state.is_live and r.lane == name for r in store.replicas("demo")) < wanted:
        made = replica(f"r{store.next_replica_number('demo')}", lane=name, changed_at=SYSTEM_CLOCK.now())
        request = node_request(
            made.id, owner=owner, replica_id=made.id, argv=("/bin/sleep", "600"),
            port=await listen_port(provider, avoid=frozenset()),
        )
        print("next", flush=True)
        store.begin_replica(made, request, now=SYSTEM_CLOCK.now())
        node = await create(provider, request)
        store.settle_intent(made.id, IntentState.DONE, replica=replace(made, node_id=node.id))
    print("done", flush=True)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
"""

RACER = """
import asyncio, sys
from fleetctl.testing.orders import create, listed, listen_port
from fleetctl.testing.samples import node_request
from fleetctl_local.provider import LocalProvider

async def main(owner):
    provider = LocalProvider()
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(10):
        node = await create(provider, node_request(f"t-{n}", owner=owner, argv=("/bin/sleep", "600")))
        print(node.id, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def tokens_of(owner: str) -> Counter[str]:
    return Counter(kernel.environment(pid)["FLEETCTL_NODE_TOKEN"] for pid in tagged_pids(owner))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_creators_killed_at_random_leave_no_orphan_and_no_double(owner: str, tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "state.db", Random(seed)
    SqliteStore(path).close()
    kills = 0
    wanted = {"short": 12, "long": 12}
    done: set[str] = set()
    while done != set(wanted):
        running = {n: start(CREATOR, str(path), owner, str(wanted[n]), n) for n in wanted if n not in done}
        # Two at once, each with its lane, killed within some milliseconds of where a replica of theirs begins.
        for creator in running.values():
            assert creator.stdout is not None
            printed = [creator.stdout.readline() for _ in range(rng.randint(1, 3))]
            await SYSTEM_CLOCK.sleep(rng.uniform(0.0, 0.012))
            kills += creator.poll() is None and "done\n" not in printed
            creator.kill()
        for name, creator in running.items():
            rest, _ = await asyncio.to_thread(creator.communicate, timeout=30)
            assert creator.returncode in (0, -signal.SIGKILL)
            if "done" in rest or creator.returncode == 0:
                done.add(name)
    assert done == set(wanted)
    assert kills >= 8
    store = SqliteStore(path)
    live = [r for r in store.replicas("demo") if r.state.is_live]
    nodes = await listed(LocalProvider(), owner=owner, fleet="demo")
    assert Counter(r.lane for r in live) == wanted
    assert tokens_of(owner) == Counter(r.id for r in live)
    assert sorted(n.token for n in nodes if n.state is NodeState.RUNNING) == sorted(r.id for r in live)
    assert store.open_intents("demo") == ()
    store.close()


async def test_four_processes_creating_the_same_tokens_at_once_make_one_node_each(owner: str) -> None:
    racers = [start(RACER, owner) for _ in range(4)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    answers = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        printed, _ = await asyncio.to_thread(racer.communicate, timeout=30)
        assert racer.returncode == 0
        answers.append(printed.split())
    assert answers == [[f"local-t-{n}" for n in range(10)]] * 4
    assert tokens_of(owner) == Counter({f"t-{n}": 1 for n in range(10)})


async def test_a_process_without_its_record_is_found_by_its_tags(local: LocalProvider, owner: str) -> None:
    """As after a creator's death between spawn and note; and as after somebody's `rm -r` of the registry."""
    request = node_request("t-1", owner=owner, argv=("/bin/sleep", "600"), market=Market.SPOT)
    made = await create(local, request)
    for path in Registry().directory.iterdir():
        path.unlink()
    (found,) = await listed(LocalProvider(), owner=owner, fleet="demo")
    assert (found.id, found.port, found.market, found.replica_id) == (made.id, made.port, made.market, made.replica_id)
    for path in Registry().directory.iterdir():
        path.unlink()
    assert (await create(LocalProvider(), request)).id == made.id
    assert tokens_of(owner) == Counter({"t-1": 1})
    await LocalProvider().stop(made.id, grace_s=5)


async def test_an_order_that_was_never_carried_out_is_no_node_and_may_be_given_again(
    local: LocalProvider, owner: str
) -> None:
    registry = Registry()
    with registry.locked():
        registry.put(
            Record(
                token="t-1", owner=owner, fleet="demo", replica_id="r1", market=Market.SPOT, host="127.0.0.1",  # noqa: S106
                port=20001, created_at=EPOCH,
            )
        )  # fmt: skip
    assert await listed(local, owner=owner, fleet="demo") == ()
    assert list(registry.directory.iterdir()) == []
    node = await create(local, node_request("t-1", owner=owner, argv=("/bin/sleep", "600")))
    assert (await listed(local, owner=owner, fleet="demo")) == (node,)


async def test_a_torn_record_is_rewritten_from_the_process(local: LocalProvider, owner: str) -> None:
    node = await create(local, node_request("t-1", owner=owner, argv=("/bin/sleep", "600")))
    (Registry().directory / "t-1.json").write_text('{"token": "t-')
    assert (await listed(LocalProvider(), owner=owner, fleet="demo"))[0].id == node.id


@pytest.mark.parametrize("how", ["stop", "interrupt"])
async def test_a_promise_is_kept_although_the_promiser_is_killed(owner: str, how: str) -> None:
    promiser = start(
        f"""
import asyncio, sys
from fleetctl.model.catalogue import Market
from fleetctl.testing.orders import create, listed, listen_port
from fleetctl.testing.samples import node_request
from fleetctl_local.provider import LocalProvider
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
async def main():
    provider = LocalProvider()
    request = node_request("t-1", owner={owner!r}, argv=(sys.executable, "-c", DEAF), market=Market.SPOT)
    node = await create(provider, request)
    await (provider.stop(node.id, grace_s=1.0) if {how!r} == "stop" else provider.interrupt(node.id, notice_s=1.0))
    print("promised", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""
    )
    assert promiser.stdout is not None
    assert promiser.stdout.readline() == "promised\n"
    assert tokens_of(owner) == Counter({"t-1": 1})
    os.kill(promiser.pid, signal.SIGKILL)
    await asyncio.to_thread(promiser.communicate, timeout=10)
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 20
    while tagged_pids(owner):  # nobody lists meanwhile
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, "the node outlived its deadline"
        await SYSTEM_CLOCK.sleep(0.05)
    (node,) = await listed(LocalProvider(), owner=owner, fleet="demo")
    assert node.exit_reason == {"stop": "stopped", "interrupt": "interrupted"}[how]


async def test_a_restarted_controllers_listing_is_the_old_ones(local: LocalProvider, owner: str) -> None:
    made = [
        await create(local, node_request(f"t-{n}", owner=owner, replica_id=f"r{n}", argv=("/bin/sleep", "600")))
        for n in range(3)
    ]
    before = await listed(local, owner=owner, fleet="demo")
    assert sorted(before, key=lambda n: n.token) == made
    assert await listed(LocalProvider(), owner=owner, fleet="demo") == before
    await LocalProvider().stop(made[0].id, grace_s=5)
