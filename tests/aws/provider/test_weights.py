"""Weights in S3: what an instance's script makes of them, run as it stands, and what is said of them beforehand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError
from fleetctl.model.node import ContainerLaunch, Mount
from fleetctl.model.preflight import Finding, PlannedNodes, Verdict
from fleetctl.model.remote_weights import remote_weights
from fleetctl.testing.samples import node_request, offering
from fleetctl_aws.instance_notices import boots_in
from fleetctl_aws.settings import AwsSettings
from fleetctl_aws.user_data import boot_files
from tests.aws.cloud.iam_policy import USER
from tests.aws.provider.test_orders import ORDER
from tests.providers.contract.cases import Account

if TYPE_CHECKING:
    from tests.aws.provider.conftest import Rented

BUCKET, PREFIX = "fleetctl-tests-weights", "models/llama-8b"
FOUND = remote_weights(f"s3://{BUCKET}/{PREFIX}")
assert FOUND is not None
WEIGHTS = FOUND
FILES = {"config.json": b"{}", "model-1.safetensors": b"1" * 300_000, "deeper/model-2.safetensors": b"2" * 200_000}
AWS = Path(__file__).parents[1] / "cloud/instance/aws.py"


def upload(rented: Rented, files: dict[str, bytes] = FILES) -> None:
    s3 = rented.cloud.boto("s3")
    s3.create_bucket(Bucket=BUCKET)
    for name, content in {**files, "../other/config.json": b"no"}.items():
        s3.put_object(Bucket=BUCKET, Key=os.path.normpath(f"{PREFIX}/{name}"), Body=content)
    # What consoles make of a directory.
    s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/", Body=b"")


@dataclass
class Machine:
    """A directory that an instance's script takes for the machine, with the AWS CLI of the tests' instances."""

    root: Path
    cloud_url: str

    @property
    def directory(self) -> Path:
        return self.root / WEIGHTS.directory.lstrip("/")

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "run/fleetctl-weights/state").read_text())
        return found

    def start(
        self, *, deadline_s: int = 30, url: str = "", changed: tuple[str, str] = ("", "")
    ) -> subprocess.Popen[str]:
        settings = AwsSettings(image="registry.example/emulator:1")
        files = boot_files(node_request(port=8000, weights=WEIGHTS), settings, region="us-east-1", secrets_path="")
        (text,) = (file.content for file in files if file.path.endswith("/fetch-weights"))
        for place in ("/var/lib/fleetctl", "/run/fleetctl", "/opt/dlami"):
            text = text.replace(place, f"{self.root}{place}")
            (self.root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        text = text.replace("+ 3600, 10,", f"+ {deadline_s}, 0.2,").replace(*changed)
        programs = self.root / "bin"
        programs.mkdir(exist_ok=True)
        cloud = json.dumps({"url": url or self.cloud_url, "region": "us-east-1", "role": USER})
        (programs / "aws").write_text(f"#!/bin/sh\nexec {sys.executable} {AWS} '{cloud}' \"$@\"\n")
        (programs / "aws").chmod(0o755)
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.root)}
        return subprocess.Popen(
            [sys.executable, "-c", text, "1"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip

    def run(self, **how: Any) -> tuple[int, str]:
        process = self.start(**how)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output

    def has(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.directory)): p.read_bytes() for p in self.directory.rglob("*") if p.is_file()}


@pytest.fixture
def machine(tmp_path: Path, rented: Rented) -> Machine:
    return Machine(root=tmp_path, cloud_url=rented.cloud.url)


def test_files_are_fetched_once_and_a_later_start_needs_no_s3(machine: Machine, rented: Rented) -> None:
    upload(rented)
    code, output = machine.run()
    assert code == 0, output
    assert machine.has() == FILES
    assert machine.state == {"total": 500_002, "done": 500_002}
    assert (machine.root / "run/fleetctl-boot/1").read_text().startswith("weights 1")
    code, output = machine.run(url="http://127.0.0.1:1")
    assert (code, "the weights are whole" in output) == (0, True), output


def test_what_was_cut_off_does_not_count_as_whole_and_what_is_whole_is_not_fetched_again(
    machine: Machine, rented: Rented
) -> None:
    upload(rented)
    assert machine.run()[0] == 0
    (machine.directory / "model-1.safetensors").write_bytes(b"1" * 1000)
    (machine.directory / "model-1.safetensors.1aBcD234").write_bytes(b"1" * 70_000)
    before = len(rented.cloud.calls())
    assert machine.run()[0] == 0
    assert machine.has() == FILES
    fetched = {each["parameters"]["Key"] for each in rented.cloud.calls()[before:] if each["action"] == "GetObject"}
    assert fetched == {f"{PREFIX}/model-1.safetensors"}


def test_starts_of_two_slots_fetch_once(machine: Machine, rented: Rented) -> None:
    upload(rented)
    before = len(rented.cloud.calls())
    both = [machine.start(), machine.start()]
    outputs = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    fetched = [each["parameters"]["Key"] for each in rented.cloud.calls()[before:] if each["action"] == "GetObject"]
    assert sorted(fetched) == sorted(f"{PREFIX}/{name}" for name in FILES)


def test_an_instance_store_takes_them_where_there_is_one(machine: Machine, rented: Rented) -> None:
    upload(rented)
    assert machine.run(changed=("NVME.is_mount()", "True or NVME.mkdir()"))[0] != 0, "there is no such directory"
    (machine.root / "opt/dlami/nvme").mkdir()
    assert machine.run(changed=("NVME.is_mount()", "True"))[0] == 0
    assert machine.directory.resolve().is_relative_to(machine.root / "opt/dlami/nvme")
    assert machine.has() == FILES


@pytest.mark.parametrize(
    ("code", "named"), [("AccessDenied", "AccessDenied"), ("NoSuchBucket", "NoSuchBucket"), ("", "no files")]
)
def test_what_no_repetition_mends_is_named_and_ends_the_start(
    machine: Machine, rented: Rented, code: str, named: str
) -> None:
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    if code:
        rented.cloud.fault("error", action="ListObjectsV2", code=code, status=403, times=None)
    status, output = machine.run()
    assert status == 1, output
    assert machine.state["fault"].startswith(f"weights at {WEIGHTS.source}/ were not fetched: {named} (")


def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(machine: Machine, rented: Rented) -> None:
    upload(rented)
    assert machine.run(changed=("2**30\n", "2**60\n"))[0] == 1
    assert "disk full (0.0 GiB are to come, and " in machine.state["fault"]
    assert machine.has() == {}


def test_what_may_pass_is_tried_again_until_the_deadline(machine: Machine, rented: Rented) -> None:
    upload(rented)
    rented.cloud.fault("error", action="GetObject", code="InternalError", status=500, times=1)
    assert machine.run()[0] == 0
    assert machine.has() == FILES
    status, output = Machine(root=machine.root / "other", cloud_url="http://127.0.0.1:1").run(deadline_s=3)
    assert (status, "not fetched" in output) == (1, True), output


def test_an_instance_tells_how_much_there_is_and_why_it_failed() -> None:
    slot = {"steps": [["weights", 2.0]], "bytes": 30, "rate": 2.0, "total": 40, "fault": "no\x1b[2J"}
    (boot,) = boots_in({"boot": {"0": slot}}).values()
    assert (boot.phase, boot.done_bytes, boot.total_bytes, boot.fraction) == ("weights", 30, 40, 0.75)
    assert boot.fault.isprintable()
    assert boots_in({"boot": {"0": {**slot, "total": "many"}}}) == {}


def planned(*, weights: object = WEIGHTS) -> tuple[PlannedNodes, ...]:
    return (PlannedNodes(offering=offering(), count=1, to_create=1, weights=weights),)  # type: ignore[arg-type]  # or None


async def of_weights(rented: Rented, **settings: Any) -> list[Finding]:
    preflight = rented.provider(**settings).capabilities.preflight
    assert preflight is not None
    return [each for each in await preflight.findings(planned()) if each.name == "weights"]


async def test_what_is_in_the_bucket_is_said_beforehand(rented: Rented) -> None:
    (missing,) = await of_weights(rented)
    assert (missing.verdict, f"there is no bucket {BUCKET}" in missing.detail) == (Verdict.FAIL, True)
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    (empty,) = await of_weights(rented)
    assert (empty.verdict, empty.detail) == (Verdict.FAIL, f"nothing is at {WEIGHTS.source}")
    upload(rented)
    (found,) = await of_weights(rented)
    assert (found.verdict, found.detail) == (Verdict.OK, f"{WEIGHTS.source}: 3 files, 488KiB")
    (small,) = await of_weights(rented, disk_gb=50)
    assert (small.verdict, "an instance's disk has 50 GB" in small.detail) == (Verdict.WARN, True)
    (nobody,) = await of_weights(rented, instance_profile="")
    assert (nobody.verdict, "no role" in nobody.detail) == (Verdict.FAIL, True)
    rented.cloud.boto("s3").delete_object(Bucket=BUCKET, Key=f"{PREFIX}/config.json")
    (unread,) = await of_weights(rented)
    assert (unread.verdict, "no config.json" in unread.detail) == (Verdict.WARN, True)


async def test_a_refusal_beforehand_is_a_caution_as_the_instances_role_may_be_allowed(rented: Rented) -> None:
    upload(rented)
    rented.cloud.fault("error", action="ListObjectsV2", code="AccessDenied", status=403, times=None)
    (refused,) = await of_weights(rented)
    assert (refused.verdict, "cannot be looked at" in refused.detail) == (Verdict.WARN, True)


async def test_a_bucket_elsewhere_is_a_caution(rented: Rented) -> None:
    s3, elsewhere = rented.cloud.boto("s3"), {"LocationConstraint": "eu-west-1"}
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=elsewhere)
    s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/config.json", Body=b"{}")
    (far,) = await of_weights(rented)
    assert (far.verdict, "in eu-west-1, and the fleet is in us-east-1" in far.detail) == (
        Verdict.WARN,
        True,
    )


async def test_an_order_without_a_role_is_refused(rented: Rented) -> None:
    account = Account(
        rented.provider(instance_profile=""), SYSTEM_CLOCK, "owner-of-weights", defaults={**ORDER, "weights": WEIGHTS}
    )
    await account.prepare()
    (made,) = await account.create(account.order("t-1"))
    assert isinstance(made.error, ConfigError)
    assert "no role to fetch them with" in made.error.message
    assert rented.cloud.instances("pending", "running") == []


def test_a_container_sees_them_read_only_under_their_own_path() -> None:
    directory = WEIGHTS.directory
    mount = Mount(source=directory, target=directory, read_only=True)
    container = ContainerLaunch(
        image="vllm/vllm-openai", entrypoint=("vllm",), args=("serve", directory), mounts=(mount,)
    )
    for given in (container, None):
        order = node_request(port=8000, weights=WEIGHTS, container=given)
        files = boot_files(order, AwsSettings(image="emulator"), region="us-east-1", secrets_path="")
        (start,) = (file.content for file in files if file.path.endswith("/start-engine"))
        assert start.count(f"{directory}:{directory}:ro") == 1
