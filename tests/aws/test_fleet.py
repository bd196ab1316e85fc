"""A whole fleet on AWS: `up` from a profile boots instances, requests are answered by their engines, notices, `down`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from openai import OpenAI

from fleetctl import plugins
from tests.aws.booted_home import booted_home
from tests.aws.cloud.client import running_cloud
from tests.e2e.fleet import live_replicas
from tests.living_profiles import placed_profile
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.essential,
    pytest.mark.timeout(600),
    pytest.mark.enable_socket,
    pytest.mark.skipif("aws" not in plugins.installed(plugins.PROVIDERS), reason="no provider `aws` is installed"),
]

PHASES = ["ordered", "user-data", "image", "loading", "warm-up"]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = placed_profile(
    "booted",
    provider="aws",
    lane="chat",
    replicas="min: 2, max: 3",
    ttft="2s",
    output_tokens="p50: 32, p99: 100",
    startup="12s",
    keys="""\
    spot: all
capacity: {gpus: [L40S], max_nodes: 4}
gateway: {host: 127.0.0.1, port: PORT}
""",
)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, "booted") as home:
        yield home


def ready(home: Home) -> list[Any]:
    rows = live_replicas(home.status("booted"))
    return [row.record for row in rows if row.record.state.value == "ready"]


def test_requests_are_answered_by_booted_instances_through_an_interruption(home: Home, cloud: Cloud) -> None:
    port = free_port()
    profile = home.root / "booted.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    shown = home.run("up", str(profile), "--yes", timeout_s=240)
    assert shown.code == 0, shown.err
    (last,) = re.findall(r"booted: last came (r\d+): (.*)", shown.err)
    phases = [part.split()[0] for part in last[1].split(", ")]
    assert [phase for phase in phases if phase != "launching"] == PHASES
    assert "Start    ordered " in home.fleetctl("why", last[0], "--fleet", "booted")
    cloud.until(lambda: len(ready(home)) >= 2, "two replicas are ready", seconds=120)
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)

    def reply() -> str:
        chat = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
        return chat.choices[0].message.content or ""

    assert reply()
    sees_logs(home, cloud, last[0])
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


def sees_logs(home: Home, cloud: Cloud, replica: str) -> None:
    """Read an engine's log from its instance, and be told which right that takes where it is missing."""
    command = ("logs", replica, "--fleet", "booted")
    (instance,) = [record.node_id for record in ready(home) if record.id == replica]

    def sent() -> int:
        return sum(each["parameters"]["InstanceIds.1"] == instance for each in cloud.calls("SendCommand"))

    before = sent()
    assert "look-alike ready on" in home.fleetctl(*command, "--tail", "100")
    assert sent() == before + 1, "one look is one command"
    assert home.fleetctl(*command, "--tail", "0") == ""
    cloud.fault("error", action="SendCommand", code="AccessDeniedException")
    refused = home.run(*command)
    assert (refused.code, "ssm:SendCommand and ssm:GetCommandInvocation" in refused.err) == (13, True), refused.err
    cloud.clear_faults()
    cloud.fault("error", action="SendCommand", code="InvalidInstanceId")
    refused = home.run(*command)
    assert (refused.code, "docs/aws-engine-policy.json" in refused.err) == (10, True), refused.err
    cloud.clear_faults()


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
