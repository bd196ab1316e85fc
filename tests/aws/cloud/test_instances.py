"""Instances boot: what their user data says really runs, at an address of their own, until something ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pytest
import yaml
from botocore.exceptions import ClientError

from tests.aws.cloud.client import running_cloud
from tests.aws.cloud.reaper import processes_of
from tests.aws.cloud.test_faults import SPOT
from tests.aws.cloud.test_launches import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud

pytestmark = pytest.mark.enable_socket  # instances have addresses of their own
PORT = 8000
START = """#!/bin/sh
set -eu
exec docker run --rm --name engine --publish 8000:8000 --gpus '"device=0"' --env GREETING=hello --entrypoint python3 \
    example.com/image:1 {program}
"""
SERVER = "-m http.server --bind 0.0.0.0 8000"
UNIT = """[Unit]
StartLimitIntervalSec=600
StartLimitBurst=2
StartLimitAction=poweroff

[Service]
Type=exec
ExecStartPre=-/usr/bin/docker rm --force engine
ExecStartPre=/usr/bin/docker pull example.com/image:1
ExecStart=/opt/fleetctl/start-engine
KillMode=mixed
TimeoutStopSec=10
Restart=always
RestartSec=100ms
"""
EXPIRE = """#!/bin/sh
set -eu
metadata=${FLEETCTL_METADATA:-http://169.254.169.254/latest}
token=$(curl -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token")
tag=$(curl -fsS -m 5 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/tags/instance/expires")
left=$((${tag} - $(cut -d. -f1 /proc/uptime)))
echo "left: $left"
[ "$left" -gt 0 ] || systemctl poweroff
"""


def user_data(*, program: str = SERVER, commands: tuple[list[str], ...] = ()) -> str:
    """Return a cloud-config with one engine, and a timer that looks at a tag."""
    units = "/etc/systemd/system"
    files = {
        "/opt/fleetctl/start-engine": START.format(program=program),
        "/opt/fleetctl/expire": EXPIRE,
        f"{units}/engine.service": UNIT,
        f"{units}/expiry.service": "[Service]\nType=oneshot\nExecStart=/opt/fleetctl/expire\n",
        f"{units}/expiry.timer": "[Timer]\nOnActiveSec=100ms\nOnUnitActiveSec=300ms\n",
    }
    written = [{"path": path, "permissions": "0755", "content": content} for path, content in files.items()]
    started = [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", "--no-block", "engine.service"]]
    return "#cloud-config\n" + yaml.safe_dump({"write_files": written, "runcmd": [*started, *commands]})


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


def boot(cloud: Cloud, text: str, *, tags: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    wanted = {
        "UserData": text,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        **fields,
    }
    if tags:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        wanted["TagSpecifications"] = [{"ResourceType": "instance", "Tags": listed}]
    found: dict[str, Any] = run(cloud, **wanted)["Instances"][0]
    return found


def answers(instance: dict[str, Any]) -> bool:
    try:
        with urlopen(f"http://{instance['PrivateIpAddress']}:{PORT}/", timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def parts_of(network: int) -> set[tuple[str, str]]:
    """Return the namespaces and the bridge of a cloud by its number, each as the kernel tells it from a later one of that name."""
    found = {(each.name, str(each.stat().st_ino)) for each in Path("/run/netns").glob(f"fcn{network}-*")}
    bridge = Path(f"/sys/class/net/fcb{network}/ifindex")
    return found | ({("bridge", bridge.read_text())} if bridge.exists() else set())


def reason(cloud: Cloud, instance: dict[str, Any]) -> str:
    """Return why an instance is terminated; empty: it is not."""
    (found,) = (each for each in cloud.instances() if each["id"] == instance["InstanceId"])
    return str(found["reason"]) if found["state"] == "terminated" else ""


def test_two_instances_serve_at_addresses_of_their_own(cloud: Cloud) -> None:
    first, second = boot(cloud, user_data()), boot(cloud, user_data())
    assert first["PrivateIpAddress"] != second["PrivateIpAddress"]
    cloud.until(lambda: answers(first) and answers(second), "both engines answer")
    cloud.boto("ec2").terminate_instances(InstanceIds=[first["InstanceId"]])
    cloud.until(lambda: reason(cloud, first) == "Client.UserInitiatedShutdown", "the first has ended")
    assert not answers(first)
    assert answers(second)


def test_a_container_has_the_environment_it_was_given(cloud: Cloud) -> None:
    instance = boot(cloud, user_data(program="""-c 'import os; print("greeting:", os.environ["GREETING"])'"""))
    cloud.until(lambda: "greeting: hello" in cloud.console(instance["InstanceId"]), "the engine has printed it")


def test_an_interruption_is_in_the_metadata_and_then_takes_the_address_away(cloud: Cloud) -> None:
    program = """[
import json, sys, time, urllib.request as u
base = sys.argv[1] + "/latest/"
def get(path, **headers):
    return u.urlopen(u.Request(base + path, headers=headers), timeout=5).read().decode()
token = u.urlopen(u.Request(base + "api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})).read().decode()
while True:
    try:
        print("notice:", get("meta-data/spot/instance-action", **{"X-aws-ec2-metadata-token": token}), flush=True)
        break
    except u.HTTPError as error:
        print("none:", error.code, flush=True)
        time.sleep(0.2)
]"""
    watch = ["python3", "-c", program.strip("[]\n"), "http://169.254.169.254"]
    instance = boot(cloud, user_data(commands=(watch,)), **SPOT)
    cloud.until(lambda: answers(instance), "the engine answers")
    cloud.until(lambda: "none: 404" in cloud.console(instance["InstanceId"]), "the metadata has no notice")
    cloud.interrupt(instance["InstanceId"], notice_s=2.0)
    cloud.until(lambda: '"action": "terminate"' in cloud.console(instance["InstanceId"]), "the metadata has the notice")
    cloud.until(lambda: reason(cloud, instance) == "Server.SpotInstanceTermination", "EC2 has ended it")
    assert not answers(instance)


def test_an_engine_that_keeps_dying_ends_its_instance(cloud: Cloud) -> None:
    instance = boot(cloud, user_data(program="-c 'raise SystemExit(3)'"))
    cloud.until(lambda: reason(cloud, instance) == "Client.InstanceInitiatedShutdown", "it has ended itself")


def test_the_expiry_timer_ends_an_instance_unless_its_tag_is_renewed(cloud: Cloud) -> None:
    timer = (["systemctl", "enable", "--now", "expiry.timer"],)
    instance = boot(cloud, user_data(commands=timer), tags={"expires": "3600"})
    cloud.until(lambda: "left: 3" in cloud.console(instance["InstanceId"]), "the timer has read the tag")
    assert reason(cloud, instance) == ""
    tag = [{"Key": "expires", "Value": "0"}]
    cloud.boto("ec2").create_tags(Resources=[instance["InstanceId"]], Tags=tag)
    cloud.until(lambda: reason(cloud, instance) == "Client.InstanceInitiatedShutdown", "it has expired")


def test_a_crashed_machine_is_silent_while_ec2_shows_it_as_running(cloud: Cloud) -> None:
    instance = boot(cloud, user_data())
    cloud.until(lambda: answers(instance), "the engine answers")
    cloud.crash(instance["InstanceId"])
    assert not answers(instance)
    assert [each["state"] for each in cloud.instances() if each["id"] == instance["InstanceId"]] == ["running"]
    cloud.boto("ec2").terminate_instances(InstanceIds=[instance["InstanceId"]])
    cloud.until(lambda: reason(cloud, instance), "it can be terminated all the same")


def test_user_data_that_is_no_cloud_config_says_so_on_the_console(cloud: Cloud) -> None:
    instance = boot(cloud, "#cloud-config\nswap: {}\n")
    cloud.until(
        lambda: "not played by the tests' instances: swap" in cloud.console(instance["InstanceId"]), "it is refused"
    )


def test_an_instance_that_did_not_launch_does_not_boot(cloud: Cloud) -> None:
    cloud.limit(0)
    with pytest.raises(ClientError):
        boot(cloud, user_data())
    assert cloud.instances() == []


def test_on_loopback_addresses_instances_do_the_same() -> None:
    with running_cloud("--boot", "--loopback") as cloud:
        assert not cloud.facts["namespaced"]
        timer = (["systemctl", "enable", "--now", "expiry.timer"],)
        instance = boot(cloud, user_data(commands=timer), tags={"expires": "3600"}, **SPOT)
        other = boot(cloud, user_data())
        cloud.until(lambda: answers(instance) and answers(other), "both engines answer")
        cloud.until(lambda: "left: 3" in cloud.console(instance["InstanceId"]), "the timer has read the tag")
        cloud.interrupt(instance["InstanceId"], notice_s=0.5)
        cloud.until(lambda: reason(cloud, instance) == "Server.SpotInstanceTermination", "EC2 has ended it")
        assert not answers(instance)
        directory = cloud.facts["directory"]
    cloud.until(lambda: not Path(directory).exists(), "the reaper is done")
    assert processes_of(directory) == []
    assert not answers(other)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_cloud_that_is_killed(end: signal.Signals) -> None:
    with running_cloud("--boot") as cloud:
        instance = boot(cloud, user_data())
        cloud.until(lambda: answers(instance), "the engine answers")
        directory, network = cloud.facts["directory"], cloud.facts["number"]
        assert processes_of(directory)
        made = parts_of(network)
        assert len(made) >= 2, "a namespace and the bridge"
        os.kill(cloud.process.pid, end)
        cloud.process.wait(timeout=20)
        cloud.until(lambda: not Path(directory).exists(), "the reaper is done")
        assert processes_of(directory) == []
        assert not made & parts_of(network), "another cloud may have taken the number, and these are gone"
        assert not answers(instance)


def test_nothing_is_left_of_a_cloud_whose_test_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import sys, time\n"
        "from tests.aws.cloud.client import running_cloud\n"
        "with running_cloud('--boot') as cloud:\n"
        "    print(cloud.process.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, script],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": "."},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as test:
        assert test.stdout is not None
        server = psutil.Process(int(test.stdout.readline()))
        test.kill()
    server.wait(timeout=20)
