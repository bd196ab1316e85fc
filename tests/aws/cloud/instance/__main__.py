"""The first process of an instance: its files, its units, and its user data. Ends with its standard input."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import stat
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.instance.cloud_config import parse_cloud_config, write_file
from tests.aws.cloud.instance.root import enter_own_root
from tests.aws.cloud.instance.units import UnitManager
from tests.aws.cloud.reaper import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

_HERE = Path(__file__).resolve().parent
_OWN_PATHS = (
    "/opt/fleetctl",
    "/etc/systemd/system",
    "/run/fleetctl",  # and /run/fleetctl-boot
    "/var/lib/fleetctl",
    "/usr/bin/docker",
    "/usr/bin/systemctl",
)
_METADATA = "http://169.254.169.254"
_UPTIME_S = 0.5
# journalctl --unit NAME --output cat --no-pager [--cursor-file FILE]: what is behind the cursor, which is moved to the end;
# journalctl _SYSTEMD_UNIT=NAME --output cat --no-pager --lines N: what the unit's processes wrote last.
_JOURNALCTL = """case $1 in
_SYSTEMD_UNIT=*)
    [ "$2 $3 $4 $5" = "--output cat --no-pager --lines" ] || exit 64
    tail -n "$6" {journal}/"${{1#*=}}" 2>/dev/null
    exit 0
    ;;
esac
[ "$1 $3 $4 $5" = "--unit --output cat --no-pager" ] || exit 64
[ -e {journal}/"$2" ] || exit 0
[ "$6" = --cursor-file ] || exec cat {journal}/"$2"
begin=$(cat "$7" 2>/dev/null || echo 0)
end=$(wc -c <{journal}/"$2")
tail -c +$((begin + 1)) {journal}/"$2" | head -c $((end - begin))
echo "$end" >"$7"
"""


class FirstProcess:
    """One instance from its boot to its power-off."""

    def __init__(self, settings: dict[str, Any], directory: Path) -> None:
        self._settings = settings
        self._is_own = bool(settings["namespaced"])
        self._root = Path("/") if self._is_own else directory / "root"
        self._log = directory / "console.log"
        self._runtime = directory
        self._over = asyncio.Event()
        programs = self._root / "usr/local/sbin"
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self._root / "root"),
            "LANG": "C.UTF-8",
            MARK: os.environ[MARK],
            "PIP_NO_INDEX": "1",
        }
        self._units = UnitManager(self._root / "etc/systemd/system", self._environment, self._log, self._over.set)
        self._changed: dict[str, str] = {}
        self._commands: list[asyncio.Task[None]] = []
        if not self._is_own:
            self._changed = {path: f"{self._root}{path}" for path in _OWN_PATHS}
            self._changed[_METADATA] = settings["metadata"]
            self._changed["/proc/uptime"] = str(directory / "uptime")

    async def run(self) -> None:
        """Boot, stay until the power goes, and stop the services."""
        self._install()
        async with asyncio.TaskGroup() as tasks:
            server = await asyncio.start_unix_server(self._respond, self._socket())
            loops = [
                tasks.create_task(self._uptime()),
                tasks.create_task(self._obey()),
                tasks.create_task(self._cloud_init()),
            ]
            await self._over.wait()
            server.close()
            for loop in loops:
                loop.cancel()
        self._say("power off")
        await self._units.stop_all()

    def _install(self) -> None:
        """Put the programs there that user data uses and that are played."""
        Path(self._environment["HOME"]).mkdir(parents=True, exist_ok=True)
        python, directory = sys.executable, self._root / "usr/local/sbin"
        address = "" if self._is_own else self._settings["address"]
        cloud = json.dumps({key: self._settings[key] for key in ("url", "region", "role")})
        scripts = {
            "systemctl": f'exec {python} -I -S {_HERE}/shim.py {self._socket()} systemctl "$@"',
            "systemd-run": f'exec {python} -I -S {_HERE}/shim.py {self._socket()} systemd-run "$@"',
            "docker": f"exec {python} -I -S {_HERE}/docker.py {self._runtime}/images '{address}' \"$@\"",
            "aws": f"exec {python} {_HERE}/aws.py '{cloud}' \"$@\"",
            "journalctl": _JOURNALCTL.format(journal=f"{self._runtime}/journal"),
            "cloud-init-per": 'shift 2\nexec "$@"',
        }
        scripts |= dict.fromkeys((f"python3.{sys.version_info.minor}", "python3"), _python_script())
        for name, script in scripts.items():
            for place in (directory, self._root / "usr/bin") if name in ("systemctl", "docker") else (directory,):
                place.mkdir(parents=True, exist_ok=True)
                path = place / name
                path.unlink(missing_ok=True)
                path.write_text(f"#!/bin/sh\n{script}\n")
                path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    async def _cloud_init(self) -> None:
        text = self._settings["user_data"]
        if not text:
            return
        try:
            config = parse_cloud_config(text)
            for command in config.boot_commands:
                await self._ran(command)
            for entry in config.files:
                write_file(entry, self._root, self._changed)
            for command in config.commands:
                await self._ran(command)
        except (ValueError, OSError) as error:
            self._say(f"cloud-init failed: {error!r}")
            return
        self._say("cloud-init is done")

    async def _ran(self, command: list[str]) -> None:
        argv = [self._changed_in(word) for word in command]
        with self._log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment
            )
            status = await process.wait()
        self._say(f"{' '.join(argv)}: {status}")

    def _changed_in(self, word: str) -> str:
        for old, new in self._changed.items():
            word = word.replace(old, new)
        return word

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        program, *arguments = json.loads(await reader.readline())
        act: Callable[[list[str]], Any] = self._units.control if program == "systemctl" else self._units.run
        try:
            status, output = await act(arguments)
        except (ValueError, OSError) as error:
            status, output = 1, f"{program}: {error!r}\n"
        writer.write(json.dumps({"status": status, "output": output}).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def _obey(self) -> None:
        """Power off when the cloud says so; die with it."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while (line := await reader.readline()).startswith(b"run "):
            self._commands.append(asyncio.create_task(self._run_script(*line.decode().split()[1:])))
        if not line:
            os._exit(1)
        self._over.set()
        if not await reader.read():
            os._exit(1)

    async def _run_script(self, command: str, script: str) -> None:
        """Run a script as the agent of Systems Manager does, and leave what it came to."""
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", base64.b64decode(script).decode(), env=self._environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = (each.decode(errors="replace") for each in await process.communicate())
        path = self._runtime / "commands" / command
        path.parent.mkdir(exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps({"status": process.returncode, "output": output, "errors": errors}))
        draft.replace(path)

    async def _uptime(self) -> None:
        """Keep the time since this boot, not the machine's, where scripts read it."""
        started_s = SYSTEM_CLOCK.monotonic_s()
        path = self._runtime / "uptime"
        while True:
            up_s = SYSTEM_CLOCK.monotonic_s() - started_s
            with path.open("r+" if path.exists() else "w") as out:
                out.write(f"{up_s:014.2f} 0.00\n")
            await SYSTEM_CLOCK.sleep(_UPTIME_S)

    def _socket(self) -> Path:
        return self._runtime / "units.sock"

    def _say(self, text: str) -> None:
        with self._log.open("a") as out:
            out.write(f"{SYSTEM_CLOCK.now().isoformat()} {text}\n")


def _python_script() -> str:
    """Return a Python whose environments have installed what the tests' has: there is no package index here."""
    place = f"lib/python3.{sys.version_info.minor}/site-packages/of-the-tests.pth"
    make = f'{sys.executable} "$@" || exit\nfor last; do :; done\necho {sysconfig.get_path("purelib")} >"$last/{place}"'
    return f'if [ "$1 $2" = "-m venv" ]; then\n{make}\nexit\nfi\nexec {sys.executable} "$@"'


def main() -> None:
    """Boot as the settings in the directory say."""
    directory = Path(sys.argv[1])
    settings = json.loads((directory / "settings.json").read_text())
    if settings["namespaced"]:
        enter_own_root(directory)
    asyncio.run(FirstProcess(settings, directory).run())


if __name__ == "__main__":
    main()
