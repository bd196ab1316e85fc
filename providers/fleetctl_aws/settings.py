"""Where in an account the provider works, and with what its instances are started."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError
from fleetctl.model.provider_setting import ProviderSetting, SettingKind
from fleetctl.units import parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.provider_setting import SettingValue

REGION, NAMED = "AWS_REGION", "AWS_PROFILE"
_PREFIX = "FLEETCTL_AWS_"
SUBNETS, AMI, PROFILE, SOURCE, IMAGE, EXPIRY, DISK, LOGS = (
    _PREFIX + name
    for name in ("SUBNETS", "AMI", "INSTANCE_PROFILE", "GATEWAY_SOURCE", "IMAGE", "EXPIRY", "DISK_GB", "LOGS")
)  # fmt: skip
VARIABLES = frozenset({"AWS_*", _PREFIX + "*"})

# The deep learning AMI has the driver, docker and NVIDIA's runtime for it; AWS publishes the newest one's id here.
DEFAULT_AMI = "ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
_EXPIRY_S_MIN = 600.0
_LOGS_PATTERN = r"s3://[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](/[-A-Za-z0-9._]+)*/?"
DEFAULT_DISK_GB = 200


SETTINGS = (
    ProviderSetting(
        name="region",
        description="The region. Unset: AWS_REGION, else AWS_DEFAULT_REGION, else the named profile's.",
        pattern=r"[a-z]{2}(-[a-z]+)+-\d",
        form="a region's name, such as us-east-1",
        variable=REGION,
        is_place=True,
    ),
    ProviderSetting(
        name="profile",
        description="The named profile in AWS's own configuration whose credentials are used, and so the account. Unset: AWS_PROFILE.",
        variable=NAMED,
        is_place=True,
    ),
    ProviderSetting(
        name="subnets",
        kind=SettingKind.TEXTS,
        description="The subnets that instances start in, of one VPC; of several in a zone the roomiest. Unset: "
        "FLEETCTL_AWS_SUBNETS, with commas between them, else the default VPC's.",
        pattern=r"subnet-[0-9a-f]+",
        form="subnets' ids, such as [subnet-0a1b2c3d]",
        variable=SUBNETS,
    ),
    ProviderSetting(
        name="ami",
        description="The machine image: its id, or ssm: and the parameter that holds it. It needs docker, NVIDIA's driver and "
        "container runtime, cloud-init and, for secrets and weights in S3, the AWS CLI. Unset: FLEETCTL_AWS_AMI, else AWS's deep learning base image.",
        pattern=r"ami-[0-9a-f]+|ssm:/\S+",
        form="an image's id, such as ami-0a1b2c3d, or ssm:/a/parameter",
        variable=AMI,
    ),
    ProviderSetting(
        name="instance_profile",
        description="The instance profile, by name or ARN, whose role reads the engines' secrets from Parameter Store and "
        "their weights from S3. Unset: FLEETCTL_AWS_INSTANCE_PROFILE, else none, and then lanes may have neither.",
        variable=PROFILE,
    ),
    ProviderSetting(
        name="gateway_source",
        description="The security group or the addresses that engines may be reached from, where the gateway runs. Unset: "
        "FLEETCTL_AWS_GATEWAY_SOURCE, else this machine's own address where it is in the VPC.",
        pattern=r"sg-[0-9a-f]+|[0-9a-fA-F.:]+(/\d+)?",
        form="a security group, such as sg-0a1b2c3d, or addresses, such as 10.0.3.7/32",
        variable=SOURCE,
    ),
    ProviderSetting(
        name="security_group",
        description="The engines' security group, by id or name, which somebody else has made (`render --target cloudformation`). "
        "Nothing of it is changed or removed. Unset: a fleet makes one of its own.",
    ),
    ProviderSetting(
        name="queue",
        description="The SQS queue of EC2's events, by name, which somebody else has made with its EventBridge rule; of this fleet "
        "alone. Unset: a fleet makes one of its own.",
        pattern=r"[A-Za-z0-9_-]{1,80}",
        form="a queue's name, such as fleetctl-chat",
    ),
    ProviderSetting(
        name="launch_template",
        description="The launch template of all lanes, by name, which somebody else has made (`render --target cloudformation`): its image, "
        "disk, role and security group are its own, and what a lane's instances do goes by Parameter Store. Unset: a fleet makes one for each lane.",
        pattern=r"[A-Za-z0-9().\-/_]{3,128}",
        form="a launch template's name, such as fleetctl-chat-engines",
    ),
    ProviderSetting(
        name="image",
        description="The container image for engines whose package names none, as the emulator. Unset: FLEETCTL_AWS_IMAGE.",
        variable=IMAGE,
    ),
    ProviderSetting(
        name="logs",
        description="Where in S3 instances ship what their engines write, s3://BUCKET/PREFIX, so that `logs` reads it of instances that "
        "have ended; their role needs s3:PutObject there. `down` deletes it. Unset: FLEETCTL_AWS_LOGS, else nothing is shipped.",
        pattern=_LOGS_PATTERN,
        form="a place in S3, such as s3://fleetctl-chat-logs/engines",
        variable=LOGS,
    ),
    ProviderSetting(
        name="logs_after_down",
        description="Whether `down` deletes the logs that were shipped (delete) or leaves them (keep). Unset: delete.",
        pattern=r"delete|keep",
        form="delete or keep",
    ),
    ProviderSetting(
        name="expiry",
        description="After how long an instance that no controller renews ends by itself, 10m at the least. Unset: "
        "FLEETCTL_AWS_EXPIRY, else 2h.",
        pattern=r"\d+(m|h|d)",
        form="whole minutes, hours or days, such as 2h",
        variable=EXPIRY,
    ),
    ProviderSetting(
        name="disk_gb",
        kind=SettingKind.COUNT,
        count_min=50,
        count_max=16384,
        description="The GB of an instance's disk, for the machine image, the engine's image and the model. Unset: "
        "FLEETCTL_AWS_DISK_GB, else 200.",
        variable=DISK,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """Where to work and with what, as the profile or the environment says. Empty: found in the account, or not used."""

    region: str = ""  # empty: the named profile's
    profile: str = ""  # empty: boto3's own search for credentials
    subnets: tuple[str, ...] = ()  # where instances start; empty: the default VPC's
    ami: str = DEFAULT_AMI  # an id, or ssm:NAME of a parameter that holds one
    instance_profile: str = ""  # whose role reads the engines' secrets
    gateway_source: str = ""  # the security group (sg-...) or the addresses (CIDR) that engines are reached from
    security_group: str = ""  # the engines', by id or name; empty: the fleet's own
    queue: str = ""  # of EC2's events, by name; empty: the fleet's own
    launch_template: str = ""  # of every lane, by name; empty: the fleet's own, one for each lane
    image: str = ""  # for engines whose package names none
    logs: str = ""  # s3://BUCKET/PREFIX that engines' logs are shipped to; empty: they are not
    logs_after_down: str = "delete"
    expiry_s: float = 7200.0  # an instance that nobody renews ends by itself after this
    disk_gb: int = DEFAULT_DISK_GB

    @classmethod
    def of_environment(cls) -> AwsSettings:
        """Read AWS_REGION and FLEETCTL_AWS_*. Raises ConfigError."""
        read = os.environ.get
        return cls(
            region=read(REGION, "") or read("AWS_DEFAULT_REGION", ""),
            profile=read(NAMED, ""),
            subnets=tuple(word.strip() for word in read(SUBNETS, "").split(",") if word.strip()),
            ami=read(AMI, "") or DEFAULT_AMI,
            instance_profile=read(PROFILE, ""),
            gateway_source=read(SOURCE, ""),
            image=read(IMAGE, ""),
            logs=_logs(read(LOGS, "")),
            expiry_s=_expiry_s(read(EXPIRY, "") or "2h"),
            disk_gb=_disk_gb(read(DISK, "") or str(DEFAULT_DISK_GB)),
        )

    def changed_by(self, given: Mapping[str, SettingValue]) -> AwsSettings:
        """Return these with what a profile says in their place. Raises ConfigError for what is out of bounds."""
        named: dict[str, Any] = dict(given)
        if "subnets" in named:
            named["subnets"] = tuple(named["subnets"])
        if "expiry" in named:
            named["expiry_s"] = _expiry_s(str(named.pop("expiry")))
        if "disk_gb" in named:
            named["disk_gb"] = _disk_gb(str(named["disk_gb"]))
        return replace(self, **named)


def _expiry_s(text: str) -> float:
    try:
        seconds = parse_duration_s(text)
    except ConfigError as exc:
        raise ConfigError(f"expiry: {exc.message}", hint=exc.hint) from exc
    if seconds < _EXPIRY_S_MIN:
        raise ConfigError(f"expiry is {text}", hint="10m at the least: it is renewed at an eighth of it")
    return seconds


def _logs(text: str) -> str:
    if text and not re.fullmatch(_LOGS_PATTERN, text):
        raise ConfigError(f"{LOGS} is {text!r}, no place in S3", hint="s3://BUCKET/PREFIX")
    return text


def _disk_gb(text: str) -> int:
    if not text.isdigit() or not 50 <= int(text) <= 16384:
        raise ConfigError(f"disk_gb is {text!r}", hint="a whole number of GB, 50 to 16384: the image alone takes 40")
    return int(text)
