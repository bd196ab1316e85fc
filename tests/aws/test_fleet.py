"""A whole fleet on AWS: `up` from a profile boots instances, requests are answered by their engines, notices, `down`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import OpenAI

from fleetctl import plugins
from tests.aws.cloud.client import running_cloud
from tests.e2e.fleet import Home, free_port, live_replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.enable_socket,
    pytest.mark.skipif("aws" not in plugins.installed(plugins.PROVIDERS), reason="no provider `aws` is installed"),
]

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = """
apiVersion: fleetctl/v1
name: booted
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: aws
workload:
  peak_rps: 2
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 32, p99: 100}
lanes:
  chat:
    slo: {ttft: {p99: 2s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: 2, max: 3}
    spot: all
capacity: {gpus: [L40S], max_nodes: 4}
gateway: {host: 127.0.0.1, port: PORT}
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    variables = {
        **cloud.environment,
        "FLEETCTL_AWS_IMAGE": "example.com/emulator:1",
        "FLEETCTL_AWS_GATEWAY_SOURCE": f"{cloud.facts['host']}/32",
    }
    home = Home(root=root, env=variables)
    yield home
    home.run("down", "booted", "--yes")
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def ready(home: Home) -> list[Any]:
    rows = live_replicas(home.status("booted"))
    return [row.record for row in rows if row.record.state.value == "ready"]


def test_requests_are_answered_by_booted_instances_through_an_interruption(home: Home, cloud: Cloud) -> None:
    port = free_port()
    profile = home.root / "booted.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=240)
    cloud.until(lambda: len(ready(home)) >= 2, "two replicas are ready", seconds=120)
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)

    def reply() -> str:
        chat = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
        return chat.choices[0].message.content or ""

    assert reply()
    before = cloud.instances("running")
    assert {each["lifecycle"] for each in before} == {"spot"}
    victim = before[0]["id"]
    cloud.interrupt(victim, notice_s=30)

    def is_replaced() -> bool:
        nodes = {record.node_id for record in ready(home)}
        return victim not in nodes and len(nodes) >= 2

    cloud.until(is_replaced, "another instance has taken the interrupted one's place", seconds=120)
    cloud.until(
        lambda: victim not in {each["id"] for each in cloud.instances("running")}, "AWS has taken it away", seconds=60
    )
    assert all(reply() for _ in range(5))

    home.fleetctl("down", "booted", "--yes", timeout_s=240)
    cloud.until(
        lambda: not cloud.instances("pending", "running", "shutting-down", "stopping", "stopped"),
        "no instance is left",
        seconds=120,
    )
    assert what_is_left(cloud) == {}


def what_is_left(cloud: Cloud) -> dict[str, list[str]]:
    """Return everything in the account that a fleet makes, by kind; nothing: no kind."""
    ec2, sqs, events, ssm = (cloud.boto(name) for name in ("ec2", "sqs", "events", "ssm"))
    found = {
        "volumes": [each["VolumeId"] for each in ec2.describe_volumes()["Volumes"]],
        "templates": [each["LaunchTemplateName"] for each in ec2.describe_launch_templates()["LaunchTemplates"]],
        "groups": [
            each["GroupName"]
            for each in ec2.describe_security_groups()["SecurityGroups"]
            if each["GroupName"] != "default"
        ],
        "queues": sqs.list_queues().get("QueueUrls", []),
        "rules": [each["Name"] for each in events.list_rules()["Rules"]],
        "parameters": [
            each["Name"] for each in ssm.describe_parameters()["Parameters"] if each["Name"].startswith("/fleetctl")
        ],
    }
    return {kind: names for kind, names in found.items() if names}
