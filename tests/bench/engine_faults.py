"""Seed the faults of a real vLLM, and take the time from an engine's end to its cause on the user's screen.

    FLEETCTL_ENGINE_ENV=.venv-engines python -m tests.bench.engine_faults [--fault NAME ...]

Each fault is a profile of its own, brought up by `fleetctl up` as a user does it. The time runs from when the first process
that the engine cannot do without is gone (its server, its engine core, a worker), as the kernel's table shows it, to the
line with the cause on the screen; for what is refused before anything is started, from the command. Beside it: what the
command exited with, and whether `status`, `why` and `events` say it too. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.e2e.fleet import Home
from tests.engines.environment import offline
from tests.ports import free_port

FLEET = "faulty"
LIMIT_S = 15.0
PATIENCE_S = 420.0
_SAMPLE_S = 0.1
_TITLE = "VLLM::"
_ABOUT_ENGINES = (f"{FLEET}: ", "lane ", "error: ")  # beginnings of lines of `up`

PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: tiny, path: {model}}}
engine: vllm
provider: local
workload:
  peak_rps: 1
  prompt_tokens: {{p50: 60, p99: 200}}
  output_tokens: {{p50: 16, p99: 64}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short:
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: 1
    launch:
      max_num_seqs: 8
      max_model_len: {max_model_len}
      max_num_batched_tokens: 4096
      extra_args: {arguments}
      env: {env}
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}}}
"""


@dataclass(slots=True, kw_only=True)
class Seeded:
    """What a fault may change of a fleet that would come up."""

    root: Path
    model: Path
    vllm: Path  # what FLEETCTL_VLLM names
    arguments: list[str] = field(default_factory=lambda: ["--enforce-eager"])
    kv_cache: str = "64M"
    env: dict[str, str] = field(default_factory=offline)
    max_model_len: int = 2048

    def script(self, text: str, *, mode: int = 0o755) -> None:
        """Have this started instead of vLLM; `{vllm}` is the real one."""
        path = self.root / "engine"
        path.write_text(text.replace("{vllm}", str(self.vllm)))
        path.chmod(mode)
        self.vllm = path

    def edit_model(self, **changes: object) -> None:
        """Change keys of the model's config.json."""
        path = self.model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededFault:
    """A fault, and what a person who seeded it must read."""

    seed: Callable[[Seeded], None]
    cause: str  # words of it on the screen
    kills: str = ""  # a process whose name begins so is killed as soon as it is seen
    is_retried: bool = False  # it may be another time: `up` goes on, and says what it waits for


def _add(*arguments: str) -> Callable[[Seeded], None]:
    return lambda it: it.arguments.extend(arguments)


_LISTEN = """
import signal, socket
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    signal.pause()
"""


def _taken_port(it: Seeded) -> None:
    listener = subprocess.Popen([sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE, text=True)
    assert listener.stdout is not None
    it.arguments += ["--port", listener.stdout.readline().strip()]
    _BESIDE.append(listener)


def _no_tokenizer(it: Seeded) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (it.model / name).unlink()


def _broken_config(it: Seeded) -> None:
    (it.model / "config.json").write_text('{"architectures": [')


def _truncated(it: Seeded) -> None:
    os.truncate(it.model / "model.safetensors", 100_000)


def _garbage(it: Seeded) -> None:
    (it.model / "model.safetensors").write_bytes(bytes(range(256)) * 500)


_BESIDE: list[subprocess.Popen[str]] = []
FAULTS = {
    "unknown flag": SeededFault(seed=_add("--frobnicate"), cause="--frobnicate"),
    "bad value of a known flag": SeededFault(seed=_add("--block-size", "seven"), cause="argument --block-size"),
    "missing executable": SeededFault(
        seed=lambda it: setattr(it, "vllm", it.root / "nowhere" / "vllm"), cause="No such file or directory"
    ),
    "executable without the right to run": SeededFault(
        seed=lambda it: it.script("#!/bin/sh\n", mode=0o644), cause="Permission denied"
    ),
    "broken environment (import fails)": SeededFault(
        seed=lambda it: it.script("#!/usr/bin/env python3\nfrom vllm.entrypoints.cli.main import main\nmain()\n"),
        cause="No module named 'vllm'",
    ),
    "no such model directory": SeededFault(
        seed=lambda it: setattr(it, "model", it.root / "nowhere"), cause="no model configuration at"
    ),
    "config.json is no JSON": SeededFault(seed=_broken_config, cause="config.json"),
    "unsupported architecture": SeededFault(
        seed=lambda it: it.edit_model(architectures=["FrobForCausalLM"]), cause="FrobForCausalLM"
    ),
    "no weights": SeededFault(
        seed=lambda it: (it.model / "model.safetensors").unlink(), cause="Cannot find any model weights"
    ),
    "truncated weights": SeededFault(seed=_truncated, cause="SafetensorError"),
    "weights are garbage": SeededFault(seed=_garbage, cause="the header of its weights cannot be read"),
    "max_model_len above the model's": SeededFault(
        seed=_add("--max-model-len", "9999999"), cause="max_model_len (9999999) is greater than"
    ),
    "KV cache holds no request": SeededFault(seed=lambda it: setattr(it, "kv_cache", "4K"), cause="cache"),
    "tokenizer missing": SeededFault(seed=_no_tokenizer, cause="okenizer"),
    "directory of its sockets cannot be written": SeededFault(
        seed=lambda it: it.env.update(VLLM_RPC_BASE_PATH="/proc/nowhere"), cause="No such file or directory"
    ),
    "memory limit of the process": SeededFault(
        seed=lambda it: it.script('#!/bin/sh\nulimit -v 900000\nexec {vllm} "$@"\n'), cause="MemoryError"
    ),
    "port taken": SeededFault(seed=_taken_port, cause="ddress already in use", is_retried=True),
    "engine core killed while loading": SeededFault(
        seed=lambda _: None, kills="VLLM::EngineCor", cause="VLLM::EngineCor", is_retried=True
    ),
    "worker killed while loading": SeededFault(
        seed=lambda _: None, kills="VLLM::Worker", cause="VLLM::Worker", is_retried=True
    ),
    "server killed while loading": SeededFault(
        seed=lambda _: None, kills="vllm", cause="was killed by signal 9 (SIGKILL)", is_retried=True
    ),
}


@dataclass(slots=True)
class Deaths:
    """Watches a fleet's engines: when the first vital process of one was gone."""

    home: Home
    kills: str = ""
    first_s: float | None = None
    starts: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Sample until told to end."""
        vital: dict[int, tuple[int, float]] = {}  # pid -> session, when the kernel began it
        while not self._over.wait(_SAMPLE_S):
            leaders = self._leaders()
            self.starts = max(self.starts, len(leaders))
            living = {process.pid: process for process in psutil.process_iter() if _session(process) in leaders}
            for pid, process in living.items():
                name = _name(process)
                if name and (pid in leaders or name.startswith(_TITLE)):
                    vital.setdefault(pid, (_session(process), 0.0))
                    self._strike(process, name)
            if self.first_s is None and any(pid not in living or not _name(living[pid]) for pid in vital):
                self.first_s = time.monotonic()

    def end(self) -> None:
        """End `watch`."""
        self._over.set()

    def _strike(self, process: psutil.Process, name: str) -> None:
        # A server is given the time to get past its imports: killed at once, it has loaded nothing.
        is_due = name.startswith(_TITLE) or time.time() - process.create_time() > 8.0
        if self.kills and self.first_s is None and name.startswith(self.kills) and is_due:
            process.send_signal(signal.SIGKILL)

    def _leaders(self) -> set[int]:
        records = (Path(self.home.environment["XDG_STATE_HOME"]) / "fleetctl" / "local" / "nodes").glob("*.json")
        found = set()
        for path in records:
            try:
                leader = json.loads(path.read_text()).get("leader")
            except (FileNotFoundError, json.JSONDecodeError):
                continue
            if leader:
                found.add(leader["pid"])
        return found


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


def _name(process: psutil.Process) -> str:
    """Return a process's name; empty if it has ended."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What came of one fault."""

    name: str
    death_s: float | None  # after the command; None: nothing was started
    seconds: float | None  # from there to the cause on the screen; None: it never came
    code: int | None  # None: it went on, and was ended
    line: str
    views: str  # which of status, why, events say it
    left: str

    @property
    def is_right(self) -> bool:
        """Whether the cause came in time."""
        return self.seconds is not None and self.seconds <= LIMIT_S and not self.left


def try_once(name: str, fault: SeededFault, engines: Path, logs: Path | None) -> Shown:
    """Bring up a fleet with one fault; take it down again."""
    root = Path(tempfile.mkdtemp(prefix="ff-"))
    it = Seeded(root=root, model=root / "model", vllm=engines / "bin" / "vllm")
    shutil.copytree(engines / "models" / "tiny", it.model)
    fault.seed(it)
    home = Home(root=root, env={"FLEETCTL_VLLM": str(it.vllm)})
    profile = root / "faulty.yaml"
    arguments = [*it.arguments, "--kv-cache-memory-bytes", it.kv_cache]
    profile.write_text(
        PROFILE.format(
            fleet=FLEET, model=it.model, port=free_port(), arguments=json.dumps(arguments), env=json.dumps(it.env),
            max_model_len=it.max_model_len,
        )
    )  # fmt: skip
    try:
        return _brought_up(name, fault, home, profile)
    finally:
        home.kill_everything()
        for number, log in enumerate(sorted(root.rglob("r*.log"))):
            if logs is not None:
                shutil.copy(log, logs / f"{name.replace(' ', '-')}-{number}.txt")
        while _BESIDE:
            _BESIDE.pop().kill()
        shutil.rmtree(root, ignore_errors=True)


def _brought_up(name: str, fault: SeededFault, home: Home, profile: Path) -> Shown:
    deaths = Deaths(home, kills=fault.kills)
    watcher = threading.Thread(target=deaths.watch)
    watcher.start()
    begun_s, seen_s, line, printed = time.monotonic(), None, "", []
    with home.start("up", str(profile), "--yes", "--timeout", f"{PATIENCE_S:.0f}s") as running:
        assert running.stderr is not None
        for each in running.stderr:
            printed.append(each)
            is_news = seen_s is None and fault.cause in each and each.startswith(_ABOUT_ENGINES)
            if is_news:
                seen_s, line = time.monotonic(), each.strip()
                if fault.is_retried:
                    running.send_signal(signal.SIGINT)
        code = running.wait()
    deaths.end()
    watcher.join()
    seconds = seen_s - (deaths.first_s or begun_s) if seen_s is not None else None
    if seconds is None:
        print(f"--- {name}: exit {code}\n{''.join(printed)}\n{home.logs()}", file=sys.stderr)
    shown = Shown(
        name=name,
        death_s=deaths.first_s - begun_s if deaths.first_s is not None else None,
        seconds=seconds,
        code=None if fault.is_retried and seconds is not None else code,
        line=line,
        views=_views(home, fault.cause),
        left=_left_after_down(home),
    )
    print(row(shown), flush=True)
    return shown


def _views(home: Home, cause: str) -> str:
    """Return which commands say the cause."""
    commands = {"status": ("status", FLEET), "why": ("why", "lane/short", "-f", FLEET), "events": ("events", FLEET)}
    printed = {name: home.run(*command, "--output", "json") for name, command in commands.items()}
    return " ".join(name for name, ran in printed.items() if cause in ran.out or json.dumps(cause)[1:-1] in ran.out)


def _left_after_down(home: Home) -> str:
    """Take the fleet down if it is there; return what it left: processes, sockets, temporary files."""
    state = Path(home.environment["XDG_STATE_HOME"])
    records = [json.loads(path.read_text()) for path in (state / "fleetctl" / "local" / "nodes").glob("*.json")]
    home.run("down", FLEET, "--yes", "--timeout", "2m")
    left = home.kill_everything()
    left += [r["temporary"] for r in records if r.get("temporary") and Path(r["temporary"]).exists()]
    return ", ".join([*left, *map(str, home.sockets())])


def row(shown: Shown) -> str:
    """Return a row of the table."""
    death = "-" if shown.death_s is None else f"{shown.death_s:.0f}"
    seconds = "never" if shown.seconds is None else f"{shown.seconds:.1f}"
    code = "tried again" if shown.code is None else str(shown.code)
    return f"| {shown.name} | {death} | {seconds} | {code} | `{shown.line[:150]}` | {shown.views} | {shown.left or 'nothing'} |"


def main() -> int:
    """Seed the faults in turn; exit 1 if a cause was late, or something was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", default=[], help="only faults with this in their name")
    parser.add_argument("--logs", type=Path, help="keep what the engines wrote in this directory")
    options = parser.parse_args()
    engines = Path(os.environ.get("FLEETCTL_ENGINE_ENV", ".venv-engines")).absolute()
    chosen = [name for name in FAULTS if not options.fault or any(part in name for part in options.fault)]
    print("| fault | engine died after, s | cause on screen, s | `up` | line | also in | left after `down` |")
    print("|---|---|---|---|---|---|---|")
    done = [try_once(name, FAULTS[name], engines, options.logs) for name in chosen]
    wrong = [shown.name for shown in done if not shown.is_right]
    print(f"{len(done) - len(wrong)} of {len(done)} within {LIMIT_S:g} s{'; not: ' if wrong else ''}{', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
