"""What would fail in an account, looked at before anything is created: who we are, where, what we may, and how much."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError, CredentialsError, FleetctlError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_aws.dry_runs import dry_runs
from fleetctl_aws.faults import QUOTA_CODES, DryRunPassedError, NoSuchResourceError, quota_name
from fleetctl_aws.instances import instances_in
from fleetctl_aws.launch_templates import LaunchTemplates
from fleetctl_aws.named_parts import named_findings
from fleetctl_aws.network import find_group, find_network, gateway_source
from fleetctl_aws.prices import read_prices
from fleetctl_aws.rights import READS
from fleetctl_aws.settings import AMI, PROFILE
from fleetctl_aws.shared_policy import BY_TAG
from fleetctl_aws.spot_role import spot_role_findings
from fleetctl_aws.weights import weights_findings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.network import Network
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
_POLICY = "docs/aws-policy.json has all that are needed"
_RUNNING = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
_NO_QUEUE = "fleetctl-dry-run"


async def judge(
    connection: AwsConnection, settings: AwsSettings, nodes: tuple[PlannedNodes, ...], *, now: datetime
) -> tuple[Finding, ...]:
    """Return the findings. Raises CredentialsError where nobody is logged in: nothing else would say anything."""
    who = await connection.read("sts", "get_caller_identity")
    detail = f"{who['Arn']} in {connection.region}"
    findings = [Finding(name="account", verdict=Verdict.OK, detail=detail)]
    network, found = await _network(connection, settings)
    findings += found
    findings.append(await _image(connection, settings))
    findings.append(await _profile(connection, settings))
    findings += await named_findings(connection, settings)
    if network is not None:
        findings.append(await _rights(connection, settings, network))
    if nodes:
        findings += await _quotas(connection, nodes)
        findings.append(await _prices(connection, nodes, now))
        findings += await weights_findings(connection, settings, nodes)
        findings += await spot_role_findings(connection, nodes)
    return tuple(findings)


async def _network(connection: AwsConnection, settings: AwsSettings) -> tuple[Network | None, list[Finding]]:
    try:
        network = await find_network(connection, settings)
    except (ConfigError, NoSuchResourceError) as exc:
        return None, [_failed("network", exc, "name subnets that exist")]
    zones = ", ".join(sorted(network.subnets))
    found = [Finding(name="network", verdict=Verdict.OK, detail=f"{network.vpc}, subnets in {zones}")]
    if settings.security_group:
        return network, [*found, await _named_group(connection, settings)]
    try:
        source = gateway_source(settings, network)
    except ConfigError as exc:
        return network, [*found, _failed("gateway", exc, "")]
    detail = f"engines are reached from {source} alone"
    return network, [*found, Finding(name="gateway", verdict=Verdict.OK, detail=detail)]


async def _named_group(connection: AwsConnection, settings: AwsSettings) -> Finding:
    """Return whether the engines' security group that the profile names is there; who gets in is its maker's doing."""
    try:
        group = await find_group(connection, settings, settings.security_group)
    except ConfigError as exc:
        return _failed("gateway", exc, "")
    detail = f"engines are reached as {group['GroupName']} ({group['GroupId']}) says, which somebody else has made"
    return Finding(name="gateway", verdict=Verdict.OK, detail=detail)


async def _image(connection: AwsConnection, settings: AwsSettings) -> Finding:
    name = settings.ami
    if settings.launch_template:
        return await _template(connection, settings)
    try:
        if name.startswith("ssm:"):
            found = await connection.read("ssm", "get_parameter", Name=name.removeprefix("ssm:"))
            name = str(found["Parameter"]["Value"])
        images = (await connection.read("ec2", "describe_images", ImageIds=[name])).get("Images") or ()
    except CredentialsError as exc:
        return _failed("machine image", exc, "")
    except ProviderError as exc:
        return _failed("machine image", exc, f"name one in provider.ami or {AMI}: ami-0123...")
    if not images:
        hint = f"name another in provider.ami or {AMI}"
        return Finding(name="machine image", verdict=Verdict.FAIL, detail=f"{name} does not exist here", hint=hint)
    detail = f"{name} ({images[0].get('Name') or settings.ami})"
    return Finding(name="machine image", verdict=Verdict.OK, detail=detail)


async def _template(connection: AwsConnection, settings: AwsSettings) -> Finding:
    """Return whether the launch template that the profile names is there; its image and disk are its maker's doing."""
    title = "launch template"
    try:
        found = await LaunchTemplates(connection, settings).named()
    except ConfigError as exc:
        return _failed(title, exc, "")
    detail = f"{settings.launch_template} ({found}), whose image, disk and role somebody else has chosen"
    return Finding(name=title, verdict=Verdict.OK, detail=detail)


async def _profile(connection: AwsConnection, settings: AwsSettings) -> Finding:
    name, title = settings.instance_profile.rpartition("/")[2], "instance profile"
    if not name:
        hint = f"name one in provider.instance_profile or {PROFILE} where lanes have secrets (a token of the model hub, keys): its role reads them"
        return Finding(name=title, verdict=Verdict.WARN, detail="none: engines get no secrets", hint=hint)
    try:
        await connection.read("iam", "get_instance_profile", InstanceProfileName=name)
    except NoSuchResourceError:
        hint = f"create it, or name another in provider.instance_profile or {PROFILE}"
        return Finding(name=title, verdict=Verdict.FAIL, detail=f"there is no instance profile {name}", hint=hint)
    except ProviderError as exc:
        hint = "allow iam:GetInstanceProfile to have it looked at; whether it is there shows at the first launch"
        return Finding(name=title, verdict=Verdict.WARN, detail=f"{name}: {exc.message}", hint=hint)
    return Finding(name=title, verdict=Verdict.OK, detail=name)


async def _rights(connection: AwsConnection, settings: AwsSettings, network: Network) -> Finding:
    """Return which rights lack, by EC2's dry runs and by reading a queue; the rest shows when it is needed."""
    changes = list(dry_runs(network, settings))
    runs: list[tuple[str, str, Object]] = [*((right, operation, {}) for right, operation in READS), *changes]
    faults = await asyncio.gather(*(_dry_run(connection, operation, given) for _, operation, given in runs))
    lacking = {right for (right, _, _), allowed in zip(runs, faults, strict=True) if not allowed}
    # Where rights go by tags, all that are on what is there are refused on what nobody has: that says nothing of them.
    untried = lacking & BY_TAG if lacking & BY_TAG == {right for right, _, _ in runs} & BY_TAG else frozenset()
    lacking -= untried
    if lacking:
        detail = f"not allowed: {', '.join(sorted(lacking))}"
        return Finding(name="rights", verdict=Verdict.FAIL, detail=detail, hint=f"have them granted; {_POLICY}")
    # One that the profile names is looked at by itself.
    if not settings.queue and not await _may_read_queues(connection):
        detail = "sqs:GetQueueUrl is not allowed: notices come from the instances themselves alone"
        return Finding(name="rights", verdict=Verdict.WARN, detail=detail, hint=f"allow SQS and EventBridge; {_POLICY}")
    detail = f"{len(changes) - len(untried)} changes would be allowed; of SQS, EventBridge and Parameter Store only reading was tried"
    if untried:
        detail += f"; {', '.join(sorted(untried))} go by tags, or lack: nobody has what they were tried on"
    return Finding(name="rights", verdict=Verdict.OK, detail=detail)


async def _dry_run(connection: AwsConnection, operation: str, parameters: Object) -> bool:
    """Whether a change would be allowed; any other fault is found once the right is."""
    try:
        await connection.read("ec2", operation, DryRun=True, **parameters)
    except DryRunPassedError:
        return True
    except CredentialsError:
        return False
    except ProviderError:
        return True
    return True


async def _may_read_queues(connection: AwsConnection) -> bool:
    try:
        await connection.read("sqs", "get_queue_url", QueueName=_NO_QUEUE)
    except CredentialsError:
        return False
    except ProviderError:
        return True
    return True


async def _quotas(connection: AwsConnection, nodes: tuple[PlannedNodes, ...]) -> list[Finding]:
    """Return for each quota whether it holds what is to be created beside what runs."""
    vcpus = await _vcpus(connection, {each.offering.instance_type for each in nodes})
    wanted: dict[str, int] = {}
    for each in nodes:
        name = quota_name(each.offering.instance_type, each.offering.market.value)
        wanted[name] = wanted.get(name, 0) + each.to_create * vcpus.get(each.offering.instance_type, 0)
    try:
        used = _used(await _running(connection))
    except CredentialsError as exc:
        return [_failed("quotas", exc, "")]
    return [await _quota(connection, name, count, used.get(name, 0)) for name, count in sorted(wanted.items())]


async def _quota(connection: AwsConnection, name: str, wanted: int, used: int) -> Finding:
    code, title = QUOTA_CODES.get(name, ""), f"quota {name}"
    hint = f"ask for more in Service Quotas ({code or name}), or plan other GPUs or the other market"
    try:
        if not code:
            raise ProviderError("its code is not known")
        found = await connection.read("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code)
    except FleetctlError as exc:
        detail = f"{wanted} vCPUs are wanted; how many are allowed is not known: {exc.message}"
        return Finding(name=title, verdict=Verdict.WARN, detail=detail, hint=f"look at it in Service Quotas ({code})")
    allowed = int(found["Quota"]["Value"])
    detail = f"{allowed} vCPUs, {used} in use, {wanted} wanted"
    if used + wanted > allowed:
        return Finding(name=title, verdict=Verdict.FAIL, detail=detail, hint=hint)
    return Finding(name=title, verdict=Verdict.OK, detail=detail)


async def _vcpus(connection: AwsConnection, names: Iterable[str]) -> dict[str, int]:
    wanted = [{"Name": "instance-type", "Values": sorted(names)}]
    found = await connection.read_all("ec2", "describe_instance_types", "InstanceTypes", Filters=wanted)
    return {each["InstanceType"]: int(each["VCpuInfo"]["DefaultVCpus"]) for each in found}


async def _running(connection: AwsConnection) -> list[Object]:
    return instances_in(await connection.read_all("ec2", "describe_instances", "Reservations", Filters=_RUNNING))


def _used(instances: Iterable[Object]) -> dict[str, int]:
    """Return the vCPUs in use by quota; of families with GPUs, as these quotas count no other."""
    used: dict[str, int] = {}
    for each in instances:
        if each["InstanceType"].startswith(("g", "p", "vt")):
            name = quota_name(each["InstanceType"], each.get("InstanceLifecycle") or "on-demand")
            cpu = each.get("CpuOptions") or {}
            used[name] = used.get(name, 0) + int(cpu.get("CoreCount", 0)) * int(cpu.get("ThreadsPerCore", 1))
    return used


async def _prices(connection: AwsConnection, nodes: tuple[PlannedNodes, ...], now: datetime) -> Finding:
    prices = await read_prices(connection, {each.offering.instance_type for each in nodes}, now=now)
    if prices.cautions:
        hint = "allow pricing:GetProducts and ec2:DescribeSpotPriceHistory to plan with the prices of today"
        return Finding(name="prices", verdict=Verdict.WARN, detail="; ".join(prices.cautions), hint=hint)
    return Finding(name="prices", verdict=Verdict.OK, detail=f"by {prices.source} and the spot price history")


def _failed(name: str, exc: FleetctlError, hint: str) -> Finding:
    return Finding(name=name, verdict=Verdict.FAIL, detail=exc.message, hint=exc.hint or hint or _POLICY)
