"""A fleet whose controller and gateway live on a head: `up` from a laptop, requests, deaths, another laptop, `down`."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from openai import DefaultHttpxClient, OpenAI, OpenAIError

from fleetctl.certificates import client_context, read_certificate
from tests.aws.cloud.client import running_cloud
from tests.aws.cloud.network import why_not_namespaced
from tests.aws.cloud.reaper import processes_of
from tests.aws.policies import make_role, refused, rights_used, shipped
from tests.aws.test_fleet import MODEL, PROFILE, what_is_left
from tests.certificates import make_certificate
from tests.e2e.fleet import Home, live_replicas
from tests.ports import free_port
from tests.ssh.hosts import SSHD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.enable_socket,
    pytest.mark.skipif(bool(why_not_namespaced()), reason="a head needs a network namespace of its own"),
    pytest.mark.skipif(not Path(SSHD).exists(), reason="no sshd: ./install.sh test installs it where apt-get is"),
]

BUCKET, ROLE, PARAMETER = "fleetctl-tests", "fleetctl-head", "/fleetctl/newest"
HEAD = f"""host: {{kind: node, instance_profile: {ROLE}, elastic_ip: KEPT, ami: "ssm:{PARAMETER}"}}
gateway: {{host: 127.0.0.1, port: PORT, tls: {{certificate: tls/chain.pem, key: tls/key.pem}}}}
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        running.behave(ending_s=0.5)
        running.boto("s3").create_bucket(Bucket=BUCKET)
        publish(running, running.image())
        # Whoever is at a laptop and the head are allowed what the docs' policy allows.
        make_role(running, ROLE, shipped("aws-policy"))
        running.hold_to(shipped("aws-policy"), roles=True)
        yield running


@pytest.fixture
def laptops(cloud: Cloud) -> Iterator[list[Home]]:
    """Two people's machines, with the same account and state."""
    port = cloud.url.rpartition(":")[2]
    variables = {
        **cloud.environment,
        "AWS_ENDPOINT_URL": f"http://{cloud.facts['host']}:{port}",
        "FLEETCTL_AWS_IMAGE": "example.com/emulator:1",
        "FLEETCTL_STATE": f"s3://{BUCKET}/team",
    }
    homes = [Home(root=Path(tempfile.mkdtemp(prefix="fh-")), env=variables) for _ in range(2)]
    yield homes
    homes[0].run("down", "booted", "--yes")
    for home in homes:
        end_tunnels(home)
        left = home.kill_everything()
        shutil.rmtree(home.root, ignore_errors=True)
        assert left == []


def publish(cloud: Cloud, image: str) -> str:
    """Have the parameter that the profile names hold a machine image."""
    cloud.boto("ssm").put_parameter(Name=PARAMETER, Value=image, Type="String", Overwrite=True)
    return image


def lose(cloud: Cloud, head: str) -> None:
    """Have a head lost for good, after its parameter has moved."""
    publish(cloud, newer_image(cloud))
    cloud.boto("ec2").terminate_instances(InstanceIds=[head])
    cloud.until(lambda: head not in heads(cloud, "running", "shutting-down"), "it is gone", seconds=60)


def newer_image(cloud: Cloud) -> str:
    """Return another image than the first head's."""
    return str(min({*cloud.facts["images"][cloud.region].values()} - {cloud.image()}))


def refresh_image(home: Home, cloud: Cloud) -> None:
    """Have the next head start from the newer image, whose parameter then goes: what is kept does without it."""
    running = heads(cloud, "running")
    shown = home.run("up", str(home.root / "booted.yaml"), "--yes", "--refresh-images", timeout_s=120)
    assert shown.code == 0, shown.err
    assert heads(cloud, "running") == running
    assert f"the next head of booted starts from {newer_image(cloud)} (ssm:{PARAMETER}); the one that runs" in shown.err
    cloud.boto("ssm").delete_parameter(Name=PARAMETER)


def image_of(cloud: Cloud, head: str) -> str:
    """Return the image that a head was launched from."""
    (shown,) = cloud.boto("ec2").describe_instances(InstanceIds=[head])["Reservations"][0]["Instances"]
    return str(shown["ImageId"])


def end_tunnels(home: Home) -> None:
    for process in psutil.process_iter(["cmdline"]):
        if str(home.root) in " ".join(process.info["cmdline"] or ()):
            process.kill()


def heads(cloud: Cloud, *states: str) -> list[str]:
    """Return the heads' instances."""
    reservations = cloud.boto("ec2").describe_instances(Filters=[{"Name": "tag-key", "Values": ["fleetctl:head"]}])
    found = [each for reservation in reservations["Reservations"] for each in reservation["Instances"]]
    return [each["InstanceId"] for each in found if not states or each["State"]["Name"] in states]


def engines(cloud: Cloud) -> set[str]:
    return {each["id"] for each in cloud.instances("running")} - set(heads(cloud))


def pids_of(cloud: Cloud, module: str) -> set[int]:
    """Return the processes of a head that run a module."""
    found = set()
    networks = {network_of(process.pid) for process in processes_of(cloud.facts["directory"])}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if module in words and words[0].startswith("/opt/fleetctl/") and network_of(process.pid) in networks:
            found.add(process.pid)
    return found


def network_of(pid: int) -> str:
    """Return the network namespace that a process is in; empty: it has ended."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    return ""


def ready(home: Home) -> list[Any]:
    return [row for row in live_replicas(home.status("booted")) if row.record.state.value == "ready"]


def reply(home: Home, port: int) -> str:
    """Return what a model answers at a laptop's own address, by the certificate that it has now; empty: nothing."""
    trusted = client_context(read_certificate(str(home.root / "tls" / "chain.pem")).pem)
    with (
        DefaultHttpxClient(verify=trusted, trust_env=False) as http,
        OpenAI(
            base_url=f"https://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=30, http_client=http
        ) as client,
    ):
        try:
            chat = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
            )
        except OpenAIError:
            return ""
    return chat.choices[0].message.content or ""


def holds_key(cloud: Cloud, head: str) -> bool:
    """Whether the gateway's key is in clear in a head's user data or in the state."""
    attribute = cloud.boto("ec2").describe_instance_attribute(InstanceId=head, Attribute="userData")
    texts = [base64.b64decode(attribute["UserData"]["Value"])]
    s3 = cloud.boto("s3")
    names = [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET)["Contents"] if "/heads/" not in each["Key"]]
    texts += [s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names]
    assert len(texts) > 1
    return any(b"PRIVATE KEY" in text for text in texts)


def bring_up(home: Home, cloud: Cloud) -> int:
    """Return the port that the fleet answers at."""
    port = free_port()
    profile = home.root / "booted.yaml"
    make_certificate(home.root / "tls")
    kept = cloud.boto("ec2").allocate_address(Domain="vpc")["AllocationId"]
    text = PROFILE.partition("gateway:")[0] + HEAD.replace("PORT", str(port)).replace("KEPT", kept)
    profile.write_text(text)
    shown = home.run("up", str(profile), "--yes", timeout_s=420)
    assert shown.code == 0, f"{shown.err}\n{''.join(cloud.console(each) for each in heads(cloud))[-6000:]}"
    assert f"https://127.0.0.1:{port}/v1" in shown.out
    assert "head 1 of booted is ordered" in shown.err
    # How far it was is looked at once a second: a quick machine is past any one of these between two looks.
    assert re.search(
        r"head 1 \(i-\w+\): (its machine starts|running at \S+, installing fleetctl|up, its controller)", shown.err
    )
    (head,) = heads(cloud, "running")
    status = home.fleetctl("status", "booted")
    assert re.search(
        rf"Head     {head} at \S+, number 1, fleetctl \S+, from {cloud.image()} \(ssm:{PARAMETER}\)", status
    )
    return port


def address_leads_to(cloud: Cloud) -> str:
    """Return the instance that the one Elastic IP of the account leads to; empty: none."""
    (kept,) = cloud.boto("ec2").describe_addresses()["Addresses"]
    return str(kept.get("InstanceId", ""))


def kill_processes(cloud: Cloud) -> None:
    """Kill controller and gateway of the head."""
    for module in ("fleetctl.controller", "fleetctl.gateway"):
        victims = pids_of(cloud, module)
        assert victims, module
        for pid in victims:
            os.kill(pid, signal.SIGKILL)


def test_a_fleet_outlives_the_laptop_and_its_head(laptops: list[Home], cloud: Cloud) -> None:
    first, second = laptops
    port = bring_up(first, cloud)
    assert reply(first, port)
    (head,) = heads(cloud, "running")
    cloud.until(lambda: address_leads_to(cloud) == head, "the fleet's address leads to its head", seconds=60)
    assert not holds_key(cloud, head)
    assert len(engines(cloud)) == 2
    assert "keeping fleet booted" in first.fleetctl("logs", "controller", "--fleet", "booted")

    kill_processes(cloud)
    cloud.until(lambda: reply(first, port) and first.status("booted").controller_alive, "both are back", seconds=90)
    assert heads(cloud, "running") == [head], "on the same machine"

    # A renewed certificate is brought there by the next `up`, and served without a restart.
    make_certificate(first.root / "tls")
    assert not reply(first, port)
    assert first.run("up", str(first.root / "booted.yaml"), "--yes", timeout_s=120).code == 0
    cloud.until(lambda: reply(first, port), "the renewed certificate is served", seconds=60)

    # Somebody else's laptop sees it live, and changes it.
    assert second.status("booted").controller_alive
    second.fleetctl("scale", "chat", "3", "--fleet", "booted", timeout_s=120)
    cloud.until(lambda: len(ready(second)) == 3, "a third replica is ready", seconds=180)

    # The head is lost with its disk: engines go on, and whoever looks next has another made.
    rented = engines(cloud)
    lose(cloud, head)
    cloud.until(lambda: second.status("booted").controller_alive, "another head keeps the fleet", seconds=300)
    (other,) = heads(cloud, "running")
    assert other != head
    assert image_of(cloud, other) == image_of(cloud, head) == cloud.image()
    cloud.until(lambda: address_leads_to(cloud) == other, "the fleet's address leads to the new head", seconds=60)
    assert engines(cloud) == rented
    first.status("booted")
    cloud.until(lambda: reply(first, port), "requests are answered through the first laptop again", seconds=60)
    assert "head 2 of booted is ordered" in first.fleetctl("events", "booted", "--limit", "1000")

    refresh_image(first, cloud)

    # That one hangs: it answers nobody, and EC2 shows it running. `down` does not wait for it, and leaves nothing.
    cloud.crash(other)
    shown = second.run("down", "booted", "--yes", timeout_s=540)
    assert shown.code == 0, shown.err
    assert "head 2 has not been reached for" in shown.err
    assert not cloud.instances("pending", "running", "shutting-down", "stopping", "stopped")
    assert what_is_left(cloud) == {}
    names = [each["Key"] for each in cloud.boto("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    assert [name for name in names if "/heads/" in name] == []
    assert refused(cloud) == []
    assert rights_used(cloud) | rights_used(cloud, of_roles=True) >= {"ec2:AssociateAddress", "ec2:DescribeAddresses"}
