"""The queue and the bucket for logs that a profile names: what is said of them before anything is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.errors import CredentialsError
from fleetctl.model.preflight import Finding, Verdict

if TYPE_CHECKING:
    from tests.aws.provider.conftest import Rented

QUEUE, BUCKET = "fleetctl-events", "fleetctl-tests-logs"
NAMED = {"queue": QUEUE, "logs": f"s3://{BUCKET}/engines"}


async def test_a_profile_of_credentials_that_is_not_there_is_named_with_where_to_look(rented: Rented) -> None:
    preflight = rented.provider(profile="nobody").capabilities.preflight
    assert preflight is not None
    with pytest.raises(CredentialsError, match="nobody") as refused:
        await preflight.findings(())
    assert "aws configure list-profiles" in refused.value.hint


async def of_parts(rented: Rented, **settings: Any) -> list[Finding]:
    preflight = rented.provider(**settings).capabilities.preflight
    assert preflight is not None
    return [each for each in await preflight.findings(()) if each.name in {"queue", "logs"}]


async def test_a_name_that_leads_nowhere_fails_and_one_that_leads_somewhere_is_shown(rented: Rented) -> None:
    assert await of_parts(rented) == []
    queue, logs = await of_parts(rented, **NAMED)
    assert (queue.verdict, logs.verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert queue.detail == f"there is no queue {QUEUE} in us-east-1"
    assert logs.detail == f"s3://{BUCKET}/engines: there is no bucket {BUCKET}"
    assert all("provider." in each.hint for each in (queue, logs))
    rented.cloud.boto("sqs").create_queue(QueueName=QUEUE)
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    assert [each.verdict for each in await of_parts(rented, **NAMED)] == [Verdict.OK, Verdict.OK]


async def test_what_nobody_may_look_at_is_a_caution(rented: Rented) -> None:
    for action, code in (("GetQueueUrl", "AccessDenied"), ("ListObjectsV2", "AccessDenied")):
        rented.cloud.fault("error", action=action, code=code, status=403, times=None)
    found = await of_parts(rented, **NAMED)
    assert [(each.name, each.verdict) for each in found] == [("queue", Verdict.WARN), ("logs", Verdict.WARN)]
    assert all("not known" in each.detail for each in found)
