"""A fleet's processes carry what they need of the shell that ran `up`, and come back with it whoever starts them again."""

from __future__ import annotations

import http.client
import os
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.fleet import Home
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    import psutil

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CANARY = "canary-that-no-process-may-carry"
SECRETS = (
    "AWS_SECRET_ACCESS_KEY",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "FLEETCTL_API_KEY",
    "VLLM_API_KEY",
    "MY_OWN_THING",
)
KEY = "a-gateway-key-of-more-than-thirty-two-characters"
PROFILE = """
apiVersion: fleetctl/v1
name: bare
model: {{id: meta-llama/Llama-3.1-8B-Instruct, served_name: m}}
engine: emulator
emulator: {{speed: 50}}
provider: local
workload: {{peak_rps: 1, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 8, p99: 20}}}}
lanes:
  short:
    slo: {{ttft: {{p99: 2s}}}}
    max_wait: 10s
    replicas: 1
    spot: none
    launch: {{env: {{HF_TOKEN: "env:HUB_TOKEN"}}}}
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}, api_keys: ["env:MY_GATEWAY_KEY"]}}
"""


def environment_of(process: psutil.Process) -> dict[str, str]:
    with open(f"/proc/{process.pid}/environ", "rb") as file:  # noqa: PTH123  # the kernel's, at once
        return dict(pair.partition("=")[::2] for pair in file.read().decode().split("\0") if pair)


def by_role(home: Home) -> dict[str, dict[str, str]]:
    """Return what each of the fleet's processes was started with."""
    found = {}
    for process in home.processes():
        words = process.cmdline()
        role = words[2].removeprefix("fleetctl.") if words[1:2] == ["-m"] else words[0]
        found[role] = environment_of(process)
    return found


def answers(port: int, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {key}"})
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_a_controller_started_from_cron_is_the_one_started_from_the_rich_shell(home: Home) -> None:
    port = free_port()
    profile = home.root / "bare.yaml"
    profile.write_text(PROFILE.format(port=port))
    canaries = {name: f"{CANARY}-{name}" for name in SECRETS}
    needed = {"LC_ALL": "C.UTF-8", "NO_PROXY": "rich.example", "SSL_CERT_DIR": "/etc/ssl/certs", "TMPDIR": "/tmp"}  # noqa: S108
    rich = Home(
        root=home.root, env=canaries | needed | {"HUB_TOKEN": f"hub-{CANARY}", "MY_GATEWAY_KEY": KEY, "PS1": "$ "}
    )
    rich.fleetctl("up", str(profile), "--yes", timeout_s=120)
    first = by_role(home)
    assert sorted(first) == ["controller", "fleetctl_emulator", "gateway"]
    for role in ("controller", "gateway"):
        assert CANARY not in "".join(first[role].values())
        assert KEY not in first[role].values()
    assert {name: first["controller"].get(name) for name in needed} == needed
    assert sorted(first["gateway"].keys() & needed.keys()) == ["LC_ALL", "TMPDIR"]
    engine = first["fleetctl_emulator"]
    assert engine.pop("HF_TOKEN") == f"hub-{CANARY}"  # as its profile asks
    assert CANARY not in "".join(engine.values())

    place = Path(home.environment["XDG_STATE_HOME"]) / "fleetctl" / "fleets" / "bare" / "environment.json"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    elsewhere = [path for path in home.root.rglob("*") if path.is_file() and path != place]
    assert [
        path for path in elsewhere if CANARY.encode() in path.read_bytes() or KEY.encode() in path.read_bytes()
    ] == []
    assert [words for process in home.processes() if CANARY in (words := " ".join(process.cmdline()))] == []

    # Everything of it dies at once, as in a crash; a job of cron's is who starts it again.
    for process in home.processes():
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: home.processes() == [], "nothing lives", explain=lambda: by_role(home))
    home.fleetctl("scale", "short", "1", timeout_s=120)
    until(lambda: sorted(by_role(home)) == sorted(first), "the same live again", explain=home.logs)
    again = by_role(home)
    assert again["controller"] == first["controller"]
    engine_again = again["fleetctl_emulator"]
    assert engine_again.pop("HF_TOKEN") == f"hub-{CANARY}"
    del needed["TMPDIR"]  # each node has one of its own
    assert {name: engine_again.get(name) for name in needed} == needed
    until(lambda: answers(port, KEY) == 200, "a request is answered", explain=home.logs)
    assert answers(port, "another-key") == 401

    home.fleetctl("down", "--yes", timeout_s=120)
    assert not place.exists()
