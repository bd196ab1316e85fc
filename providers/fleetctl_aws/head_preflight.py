"""What would keep a head from being made in an account, looked at before anything is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, ProviderError
from fleetctl.model.head import SSH_PORT
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.head_address import HeadAddress
from fleetctl_aws.head_settings import DEFAULT_AMI, DEFAULT_TYPE, is_public, open_to
from fleetctl_aws.launch_templates import LaunchTemplates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.provider_setting import SettingValue
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

_POLICY = "docs/aws-policy.json has the rights that its role needs"


async def judge_head(
    connection: AwsConnection, settings: AwsSettings, given: Mapping[str, SettingValue]
) -> tuple[Finding, ...]:
    """Return the findings on a head's image, role and ways in."""
    found = [await _image(connection, settings, given), await _role(connection, given), _ways(given)]
    if (address := await HeadAddress(connection).finding(given)) is not None:
        found.append(address)
    return tuple(found)


async def _image(connection: AwsConnection, settings: AwsSettings, given: Mapping[str, SettingValue]) -> Finding:
    name = "head"
    try:
        image, _ = await LaunchTemplates(connection, settings).image(str(given.get("ami") or DEFAULT_AMI))
    except FleetctlError as exc:
        return Finding(name=name, verdict=Verdict.FAIL, detail=exc.message, hint="name an image in host.ami")
    detail = f"{given.get('instance_type') or DEFAULT_TYPE} of {image}"
    return Finding(name=name, verdict=Verdict.OK, detail=detail)


async def _role(connection: AwsConnection, given: Mapping[str, SettingValue]) -> Finding:
    name, title = str(given.get("instance_profile", "")).rpartition("/")[2], "head's role"
    if not name:
        return Finding(
            name=title,
            verdict=Verdict.FAIL,
            detail="no instance profile is named",
            hint=f"name one in host.instance_profile; {_POLICY}",
        )
    try:
        await connection.read("iam", "get_instance_profile", InstanceProfileName=name)
    except NoSuchResourceError:
        detail = f"there is no instance profile {name}"
        return Finding(name=title, verdict=Verdict.FAIL, detail=detail, hint=f"create it; {_POLICY}")
    except ProviderError as exc:
        hint = "allow iam:GetInstanceProfile to have it looked at; whether it is there shows at the launch"
        return Finding(name=title, verdict=Verdict.WARN, detail=f"{name}: {exc.message}", hint=hint)
    return Finding(name=title, verdict=Verdict.OK, detail=name)


def _ways(given: Mapping[str, SettingValue]) -> Finding:
    title, ways = "ways to the head", ", ".join(open_to(given))
    if is_public(given):
        detail = f"port {SSH_PORT}, and the gateway's where it listens beyond loopback, are open to {ways}"
        return Finding(
            name=title, verdict=Verdict.WARN, detail=detail, hint="leave host.open_to out to have nothing public"
        )
    return Finding(name=title, verdict=Verdict.OK, detail=f"nothing is public; reached from {ways or 'its VPC'}")
