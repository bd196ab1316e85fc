"""Weights that instances fetch from S3: what is to be known of them before any instance is ordered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError, CredentialsError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.units import format_bytes, format_count
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.settings import DISK, PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.node import NodeRequest
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl.model.remote_weights import RemoteWeights
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

_NAME = "weights"
_LOOKED_AT = 1000  # files, the most that one listing has
_IMAGES_BYTES = 60 * 2**30  # of the disk, that machine image and engine's image take
_POLICY = "docs/aws-engine-policy.json has the rights: s3:ListBucket and s3:GetObject"


def check_role(request: NodeRequest, settings: AwsSettings) -> None:
    """Raise ConfigError where an instance is to fetch weights, and has no role to do it with."""
    if request.weights is not None and not _has_role(settings):
        raise ConfigError(
            f"lane {request.lane} has its weights at {request.weights.source}, and its instances no role to fetch them with",
            hint=f"name in provider.instance_profile or {PROFILE} an instance profile; {_POLICY}",
        )


async def weights_findings(
    connection: AwsConnection, settings: AwsSettings, nodes: Iterable[PlannedNodes]
) -> tuple[Finding, ...]:
    """Return what one listing of each place says, made with the credentials of `up`; instances fetch with their own role."""
    wanted = {each.weights.source: each.weights for each in nodes if each.weights is not None}
    if wanted and not _has_role(settings):
        detail = f"{', '.join(sorted(wanted))}: instances have no role to fetch them with"
        return (
            _finding(
                Verdict.FAIL, detail, f"name in provider.instance_profile or {PROFILE} an instance profile; {_POLICY}"
            ),
        )
    return tuple([await _looked_at(connection, settings, each) for _, each in sorted(wanted.items())])


async def _looked_at(connection: AwsConnection, settings: AwsSettings, weights: RemoteWeights) -> Finding:
    where = weights.source
    try:
        found = await connection.read(
            "s3", "list_objects_v2", Bucket=weights.bucket, Prefix=weights.prefix, MaxKeys=_LOOKED_AT
        )
    except CredentialsError as exc:
        hint = f"whether the instances' role may shows at the first start; {_POLICY}"
        return _finding(Verdict.WARN, f"{where} cannot be looked at with these credentials: {exc.message}", hint)
    except NoSuchResourceError:
        return _finding(
            Verdict.FAIL, f"{where}: there is no bucket {weights.bucket}", "say another in the model's path"
        )
    except ProviderError as exc:
        return _finding(Verdict.WARN, f"{where}: {exc.message}", "whether it can be fetched shows at the first start")
    sizes = [int(each["Size"]) for each in found.get("Contents") or () if not str(each["Key"]).endswith("/")]
    if not sizes:
        hint = "say in the model's path where config.json and the weights are"
        return _finding(Verdict.FAIL, f"nothing is at {where}", hint)
    return _judged(connection, settings, weights, sizes, found)


def _judged(
    connection: AwsConnection, settings: AwsSettings, weights: RemoteWeights, sizes: list[int], found: dict[str, object]
) -> Finding:
    is_all = not found.get("IsTruncated")
    total = sum(sizes)
    detail = (
        f"{weights.source}: {'' if is_all else 'more than '}{format_count(len(sizes), 'file')}, {format_bytes(total)}"
    )
    region = _region(found)
    if region and region != connection.region:
        hint = "have a copy in the fleet's region: each instance fetches them over that distance, and it is billed by the GB"
        return _finding(Verdict.WARN, f"{detail}; in {region}, and the fleet is in {connection.region}", hint)
    names = [str(each["Key"]) for each in _contents(found)]
    if is_all and f"{weights.prefix}config.json" not in names:
        hint = "say in the model's path the directory that has it: nothing below others is looked for"
        return _finding(Verdict.WARN, f"{detail}; no config.json is among them, which engines read", hint)
    if total + _IMAGES_BYTES > settings.disk_gb * 1000**3 and not settings.launch_template:
        hint = f"provider.disk_gb or {DISK}: the images take some {format_bytes(_IMAGES_BYTES)} beside them"
        detail += f"; an instance's disk has {settings.disk_gb} GB, and only types with disks of their own have more"
        return _finding(Verdict.WARN, detail, hint)
    return Finding(name=_NAME, verdict=Verdict.OK, detail=detail)


def _contents(found: dict[str, object]) -> list[dict[str, object]]:
    contents = found.get("Contents")
    return contents if isinstance(contents, list) else []


def _region(found: dict[str, object]) -> str:
    """Return where a bucket is, as S3 says beside its answer; empty: it does not."""
    metadata = found.get("ResponseMetadata")
    headers = metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None
    return str(headers.get("x-amz-bucket-region", "")) if isinstance(headers, dict) else ""


def _has_role(settings: AwsSettings) -> bool:
    return bool(settings.instance_profile or settings.launch_template)


def _finding(verdict: Verdict, detail: str, hint: str) -> Finding:
    return Finding(name=_NAME, verdict=verdict, detail=detail, hint=hint)
