"""Whether the queue and the bucket for logs that a profile names are there, looked at before anything is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_aws.faults import NoSuchResourceError

if TYPE_CHECKING:
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

_MAKE = "make it (fleetctl render --target cloudformation)"


async def named_findings(connection: AwsConnection, settings: AwsSettings) -> tuple[Finding, ...]:
    """Return what is found of each; one that the profile does not name is no finding."""
    queue, bucket = settings.queue, settings.logs.removeprefix("s3://").partition("/")[0]
    found = []
    if queue:
        missing, what = f"there is no queue {queue} in {connection.region}", "notices come to its queue"
        try:
            await connection.read("sqs", "get_queue_url", QueueName=queue)
        except ProviderError as exc:
            found.append(_of_fault("queue", exc, missing, f"{_MAKE}, or leave provider.queue out of the profile"))
        else:
            found.append(Finding(name="queue", verdict=Verdict.OK, detail=f"{what}, {queue}"))
    if bucket:
        missing = f"{settings.logs}: there is no bucket {bucket}"
        try:
            await connection.read("s3", "list_objects_v2", Bucket=bucket, MaxKeys=1)
        except ProviderError as exc:
            found.append(_of_fault("logs", exc, missing, f"{_MAKE}, or name another in provider.logs"))
        else:
            found.append(Finding(name="logs", verdict=Verdict.OK, detail=f"instances ship them to {settings.logs}"))
    return tuple(found)


def _of_fault(name: str, exc: ProviderError, missing: str, hint: str) -> Finding:
    if isinstance(exc, NoSuchResourceError):
        return Finding(name=name, verdict=Verdict.FAIL, detail=missing, hint=hint)
    allowed = "docs/aws-policy.json has the right" if isinstance(exc, CredentialsError) else "look again later"
    return Finding(
        name=name, verdict=Verdict.WARN, detail=f"whether it is there is not known: {exc.message}", hint=allowed
    )
