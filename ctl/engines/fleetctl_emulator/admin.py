"""The emulator's own routes, for drills and tests: loopback only, outside every fault."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from fleetctl.errors import ConfigError
from fleetctl_emulator.faults import KINDS, InjectedFault, parse_fault

if TYPE_CHECKING:
    from fleetctl_emulator.service import EmulatorService


class _FaultsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: str | list[str]


class AdminRoutes:
    """Shows and changes what is wrong with this engine."""

    def __init__(self, service: EmulatorService, played: str, version: str) -> None:
        self._service, self._played, self._version = service, played, version

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/emulator/state", self.state),
            web.get("/emulator/version", self.version),
            web.get("/emulator/faults", self.faults),
            web.post("/emulator/faults", self.put),
            web.delete("/emulator/faults", self.clear),
        ]

    async def state(self, request: web.Request) -> web.Response:
        """Return what the metrics do not tell: how well this machine keeps the modelled pace."""
        _loopback_only(request)
        engine, scheduler = self._service.engine, self._service.engine.scheduler
        return web.json_response(
            {
                "flavour": self._played,
                "running": scheduler.running,
                "waiting": scheduler.waiting,
                "in_flight": self._service.in_flight,
                "is_draining": self._service.is_draining,
                "kv_blocks": scheduler.pool.total,
                "kv_blocks_used": scheduler.pool.used,
                "max_model_len": self._service.max_model_len,
                "steps": engine.steps,
                "is_stuck": engine.is_stuck,
                "lag_s": engine.lag_s,
                "written_off_s": engine.written_off_s,
                "faults": [str(fault) for fault in self._service.injector.in_force],
            }
        )

    async def version(self, _: web.Request) -> web.Response:
        """Say which version of which engine this looks like; to everybody, as engines do."""
        return web.json_response({"flavour": self._played, "version": self._version})

    async def faults(self, request: web.Request) -> web.Response:
        """Return the faults in force and those there are."""
        _loopback_only(request)
        return self._answer()

    async def put(self, request: web.Request) -> web.Response:
        """Put faults in force: {"fault": "slow:3"} or {"fault": [...]}."""
        _loopback_only(request)
        try:
            body = msgspec.json.decode(await request.read(), type=_FaultsBody)
            wanted = [body.fault] if isinstance(body.fault, str) else body.fault
            self._service.injector.put([_runtime_fault(text) for text in wanted])
        except msgspec.DecodeError as error:
            return _refusal(f'{error}: the body is {{"fault": "NAME[:NUMBER]"}}', "")
        except ConfigError as error:
            return _refusal(error.message, error.hint)
        return self._answer()

    async def clear(self, request: web.Request) -> web.Response:
        """End every fault, or the one named by ?kind=."""
        _loopback_only(request)
        kind = request.query.get("kind", "")
        if kind and kind not in KINDS:
            return _refusal(f"{kind!r} is not a known fault", f"known: {', '.join(KINDS)}")
        self._service.injector.clear(kind)
        return self._answer()

    def _answer(self) -> web.Response:
        return web.json_response(
            {
                "faults": [str(fault) for fault in self._service.injector.in_force],
                "known": {name: kind.meaning for name, kind in KINDS.items()},
            }
        )


def _runtime_fault(text: str) -> InjectedFault:
    fault = parse_fault(text)
    if KINDS[fault.kind].only_at_start:
        raise ConfigError(f"the fault {fault.kind!r} is for the start only", hint=f"start with --fault {fault.kind}")
    return fault


def _refusal(message: str, hint: str) -> web.Response:
    return web.json_response({"error": message, "hint": hint}, status=400)


def _loopback_only(request: web.Request) -> None:
    if not request.remote or not ipaddress.ip_address(request.remote.split("%", 1)[0]).is_loopback:
        raise web.HTTPForbidden(text="only from this machine")
