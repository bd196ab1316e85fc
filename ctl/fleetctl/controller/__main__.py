"""`python -m fleetctl.controller FLEET`: keeps one fleet until it is down."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.controller import api
from fleetctl.controller.http import GatewayClients, HttpEngineClient
from fleetctl.controller.log_upkeep import keep_logs
from fleetctl.controller.loop import Controller
from fleetctl.controller.publish import table_epoch
from fleetctl.controller.several_gateways import SeveralGateways
from fleetctl.controller.store_access import ThreadedAccess
from fleetctl.controller.world import World
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.environment import STATE_URL
from fleetctl.errors import DiskFullError, FencedError, FleetctlError, LockHeldError, NotFoundError, StateError
from fleetctl.files import raise_descriptor_limit
from fleetctl.paths import FleetPaths
from fleetctl.plugins import configured, host_within, load_engine, load_host_within, load_policy, load_provider
from fleetctl.ports.host import COMMAND_LOCK
from fleetctl.ports.runtime import RemoteGateways
from fleetctl.printable import log_to_stderr
from fleetctl.state.lease_watch import LeaseHeldError
from fleetctl.state.opening import open_store
from fleetctl.unix_server import UnixServer
from fleetctl.variables import fleet_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.environment import FleetEnvironment
    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import Profile
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.host import Host
    from fleetctl.ports.lease import Lease
    from fleetctl.ports.provider import Provider
    from fleetctl.ports.runtime import ControllerRuntime
    from fleetctl.ports.store import StateStore
    from fleetctl.state.opening import OpenStore

_log = logging.getLogger("fleetctl.controller")
# SQLite's own wait for a lock; a write that does not get it is tried again, and the status says so meanwhile.
_BUSY_S = 2.0
_AGAIN_S = 1.0
_BEAT_S = 0.5
# Some 10 MB of the youngest, should all of it be cycles. With 1,200 replicas on Kubernetes the longest stretch of a loop took 0.60 s
# of a processor by the defaults, nearly all of it one collection; like this no collection took more than 0.18 s (two shared cores, 2026-11-28).
_GC_THRESHOLDS = (50_000, 10, 10)


def main() -> int:
    """Keep one fleet until it is down or we are told to go; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fleetctl.controller", description=__doc__)
    parser.add_argument("fleet", help="name of the fleet")
    parser.add_argument("--on-host", default=host_within(os.environ), help="the fleetctl.host plugin it is run by")
    arguments = parser.parse_args()
    log_to_stderr()
    raise_descriptor_limit()  # a connection is kept to each replica
    host = load_host_within(arguments.on_host)
    runtime = host.controller_runtime(arguments.fleet)
    try:
        runtime.claim()
    except LockHeldError as exc:
        _log.info("fleet %s has its controller: %s; nothing to do", arguments.fleet, exc.message)
        return 0
    _collect_seldom()
    try:
        is_forgotten = asyncio.run(_keep(arguments.fleet, host, runtime))
    except LeaseHeldError as exc:
        _log.info("%s; nothing to do", exc.message)
        return 0
    except FleetctlError as exc:
        _log.error("%s%s", exc.message, f" ({exc.hint})" if exc.hint else "")
        return exc.exit_code
    finally:
        runtime.release()
    if is_forgotten:
        _clean_up(host, arguments.fleet)
    return 0


def _collect_seldom() -> None:
    """Have the garbage collector look at the whole heap seldom: nothing else is done meanwhile.

    The JSON of a listing of a thousand nodes has hundreds of thousands of objects, and frees them without it; by its defaults each
    second's one has it look for cycles among all that there is.
    """
    gc.freeze()  # what was imported stays
    gc.set_threshold(*_GC_THRESHOLDS)


def _clean_up(host: Host, fleet: str) -> None:
    """Remove what is left of a fleet's files where no command does: the `down` that asked may have gone long ago."""
    try:
        with host.exclusive(fleet, operation=COMMAND_LOCK, wait_s=0.0):
            store = _open_store()
            if store.fleet(fleet) is None:
                host.clean_up(fleet)
            store.close()
    except FleetctlError as exc:
        _log.info("left to the command that is under way: %s", exc.message)


async def _keep(fleet: str, host: Host, runtime: ControllerRuntime) -> bool:
    """Keep a fleet until it is down, or we are told to go; return whether it is forgotten."""
    paths = FleetPaths(fleet=fleet)
    heart = _Heart(runtime)
    is_forgotten = False
    beating = asyncio.get_running_loop().create_task(heart.beat())
    store, reader = _open_store(), _open_store()
    try:
        desired = store.fleet(fleet)
        if desired is None:
            raise NotFoundError(f"there is no fleet {fleet!r} to keep", hint="bring one up: fleetctl up PROFILE")
        lease = await _acquire_lease(store, fleet, runtime, paths)
        _log.info("keeping fleet %s under the lease of epoch %d", fleet, lease.epoch)
        leased = store.under(lease)
        access = ThreadedAccess(leased, reader.under(lease))
        provider, engine_of = _provider_of(desired.profile), lru_cache(load_engine)
        if host.environment(fleet) is None:
            # An earlier version brought it up: what its controller was started with is kept from now on.
            host.keep_environment(fleet, _own_environment(desired, provider, engine_of))
        async with AsyncExitStack() as stack:
            gateway_host = runtime.gateway_host(SYSTEM_CLOCK)
            remote = gateway_host if isinstance(gateway_host, RemoteGateways) else None
            if remote is not None:
                await asyncio.to_thread(remote.lead, lease.epoch)
            clients = GatewayClients(paths, remote=remote, epoch=lease.epoch)
            stack.push_async_callback(clients.close)
            gateways = SeveralGateways(clients.of, are_remote=remote is not None)
            world = World(
                fleet=fleet,
                paths=paths,
                store=WriteBehindStore(access, fleet, SYSTEM_CLOCK),
                epoch=lease.epoch,
                provider=provider,
                choice=desired.profile.provider_choice,
                provider_of=_provider_of,
                engine_of=engine_of,
                policy_of=lru_cache(load_policy),
                engines=await stack.enter_async_context(HttpEngineClient()),
                gateway=gateways,
                gateways=gateways,
                gateway_host=gateway_host,
                clock=SYSTEM_CLOCK,
                pid=os.getpid(),
                place=runtime.place(),
                variable=partial(_variable, host, fleet),
                made_progress=heart.beat_once,
            )
            while await _serve(world, runtime, leased, heart):
                if _is_forgotten(leased, fleet):
                    _forget_environment(host, leased, fleet)
                    is_forgotten = True
                    break
        _release(leased)
    finally:
        beating.cancel()
        store.close()
        reader.close()
    return is_forgotten


def _provider_of(profile: Profile) -> Provider:
    return configured(load_provider(profile.provider), profile.provider_settings)


def _open_store() -> OpenStore:
    return open_store(os.environ.get(STATE_URL, ""), busy_timeout_s=_BUSY_S)


def _own_environment(desired: Desired, provider: Provider, engine_of: Callable[[str], Engine]) -> FleetEnvironment:
    return fleet_environment(desired.profile, desired.plan, provider=provider, engine_of=engine_of, environ=os.environ)


def _variable(host: Host, fleet: str, name: str) -> str:
    """Return what a variable held where `up` last ran; read anew each time, so that another `up` changes a secret."""
    kept = host.environment(fleet)
    return kept.variables.get(name, "") if kept is not None else ""


class _Heart:
    """Leaves a sign of life every half second while the loop turns and its ticks end."""

    def __init__(self, runtime: ControllerRuntime) -> None:
        self._runtime = runtime
        self.is_progressing: Callable[[], bool] = lambda: True

    async def beat(self) -> None:
        """Beat for ever."""
        while True:
            self.beat_once()
            await SYSTEM_CLOCK.sleep(_BEAT_S)

    def beat_once(self) -> None:
        """Beat now: for work that keeps the loop for longer than a beat takes to come."""
        if self.is_progressing():
            self._runtime.beat(SYSTEM_CLOCK.monotonic_s())


async def _acquire_lease(store: StateStore, fleet: str, runtime: ControllerRuntime, paths: FleetPaths) -> Lease:
    """Take the fleet over, as soon as the state can be written."""
    while True:
        try:
            return store.acquire_lease(
                fleet, runtime.lease_holder(), now=SYSTEM_CLOCK.now(), after=table_epoch(paths.routing_table)
            )
        except LeaseHeldError as exc:
            if exc.is_alive:
                raise
            _log.warning("%s; waiting for a sign of life", exc.message)
            await SYSTEM_CLOCK.sleep(_AGAIN_S)
        except (LockHeldError, DiskFullError) as exc:
            _log.error("the fleet cannot be taken over yet: %s; tried again each second", exc.message)
            await SYSTEM_CLOCK.sleep(_AGAIN_S)


def _is_forgotten(store: StateStore, fleet: str) -> bool:
    """Forget a fleet that is down, as the last act; False: somebody wants it up again meanwhile."""
    try:
        store.remove_fleet(fleet)
    except StateError:
        _log.info("fleet %s is wanted again", fleet)
        return False
    return True


def _forget_environment(host: Host, leased: StateStore, fleet: str) -> None:
    """Leave no secrets of a fleet that is down, unless another `up` has just written its own."""
    if leased.fleet(fleet) is None:
        host.keep_environment(fleet, None)


def _release(leased: StateStore) -> None:
    try:
        leased.release_lease(now=SYSTEM_CLOCK.now())
    except FencedError:
        raise
    except FleetctlError as exc:
        _log.error("the lease cannot be released: %s", exc.message)  # it is as good as over: its holder has gone


async def _serve(world: World, runtime: ControllerRuntime, leased: StateStore, heart: _Heart) -> bool:
    """Keep the fleet and answer the faces; return whether it is down."""
    controller = Controller(world)
    heart.is_progressing = lambda: controller.is_progressing
    application = api.app(controller.status, controller.broadcast, controller.wake)
    server = UnixServer(application, world.paths, lambda paths: paths.controller_socket)
    await server.start()
    loop = asyncio.get_running_loop()
    serving = loop.create_task(server.keep(world.clock, is_ours=runtime.is_claimed))
    keeping = loop.create_task(controller.run())
    tidying = loop.create_task(keep_logs(world))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, keeping.cancel)
    try:
        await keeping
    except asyncio.CancelledError:
        _log.info("told to go; fleet %s stays as it is", world.fleet)
        return False
    else:
        _log.info("fleet %s is down", world.fleet)
        with leased.while_leased():
            world.paths.routing_table.unlink(missing_ok=True)
            for each in world.paths.gateway_numbers:
                world.paths.gateway_socket_of(each).unlink(missing_ok=True)
        return True
    finally:
        serving.cancel()
        tidying.cancel()
        await server.close()


if __name__ == "__main__":
    sys.exit(main())
