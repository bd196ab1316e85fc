"""Fleets whose weights lie in S3: instances fetch them with their role before their engines start, or say why they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from openai import OpenAI

from tests.aws.booted_home import booted_home, shared_instance_profile
from tests.aws.cloud.client import running_cloud
from tests.aws.policies import make_role, refused, shipped
from tests.e2e.fleet import live_replicas
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.enable_socket]

FLEET, ROLE, BUCKET, PREFIX = "stored", "fleetctl-engines", "fleetctl-team-weights", "llama/8b"
SOURCE, MODEL = f"s3://{BUCKET}/{PREFIX}", "meta-llama/Llama-3.1-8B-Instruct"
FILES = {"config.json": b"{}", "model-00001.safetensors": b"1" * 3_000_000, "model-00002.safetensors": b"2" * 2_000_000}
PROFILE = shared_instance_profile(FLEET, cap_usd=90).replace(
    "quantization: bf16", f"quantization: bf16, path: {SOURCE}"
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        running.price("p5.48xlarge", "spot", 20.0)
        s3 = running.boto("s3")
        s3.create_bucket(Bucket=BUCKET)
        for name, content in FILES.items():
            s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=content)
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, FLEET) as home:
        home.env["FLEETCTL_AWS_INSTANCE_PROFILE"] = ROLE
        yield home


def brought_up(home: Home, *options: str) -> int:
    """Bring the fleet up, and return its gateway's port."""
    port = free_port()
    profile = home.root / f"{FLEET}.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    shown = home.fleetctl("doctor", str(profile))
    assert f"{SOURCE}: 3 files, 4.77MiB" in shown, shown
    found = home.run("up", str(profile), "--yes", *options, timeout_s=200)
    assert found.code == 0, found.err
    return port


def on_instance(cloud: Cloud, instance: str, script: str) -> str:
    """Return what a script writes there, as Systems Manager runs it."""
    ssm = cloud.boto("ssm")
    sent = ssm.send_command(
        DocumentName="AWS-RunShellScript", InstanceIds=[instance], Parameters={"commands": [script]}
    )
    command: dict[str, Any] = {"CommandId": sent["Command"]["CommandId"], "InstanceId": instance}
    found = until(
        lambda: ended(ssm.get_command_invocation(**command)),
        "the script has ended",
        explain=lambda: cloud.console(instance),
    )
    return str(found["StandardOutputContent"])


def ended(found: dict[str, Any]) -> dict[str, Any]:
    return {} if found["Status"] == "InProgress" else found


def test_an_instance_fetches_them_once_for_all_its_replicas_and_answers_by_the_models_name(
    home: Home, cloud: Cloud
) -> None:
    make_role(cloud, ROLE, shipped("aws-engine-policy"))
    cloud.hold_to(shipped("aws-policy"), roles=True)
    # A fetch that is over before anybody has looked is no phase that anybody saw.
    cloud.fault("delay", action="GetObject", seconds=5.0, times=1)
    port = brought_up(home)
    ready = [row.record for row in live_replicas(home.status(FLEET)) if row.record.state.value == "ready"]
    assert len(ready) == 2
    (instance,) = {record.node_id.partition("/")[0] for record in ready}
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8)
    assert (chat.model, bool(chat.choices[0].message.content)) == (MODEL, True)
    for record in ready:
        shown = home.fleetctl("why", record.id, "--fleet", FLEET)
        assert ", weights " in next(line for line in shown.splitlines() if line.startswith("Start "))

    written = on_instance(
        cloud, instance, "cd /var/lib/fleetctl/weights/*/8b && wc -c * && head -c 9 model-00002.safetensors"
    )
    sizes = {line.split()[1]: line.split()[0] for line in written.splitlines()[:3]}
    assert sizes == {name: str(len(content)) for name, content in FILES.items()}
    assert written.endswith("222222222")
    fetched = [each["parameters"]["Key"] for each in cloud.calls("GetObject") if each["parameters"]["Bucket"] == BUCKET]
    assert sorted(set(fetched)) == sorted(f"{PREFIX}/{name}" for name in FILES)
    assert fetched.count(f"{PREFIX}/config.json") == 1, "the second replica found it"
    assert refused(cloud) == []


def test_a_bucket_that_the_instances_role_may_not_read_is_named_by_status_and_why(home: Home, cloud: Cloud) -> None:
    policy = shipped("aws-engine-policy")
    lacking = [each for each in policy["Statement"] if "Weights" not in each["Sid"]]
    make_role(cloud, ROLE, {**policy, "Statement": lacking})
    cloud.hold_to(shipped("aws-policy"), roles=True)
    brought_up(home, "--detach")
    named = f"weights at {SOURCE}/ were not fetched: AccessDenied ("

    def waits() -> list[str]:
        rows = home.status(FLEET).replicas
        return [row.record.id for row in rows if named in row.pending_reason]

    (first, *_) = until(waits, "its start says why", within_s=90, explain=lambda: why_not(home, cloud))
    assert f"Waits    {named}" in home.fleetctl("why", first, "--fleet", FLEET)

    def ends() -> bool:
        return named in home.fleetctl("events", FLEET, "--limit", "100")

    until(ends, "the journal says what its instance ended of", within_s=120, explain=lambda: why_not(home, cloud))
    (lane,) = until(
        lambda: [each for each in home.status(FLEET).lanes if each.cannot_start], "no other is tried", within_s=30
    )
    assert lane.engine_fault is not None
    assert named in lane.engine_fault.line
    assert not [each for each in cloud.calls("GetObject") if each["parameters"]["Bucket"] == BUCKET]


def why_not(home: Home, cloud: Cloud) -> str:
    consoles = [cloud.console(each["id"])[-3000:] for each in cloud.instances()]
    return "\n".join([*consoles, home.run("events", FLEET, "--limit", "40").out])
