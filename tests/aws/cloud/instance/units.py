"""What of systemd an instance's user data needs: services with their restarts and stops, and timers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.clock import SYSTEM_CLOCK

Unit = dict[str, dict[str, list[str]]]
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|min|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "": 1}
_STOP_S, _START_S, _RESTART_S = 90.0, 90.0, 0.1
_BURST, _INTERVAL_S = 5, 10.0


def parse_unit(text: str) -> Unit:
    """Return a unit's sections, every key with its values in order. Raises ValueError for a line that is none."""
    found: Unit = {}
    section: dict[str, list[str]] | None = None
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            section = found.setdefault(stripped.strip("[]"), {})
            continue
        key, equals, value = stripped.partition("=")
        if section is None or not equals:
            raise ValueError(f"no assignment: {stripped}")
        section.setdefault(key.strip(), []).append(value.strip())
    return found


def seconds(text: str) -> float:
    """Return a time span as systemd reads it: 110, 30min, 1h 5s."""
    spans = _SPAN.findall(text)
    if not spans:
        raise ValueError(f"no time span: {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in spans)


@dataclass
class Service:
    """One service: at most one main process, started again as its unit says."""

    name: str
    unit: Unit
    environment: dict[str, str]
    log: Path  # the console
    journal: Path  # its own
    on_start_limit: Callable[[str, str], None]
    state: str = "inactive"
    process: asyncio.subprocess.Process | None = None
    _task: asyncio.Task[None] | None = None
    _is_stopping: bool = False
    starts: deque[float] = field(default_factory=deque)

    def is_refused(self) -> bool:
        """Whether a start is refused, as it was started too often: then it fails until its starts are forgotten."""
        return self.state == "failed" and self._is_over_limit(counts=False)

    def start(self) -> asyncio.Task[None]:
        """Start it unless it runs; the task ends with the service."""
        if self._task is None or self._task.done():
            self._is_stopping = False
            self.state = "activating"
            self._task = asyncio.create_task(self._supervised(), name=self.name)
        return self._task

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to what is left after TimeoutStopSec."""
        self._is_stopping = True
        for command in self._all("ExecStop") if self.process else ():
            await self._ran(command)
        if self.process is not None and self.process.returncode is None:
            self._signal(signal.SIGTERM, whole=self._one("KillMode", "control-group") == "control-group")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), seconds(self._one("TimeoutStopSec", f"{_STOP_S}")))
            self._signal(signal.SIGKILL, whole=True)
            await self._after_end({"SERVICE_RESULT": "success"})
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.state = "inactive" if self.state != "failed" else "failed"

    def forget_starts(self) -> None:
        """Count no start before now against its limit."""
        self.starts.clear()
        if self.state == "failed":
            self.state = "inactive"

    async def _supervised(self) -> None:
        while True:
            if self._is_over_limit():  # a stop cancels this task
                self.state = "failed"
                unit = self.unit.get("Unit", {})
                self.on_start_limit(unit.get("StartLimitAction", ["none"])[-1], unit.get("OnFailure", [""])[-1])
                return
            is_success = await self._once()
            policy = self._one("Restart", "no")
            if self._is_stopping or policy == "no" or (policy == "on-failure" and is_success):
                self.state = "inactive" if is_success else "failed"
                return
            self.state = "activating"
            await SYSTEM_CLOCK.sleep(seconds(self._one("RestartSec", f"{_RESTART_S}")))

    def _is_over_limit(self, *, counts: bool = True) -> bool:
        limits = self.unit.get("Unit", {})
        interval_s = seconds(limits.get("StartLimitIntervalSec", [f"{_INTERVAL_S}"])[-1])
        now_s = SYSTEM_CLOCK.monotonic_s()
        while self.starts and now_s - self.starts[0] > interval_s:
            self.starts.popleft()
        if len(self.starts) >= int(limits.get("StartLimitBurst", [f"{_BURST}"])[-1]):
            return True
        if counts:
            self.starts.append(now_s)
        return False

    async def _once(self) -> bool:
        for command in self._all("ExecStartPre"):
            if not await self._ran(command):
                await self._after_end({"SERVICE_RESULT": "exit-code"})
                return False
        for command in self._all("ExecStart"):
            self.process = await self._started(command)
            self.state = "active"
            code = await self.process.wait()
            is_success = code == 0 or command.startswith("-")
            if not self._is_stopping:  # who stops it does what follows
                await self._after_end(_result_of(code))
            if not is_success:
                return False
        return True

    async def _after_end(self, result: dict[str, str]) -> None:
        """Do what the unit wants done whenever its process has ended, whatever of, which is told."""
        for command in self._all("ExecStopPost"):
            await self._ran(command, **result)

    async def _ran(self, command: str, **result: str) -> bool:
        process = await self._started(command, **result)
        try:
            code = await asyncio.wait_for(process.wait(), seconds(self._one("TimeoutStartSec", f"{_START_S}")))
        except TimeoutError:
            _kill_group(process.pid, signal.SIGKILL)
            code = -signal.SIGKILL
        return code == 0 or command.startswith("-")

    async def _started(self, command: str, **result: str) -> asyncio.subprocess.Process:
        argv = shlex.split(command.lstrip("-@+!:"))
        with self.log.open("a") as console:
            console.write(f"{self.name}: {shlex.join(argv)}\n")
        self.journal.parent.mkdir(exist_ok=True)
        with self.journal.open("ab") as out:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self._environment(), **result},
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        own = [word.partition("=") for line in self._all("Environment") for word in shlex.split(line)]
        return {**self.environment, **{name: value for name, _, value in own}}

    def _signal(self, number: signal.Signals, *, whole: bool) -> None:
        if self.process is None:
            return
        if whole:
            _kill_group(self.process.pid, number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def _all(self, key: str) -> list[str]:
        return self.unit.get("Service", {}).get(key, [])

    def _one(self, key: str, default: str) -> str:
        values = self._all(key)
        return values[-1] if values else default


class UnitManager:
    """The units of one instance; `power_off` is called once, when the instance is to end."""

    def __init__(self, directory: Path, environment: dict[str, str], log: Path, power_off: Callable[[], None]) -> None:
        self._directory = directory
        self._environment = environment
        self._log = log
        self._power_off = power_off
        self.services: dict[str, Service] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def control(self, arguments: list[str]) -> tuple[int, str]:
        """Do what a systemctl command says; return its status and output."""
        options = {each for each in arguments if each.startswith("-")}
        verb, *names = [each for each in arguments if not each.startswith("-")]
        wait = "--no-block" not in options
        match verb:
            case "daemon-reload":
                pass
            case "reset-failed":
                for name in names:
                    self._forget_starts(name)
            case "poweroff" | "halt":
                self._power_off()
            case "start" | "restart" | "enable":
                for name in names if verb != "enable" or "--now" in options else ():
                    await self._begin(name, is_anew=verb == "restart", wait=wait)
            case "stop" | "disable":
                await self._end(names, wait=wait)
            case "is-active":
                states = [self._state(name) for name in names]
                return (0 if all(state == "active" for state in states) else 3), "\n".join(states) + "\n"
            case _:
                return 1, f"systemctl {verb} is not played by the tests' instances\n"
        return 0, ""

    async def run(self, arguments: list[str]) -> tuple[int, str]:
        """Do what a systemd-run command says: a command later, as a unit of its own."""
        named = dict(each.removeprefix("--").partition("=")[::2] for each in arguments if each.startswith("--"))
        command = [each for each in arguments if not each.startswith("--")]
        name = named.get("unit", "run").removesuffix(".service")
        unit: Unit = {"Service": {"ExecStart": [shlex.join(command)]}}
        if "on-active" in named:
            self._timers[f"{name}.timer"] = asyncio.create_task(self._after(seconds(named["on-active"]), name, unit))
        else:
            self._service(f"{name}.service", unit).start()
        return 0, ""

    async def stop_all(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        await asyncio.gather(*(each.stop() for each in self.services.values()), return_exceptions=True)

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, name: str, *, is_anew: bool, wait: bool) -> None:
        if not is_anew:
            await self._start(name, wait=wait)
        elif wait:
            await self._restart(name)
        else:
            self._later(self._restart(name))

    async def _end(self, names: list[str], *, wait: bool) -> None:
        for name in names:
            if wait:
                await self._stop(name)
            else:
                self._later(self._stop(name))

    async def _restart(self, name: str) -> None:
        await self._stop(name)
        await self._start(name, wait=False)

    async def _after(self, delay_s: float, name: str, unit: Unit) -> None:
        await SYSTEM_CLOCK.sleep(delay_s)
        self._service(f"{name}.service", unit).start()

    async def _start(self, name: str, *, wait: bool) -> None:
        unit = parse_unit(self._text(_full(name)))
        if name.endswith(".timer"):
            self._timers[name] = asyncio.create_task(self._ticking(name, unit), name=name)
            return
        service = self._service(_full(name), unit)
        if service.is_refused():
            raise ValueError(f"Start request of {name} repeated too quickly")
        task = service.start()
        if wait and unit.get("Service", {}).get("Type", ["simple"])[-1] == "oneshot":
            await task

    async def _stop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        service = self.services.get(_full(name))
        if service is not None:
            await service.stop()

    async def _ticking(self, name: str, unit: Unit) -> None:
        timer = unit["Timer"]
        started = _full(timer.get("Unit", [name.removesuffix(".timer")])[-1])
        await SYSTEM_CLOCK.sleep(seconds(timer.get("OnActiveSec", timer.get("OnBootSec", ["0"]))[-1]))
        while True:
            await self._start(started, wait=True)
            if "OnUnitActiveSec" not in timer:
                return
            await SYSTEM_CLOCK.sleep(seconds(timer["OnUnitActiveSec"][-1]))

    def _service(self, name: str, unit: Unit) -> Service:
        known = self.services.get(name)
        if known is not None and (known.state in ("active", "activating") or (known.unit == unit and known.starts)):
            return known
        self.services[name] = Service(
            name, unit, self._environment, self._log, self._log.parent / "journal" / name, self._on_limit
        )
        return self.services[name]

    def _on_limit(self, action: str, on_failure: str) -> None:
        if action.startswith("poweroff"):
            self._power_off()
        if on_failure:
            self._later(self._start(on_failure, wait=False))

    def _forget_starts(self, name: str) -> None:
        service = self.services.get(_full(name))
        if service is not None:
            service.forget_starts()

    def _text(self, name: str) -> str:
        """Return a unit's file; of a template's instance with what stands between @ and the suffix in place of %i."""
        stem, at, rest = name.partition("@")
        if not at:
            return (self._directory / name).read_text()
        instance, _, suffix = rest.rpartition(".")
        return (self._directory / f"{stem}@.{suffix}").read_text().replace("%i", instance)

    def _state(self, name: str) -> str:
        if name.endswith(".timer"):
            timer = self._timers.get(name)
            return "active" if timer is not None and not timer.done() else "inactive"
        service = self.services.get(_full(name))
        return service.state if service else "inactive"


def _full(name: str) -> str:
    return name if "." in name else f"{name}.service"


def _result_of(code: int) -> dict[str, str]:
    """Return what systemd tells of a main process's end."""
    if code < 0:
        named = signal.Signals(-code).name.removeprefix("SIG")
        return {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": named}
    result = "exit-code" if code else "success"
    return {"SERVICE_RESULT": result, "EXIT_CODE": "exited", "EXIT_STATUS": str(code)}


def _kill_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
