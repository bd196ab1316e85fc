"""A fleet's whole life under the policies that ship with the docs: every call is allowed, and every right is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleetctl_aws.shared_policy import actions_in
from tests.aws.booted_home import booted_home
from tests.aws.cloud.client import running_cloud
from tests.aws.policies import ELSEWHERE, make_role, refused, rights_used, shipped
from tests.aws.test_fleet import what_is_left
from tests.e2e.fleet import live_replicas
from tests.living_profiles import placed_profile
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.enable_socket]

FLEET, ROLE, BUCKET, LOGS = "lawful", "fleetctl-engines", "fleetctl-lawful", "fleetctl-lawful-logs"
WEIGHTS = "fleetctl-lawful-weights"
# Two replicas on one machine, so that one is placed by tags; and a secret and weights, which the machine's role reads.
PROFILE = placed_profile(
    FLEET,
    provider="aws",
    lane="chat",
    replicas="min: 2, max: 4",
    ttft="2s",
    output_tokens="p50: 32, p99: 100",
    keys="""\
    spot: all
    launch: {tensor_parallel: 2, env: {HF_TOKEN: env:HF_TOKEN}}
capacity: {gpus: [H100], max_nodes: 3, max_cost_per_hour: $90}
gateway: {host: 127.0.0.1, port: PORT}
""",
).replace("quantization: bf16", f"quantization: bf16, path: s3://{WEIGHTS}/llama/8b")
# What of the agent's own is not played here: the cloud of tests looks at the policy before it hands a command over.
PLAYED = ("ec2messages:", "ssmmessages:", "ssm:UpdateInstanceInformation", "ssm:ListInstanceAssociations")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        running.price("p5.48xlarge", "spot", 20.0)
        for name in (BUCKET, LOGS, WEIGHTS):
            running.boto("s3").create_bucket(Bucket=name)
        running.boto("s3").put_object(Bucket=WEIGHTS, Key="llama/8b/config.json", Body=b"{}")
        make_role(running, ROLE, shipped("aws-engine-policy"))
        running.hold_to(shipped("aws-policy"), roles=True)
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, FLEET) as home:
        home.env.update(
            FLEETCTL_STATE=f"s3://{BUCKET}/team",
            FLEETCTL_AWS_INSTANCE_PROFILE=ROLE,
            FLEETCTL_AWS_LOGS=f"s3://{LOGS}/engines",
            HF_TOKEN="of-the-hub",  # noqa: S106  # of a test
        )
        yield home


def ready(home: Home) -> dict[str, Any]:
    rows = live_replicas(home.status(FLEET))
    return {row.record.id: row.record for row in rows if row.record.state.value == "ready"}


def why(home: Home, cloud: Cloud) -> str:
    """Return what was refused, and what machines have written."""
    consoles = [cloud.console(each["id"])[-3000:] for each in cloud.instances("running")]
    return "\n".join([*refused(cloud), *consoles, home.run("events", FLEET, "--limit", "40").out])


def test_a_fleets_life_takes_what_the_policies_allow_and_nothing_else(home: Home, cloud: Cloud) -> None:
    profile = home.root / f"{FLEET}.yaml"
    profile.write_text(PROFILE.replace("PORT", str(free_port())))
    shown = home.fleetctl("doctor", str(profile))
    assert "ec2:TerminateInstances" in shown
    assert "go by tags" in shown
    home.fleetctl("offers", str(profile))
    home.fleetctl("up", str(profile), "--yes", "--detach", timeout_s=120)
    until(lambda: len(ready(home)) >= 2, "two replicas are ready", within_s=180, explain=lambda: why(home, cloud))

    first, second, *_ = sorted(ready(home))
    assert "look-alike ready" in home.fleetctl("logs", first, "--fleet", FLEET)
    home.fleetctl("restart", second, "--fleet", FLEET, "--yes", timeout_s=120)
    home.fleetctl("scale", "chat", "4", "--fleet", FLEET, timeout_s=120)
    until(lambda: len(ready(home)) == 4, "four are ready", within_s=240, explain=lambda: why(home, cloud))
    (machine,) = {record.node_id.partition("/")[0] for record in ready(home).values()}
    cloud.interrupt(machine, notice_s=30)
    until(
        lambda: len([each for each in ready(home).values() if not each.node_id.startswith(machine)]) >= 2,
        "two are on another machine", within_s=180, explain=lambda: why(home, cloud),
    )  # fmt: skip
    cloud.until(lambda: machine in {each["id"] for each in cloud.instances("terminated")}, "it is gone", seconds=200)
    # What its engines wrote is there still, without a command on that machine.
    sent = len(cloud.calls("SendCommand"))
    log = home.fleetctl("logs", second, "--fleet", FLEET, "--tail", "200")
    assert log.count("look-alike ready") == 2, "before its restart and after it"
    assert machine not in str(cloud.calls("SendCommand")[sent:])
    home.fleetctl("gc")
    home.fleetctl("down", FLEET, "--yes", timeout_s=240)
    assert what_is_left(cloud) == {}
    assert "Contents" not in cloud.boto("s3").list_objects_v2(Bucket=LOGS)
    assert not cloud.instances("pending", "running")

    assert refused(cloud) == []
    assert actions_in(shipped("aws-policy")) - set(ELSEWHERE) == rights_used(cloud)
    granted = {each for each in actions_in(shipped("aws-engine-policy")) if not each.startswith(PLAYED)}
    assert granted == rights_used(cloud, of_roles=True)
