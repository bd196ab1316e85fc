"""What instances are started with is put before cloud-init's own schema tool and systemd's own parser."""

from __future__ import annotations

import base64
import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.errors import ConfigError
from fleetctl.model.head import HeadRecord
from fleetctl.model.remote_weights import remote_weights
from fleetctl.testing.samples import EPOCH, node_request
from fleetctl_aws.boot_documents import boot_archive, shared_user_data
from fleetctl_aws.head_user_data import head_user_data
from fleetctl_aws.settings import AwsSettings
from fleetctl_aws.user_data import BYTES_MAX, begin_file, boot_files, cloud_config

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest

TOOLS = Path(sys.prefix) / "share/cloud-init"
SETTINGS = AwsSettings(image="registry.example/emulator:1", logs="s3://fleetctl-demo-logs/engines")
AWKWARD = (
    "/nonexistent/engine",
    "--chat-template",
    """{% if a %}'it"s' $HOME %n\\n{% endif %}""",
    "--name",
    "two words; # not a comment",
)
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gpus": {"gpu_count": 4, "env": {"NCCL_DEBUG": "INFO", "NOTE": "a 'quoted' word"}},
    "shared": {"gpu_count": 2, "gpu_indices": (0, 1)},
    "secrets": {"env": {"HF_TOKEN": "env:HF_TOKEN"}},
    "weights": {
        "gpu_count": 2,
        "gpu_indices": (0, 1),
        "weights": remote_weights("s3://fleetctl-demo-weights/llama/8b"),
    },
    "awkward": {"argv": AWKWARD, "lane": "chat-%i", "fleet": "müsli"},
}


def request(kind: str) -> NodeRequest:
    return node_request(port=8000, **REQUESTS[kind])


def path_of(kind: str) -> str:
    return "/fleetctl/demo/0123" if kind == "secrets" else ""


def tool(name: str) -> str:
    """Return a program's path, or skip; in CI it must be there."""
    found = shutil.which(name)
    if found is None:
        assert os.environ.get("CI") != "true", f"install.sh installs {name} where there is apt"
        pytest.skip(f"{name} is not installed")
    return found


def user_data(kind: str) -> str:
    """Return what an instance of a kind, or a head, is started with."""
    if kind == "template":
        return shared_user_data("müsli")
    if kind != "head":
        return cloud_config(request(kind), SETTINGS, region="us-east-1", secrets_path=path_of(kind))
    order = HeadRecord(
        owner="o", fleet="müsli", number=1, token="head-1", state_url="s3://bucket/team", region="", program="ab12",  # noqa: S106  # of an order
        public_key="ssh-ed25519 AAAA someone's", gateway_port=8080, gateway_is_public=False,
        settings={"instance_profile": "role"}, placed_at=EPOCH,
    )  # fmt: skip
    return head_user_data(order, region="us-east-1", group="sg-1", named_profile="work", endpoints={})


@pytest.mark.parametrize("kind", [*REQUESTS, "head", "template"])
def test_cloud_init_takes_the_user_data(kind: str, tmp_path: Path) -> None:
    program = TOOLS / "usr/bin/cloud-init"
    if not program.exists():
        assert os.environ.get("CI") != "true", "install.sh fetches cloud-init where there is apt"
        pytest.skip("no cloud-init: ./install.sh test fetches it")
    config = tmp_path / "user-data.yaml"
    config.write_text(user_data(kind))
    environment = {**os.environ, "PYTHONPATH": str(TOOLS / "usr/lib/python3/dist-packages"), "PYTHONWARNINGS": "ignore"}
    checked = subprocess.run(
        [sys.executable, program, "schema", "--config-file", config],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stderr
    assert "Valid cloud-config" in checked.stdout
    config.write_text(config.read_text().replace('permissions: "0', 'permissions: 1 # "0'))
    refused = subprocess.run(
        [sys.executable, program, "schema", "--config-file", config],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "permissions" in refused.stderr, "the tool reads what it is given"


def test_a_lane_with_everything_leaves_room_for_a_long_command() -> None:
    for kind in ("shared", "weights"):
        everything = node_request(port=8000, **{**REQUESTS[kind], "env": {"HF_TOKEN": "env:HF_TOKEN"}})
        text = cloud_config(everything, SETTINGS, region="us-east-1", secrets_path="/fleetctl/demo/0123")
        assert len(text.encode()) < BYTES_MAX - 1024


def test_a_command_that_is_too_long_for_files_of_their_own_goes_in_one_that_compresses_better(tmp_path: Path) -> None:
    words = Random(0).randbytes(4000).hex()
    wordy = node_request(port=8000, argv=("/nonexistent/engine", "--chat-template", words))
    config = yaml.safe_load(cloud_config(wordy, SETTINGS, region="us-east-1", secrets_path=""))
    (only,) = config["write_files"]
    assert config["runcmd"][1] == ["/opt/fleetctl/begin"]
    packed = tmp_path / "files.tar"
    packed.write_bytes(gzip.decompress(base64.b64decode(only["content"])))
    subprocess.run([tool("tar"), "-xf", packed, "-C", tmp_path, "--no-same-owner"], check=True, timeout=60)
    assert words in (tmp_path / "opt/fleetctl/start-engine").read_text()
    noise = Random(1).randbytes(20_000).hex()
    with pytest.raises(ConfigError, match="EC2 takes 16384"):
        cloud_config(node_request(port=8000, argv=("x", noise)), SETTINGS, region="us-east-1", secrets_path="")


def test_only_a_templates_own_comments_are_left_out_where_room_is_short() -> None:
    wordy = node_request(port=8000, argv=("/nonexistent/engine", "--chat-template", "one\n# two\n"))
    whole, bare = (
        {
            each.path: each.content
            for each in boot_files(wordy, SETTINGS, region="us-east-1", secrets_path="", is_bare=is_bare)
        }
        for is_bare in (False, True)
    )
    assert "\n# two\n" in bare["/opt/fleetctl/start-engine"]
    assert all(text.startswith(("#!/", "[Unit]")) for text in bare.values())
    comments = [line for text in bare.values() for line in text.splitlines()[1:] if line.startswith("#")]
    assert comments == ["# two"]
    assert whole.keys() == bare.keys()
    for path, text in bare.items():
        if text.startswith("#!/usr/bin/env python3"):
            compile(text, path, "exec")


def test_what_a_shared_template_fetches_is_the_same_for_the_same_lane_and_begins_it(tmp_path: Path) -> None:
    files = boot_files(request("shared"), SETTINGS, region="us-east-1", secrets_path="")
    whole = (*files, begin_file(is_shared=True, ships_logs=True))
    archive = boot_archive(whole)
    assert archive == boot_archive(whole)
    assert archive != boot_archive(files)
    packed = tmp_path / "boot.tar.gz"
    packed.write_bytes(archive)
    subprocess.run([tool("tar"), "-xzf", packed, "-C", tmp_path, "--no-same-owner"], check=True, timeout=60)
    for file in whole:
        written = tmp_path / file.path.lstrip("/")
        assert (written.read_text(), f"{written.stat().st_mode & 0o777:04o}") == (file.content, file.permissions)
    begin = (tmp_path / "opt/fleetctl/begin").read_text()
    assert "fleetctl-slots.timer" in begin
    subprocess.run([tool("sh"), "-n", tmp_path / "opt/fleetctl/begin"], check=True, timeout=60)


@pytest.mark.parametrize("kind", REQUESTS)
def test_systemd_takes_the_units_and_a_shell_the_scripts(kind: str, tmp_path: Path) -> None:
    analyze, shell = tool("systemd-analyze"), tool("sh")
    units = []
    for file in boot_files(request(kind), SETTINGS, region="us-east-1", secrets_path=path_of(kind)):
        written = tmp_path / file.path.lstrip("/")
        written.parent.mkdir(parents=True, exist_ok=True)
        if written.parent.name == "system":
            # The programs lie where they are written to here; docker is what an instance has and this machine may not.
            written.write_text(
                file.content.replace("/opt/fleetctl", f"{tmp_path}/opt/fleetctl").replace("/usr/bin/docker", shell)
            )
            units.append(written)
        else:
            written.write_text(file.content)
            written.chmod(0o755)
            if file.content.startswith("#!/usr/bin/env python3"):
                compile(file.content, file.path, "exec")
            else:
                subprocess.run([shell, "-n", written], check=True, timeout=60)
    checked = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False, timeout=60
    )
    own = [line for line in checked.stderr.splitlines() if str(tmp_path) in line or "fleetctl-" in line]
    assert own == []
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (0, 0, "CUDA works on GPUs 4,5,6,7"),
        (1, 1, "the engine is not started"),
        (125, 1, "the engine is not started"),  # docker's own: the container runtime finds no GPU
        (127, 0, "were not checked"),
        (86, 0, "were not checked"),
    ],
)
def test_an_engine_starts_only_where_cuda_works_on_its_slots_gpus(
    status: int, code: int, message: str, tmp_path: Path
) -> None:
    files = boot_files(request("gpus"), SETTINGS, region="us-east-1", secrets_path="")
    (script,) = (file.content for file in files if file.path.endswith("check-gpus"))
    (unit,) = (file.content for file in files if file.path.endswith("fleetctl-engine@.service"))
    assert unit.index("pull-image") < unit.index("check-gpus %i") < unit.index("start-engine")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\nexit {status}\n')
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(
        [tool("sh"), "-c", script, "check-gpus", "1"],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (ran.returncode, message in ran.stdout) == (code, True), ran.stdout
    argv = (tmp_path / "argv").read_text()
    assert "device=4,5,6,7" in argv
    compile(argv.partition("-c\n")[2], "check", "exec")


def test_without_gpus_there_is_nothing_to_check() -> None:
    files = boot_files(request("plain"), SETTINGS, region="us-east-1", secrets_path="")
    assert not any("check-gpus" in file.path or "check-gpus" in file.content for file in files)
