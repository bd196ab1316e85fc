"""A third party's engine, in a package of its own, is planned, started, read, asked, drained and ended like a built-in."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from acme_engine.engine import AcmeEngine

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from tests.e2e.fleet import Home, live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parent / "acme"
CHECKOUT = Path(__file__).parents[2]
ENTRY_POINTS = """
[fleetctl.engine]
acme = acme_engine.engine:AcmeEngine
[fleetctl.emulated]
acme = acme_surface:AcmeSurface
"""
PROFILE = """
apiVersion: fleetctl/v1
name: anvils
model: {id: meta-llama/Llama-3.1-8B-Instruct, served_name: anvil}
engine: acme
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 100, p99: 400}, output_tokens: {p50: 8, p99: 20}}
lanes:
  short:
    slo: {ttft: {p99: 2s}}
    max_wait: 10s
    replicas: {min: 2, max: 3}
    spot: none
capacity: {gpus: [L40S]}
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """Return a user's home with fleetctl in it, and beside it the package `acme` as pip would have unpacked it."""
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fa-"))
    site = root / "site"
    shutil.copytree(SOURCES, site, ignore=shutil.ignore_patterns("__pycache__"))
    named = site / "acme_engine-7.0.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-engine\nVersion: 7.0\n")
    (named / "entry_points.txt").write_text(ENTRY_POINTS)
    home = Home(root=root, env={"PYTHONPATH": str(site)})
    (root / "anvils.yaml").write_text(PROFILE)
    yield home
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


@pytest.fixture
def profile(home: Home) -> str:
    return str(home.root / "anvils.yaml")


def test_it_is_six_files_and_fleetctl_knows_of_none() -> None:
    files = ["__init__.py", "capabilities.py", "container.py", "engine.py", "launch.py", "signals.py"]
    assert sorted(path.name for path in (SOURCES / "acme_engine").glob("*.py")) == files
    product = [path for root in ("ctl", "providers", "templates") for path in (CHECKOUT / root).rglob("*.*")]
    assert [path for path in product if path.suffix in (".py", ".j2") and "acme" in path.read_text().lower()] == []


def test_it_is_listed_and_validates(home: Home, profile: str) -> None:
    assert "acme" in home.fleetctl("doctor")
    home.fleetctl("validate", profile)
    schema = json.loads(home.fleetctl("schema"))
    assert schema["properties"]["engine"]["anyOf"][0]["enum"] == [
        "acme",
        "emulator",
        "llamacpp",
        "sglang",
        "tgi",
        "vllm",
    ]


def test_a_name_near_it_is_refused_with_file_line_key_and_what_is_installed(home: Home) -> None:
    wrong = home.root / "wrong.yaml"
    wrong.write_text(PROFILE.replace("engine: acme", "engine: acmee"))
    ran = home.run("validate", str(wrong))
    assert ran.code == 3
    line = 1 + PROFILE.splitlines().index("engine: acme")
    message = "'acmee' is not an installed engine (did you mean 'acme'?); installed: acme, emulator, llamacpp, sglang, tgi, vllm"
    assert f"{wrong}:{line}: engine: {message}" in " ".join(ran.err.split())


def test_it_is_planned_and_rendered_with_its_own_flags_and_image(home: Home, profile: str) -> None:
    plan = home.query("plan", profile)
    assert [lane["engine"] for lane in plan["lanes"]] == ["acme"]
    home.fleetctl("render", profile, "--output", str(home.root / "files"))
    launch = json.loads((home.root / "files" / "short" / "launch.json").read_text())
    assert launch["argv"][1:5] == ["-m", "acme_server", "--weights", "meta-llama/Llama-3.1-8B-Instruct"]
    assert launch["health_path"] == "/live"
    compose = (home.root / "files" / "short" / "compose.yaml").read_text()
    assert "registry.acme.example/server:7" in compose
    assert "acme-serve" in compose


def chat(port: int, **fields: Any) -> tuple[int, str]:
    """Send a chat through the gateway; return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = {"model": "anvil", "messages": [{"role": "user", "content": "what do you make"}], **fields}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    return status, text


def until_signals(home: Home) -> None:
    """Wait until every replica's own figures have been read."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 60
    while True:
        engines = [replica.engine for replica in live_replicas(home.status("anvils"))]
        if len(engines) == 2 and all(engine.validity is Validity.OK for engine in engines):
            assert {(engine.running, engine.waiting, engine.kv_usage) for engine in engines} == {(0, 0, 0.125)}
            assert all(engine.output_tokens >= 4 for engine in engines), "warming was counted by the engine itself"
            return
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, engines
        SYSTEM_CLOCK.sleep_blocking(0.5)


def test_the_emulator_plays_it_too(home: Home) -> None:
    profile = home.root / "played.yaml"
    profile.write_text(PROFILE.replace("engine: acme", "engine: emulator\nemulator: {flavour: acme, speed: 100}"))
    home.fleetctl("validate", str(profile))
    with subprocess.Popen(
        [sys.executable, "-m", "fleetctl_emulator", "--flavour", "acme", "--port", "0", "--speed", "100",
         "--model", "meta-llama/Llama-3.1-8B-Instruct", "--served-model-name", "anvil", "--gpu", "L40S"],
        env=home.environment, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        port = int(running.stdout.readline().rsplit(":", 1)[1])
        assert chat(port, max_tokens=4)[0] == 200
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        running.terminate()
    signals = AcmeEngine().signals(page)
    assert (signals.validity, signals.running, signals.output_tokens) == (Validity.OK, 0, 4)


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_it_comes_up_is_read_serves_is_drained_and_goes_down(home: Home, profile: str) -> None:
    port = free_port()
    home.fleetctl("up", profile, "--port", str(port), "--yes", timeout_s=120)
    until_signals(home)

    status, text = chat(port)
    assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (
        200,
        "acme makes everything and answers all chats.",
    )
    status, text = chat(port, stream=True)
    assert status == 200
    assert text.endswith("data: [DONE]\n\n")

    home.fleetctl("drain", "r1", "--yes", timeout_s=120)
    gone = next(r for r in home.status("anvils").replicas if r.record.id == "r1")
    assert gone.record.state is ReplicaState.GONE
    assert chat(port)[0] == 200

    home.fleetctl("down", "--yes", timeout_s=120)
    assert [process.cmdline() for process in home.processes()] == []
