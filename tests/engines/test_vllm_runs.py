"""A real vLLM on CPU, started by the launch script that `render` writes; no gateway, no controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.slo import Validity
from fleetctl.operations.rendering import render_to
from fleetctl.testing import samples
from fleetctl_vllm.engine import VllmEngine
from tests.engines.environment import engine_env, offline
from tests.ports import free_port
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.engines, pytest.mark.essential, pytest.mark.timeout(420)]

START_S = 300.0  # 17-50 s on an idle machine
STOP_S = 60.0
STREAMS_MAX = 10
KEY = "sk-engine"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yield a client of a running vLLM that has the key; the fixture fails if anything of it outlives SIGTERM."""
    with running_vllm(tmp_path_factory.mktemp("vllm")) as client:
        yield client


@contextmanager
def running_vllm(directory: Path, **settings: object) -> Iterator[httpx.Client]:
    """Run one by its rendered script, with these launch settings instead of the usual ones."""
    script = write_script(directory, **settings)
    log = (directory / "vllm.log").open("wb")
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "VLLM_API_KEY": KEY}
    started = subprocess.Popen([script], env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        port = port_of(script)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, trust_env=False) as client:
            wait_healthy(client, started, directory / "vllm.log")
            client.headers["authorization"] = f"Bearer {KEY}"
            yield client
        group = [process for process in psutil.process_iter() if session(process) == started.pid]
        started.send_signal(signal.SIGTERM)
        assert started.wait(STOP_S) == 0
        _, alive = psutil.wait_procs(group, timeout=STOP_S)
        assert not alive
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait(STOP_S)
        log.close()


def write_script(directory: Path, **changes: object) -> Path:
    """Render the launch script of a one-lane fleet of the tiny model."""
    model = str(engine_env() / "models" / "tiny")
    lane_plan = fleets.lane_plan("short", "vllm")
    settings = replace(
        samples.lane_plan("short").launch, model=model, served_name="tiny", max_num_seqs=4, max_model_len=2048,
        extra_args=("--enforce-eager", "--kv-cache-memory-bytes", "64M", "--port", str(free_port())), env=offline(), shutdown_timeout_s=5.0,
    )  # fmt: skip
    settings = replace(settings, **changes)  # type: ignore[arg-type]  # fields of the settings, by name
    profile, plan = fleets.fleet((fleets.lane("short", "vllm"), replace(lane_plan, launch=settings, tensor_parallel=1)))
    previous = os.environ.get("FLEETCTL_VLLM")
    os.environ["FLEETCTL_VLLM"] = str(engine_env() / "bin" / "vllm")
    try:
        render_to(plugins_site(), profile, plan, directory / "files")
    finally:
        os.environ.pop("FLEETCTL_VLLM")
        if previous is not None:
            os.environ["FLEETCTL_VLLM"] = previous
    return directory / "files" / "short" / "launch.sh"


def session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return -1


def port_of(script: Path) -> int:
    words = script.read_text().split()
    return int(words[words.index("--port") + 1])


def wait_healthy(client: httpx.Client, started: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + START_S
    while True:
        assert started.poll() is None, log.read_text()[-3000:]
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, log.read_text()[-3000:]
        try:
            if client.get(VllmEngine.health_path).status_code == 200:
                return
        except httpx.TransportError:
            pass
        SYSTEM_CLOCK.sleep_blocking(0.25)


def test_its_metrics_are_understood_before_and_after_it_is_warmed(engine: httpx.Client) -> None:
    adapter = VllmEngine()
    before = adapter.signals(engine.get(adapter.metrics_path).text)
    path, body = adapter.warm_body(served_name="tiny")
    answer = engine.post(path, content=body, headers={"content-type": "application/json"})
    after = adapter.signals(engine.get(adapter.metrics_path).text)

    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert (before.validity, after.validity) == (Validity.OK, Validity.OK)
    assert after.output_tokens - before.output_tokens == usage["completion_tokens"] == 8
    assert after.prompt_tokens - before.prompt_tokens == usage["prompt_tokens"]


def test_a_running_stream_shows_in_its_metrics(engine: httpx.Client) -> None:
    adapter = VllmEngine()
    request = {"model": "tiny", "prompt": "the quick", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    # On a busy machine a stream of a tiny model may be over before the figures of its first step are out.
    during = adapter.signals("")
    for _attempt in range(STREAMS_MAX):
        with engine.stream("POST", "/v1/completions", json=request) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            during = adapter.signals(engine.get(adapter.metrics_path).text)
            for _ in lines:
                pass
        assert during.validity is Validity.OK
        if during.running:
            break
    assert during.running == 1
    assert during.kv_usage is not None
    assert 0 < during.kv_usage < 1


def test_its_key_is_required_and_came_through_the_environment(engine: httpx.Client) -> None:
    path, body = VllmEngine().warm_body(served_name="tiny")
    stranger = engine.post(path, content=body, headers={"authorization": "Bearer guess"})
    assert stranger.status_code == 401
    assert engine.get("/v1/models").json()["data"][0]["id"] == "tiny"
    assert not any(KEY in word for process in psutil.process_iter() for word in cmdline(process))


def test_a_priority_says_nothing_to_one_that_was_not_started_to_look_at_it(engine: httpx.Client) -> None:
    path, body = VllmEngine().warm_body(served_name="tiny")
    answer = engine.post(path, json=json.loads(body) | {"priority": 2})
    assert answer.status_code == 200, answer.text


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
