"""Whether the account has spot's service-linked role is said before anything of spot is ordered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.preflight import Finding, PlannedNodes, Verdict
from fleetctl.testing.samples import offering

if TYPE_CHECKING:
    from tests.aws.provider.conftest import Rented

ROLE = "AWSServiceRoleForEC2Spot"
COMMAND = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


async def of_role(rented: Rented, market: Market = Market.SPOT) -> list[Finding]:
    preflight = rented.provider().capabilities.preflight
    assert preflight is not None
    nodes = (PlannedNodes(offering=replace(offering(), market=market), count=1, to_create=1),)
    return [each for each in await preflight.findings(nodes) if each.name == "spot's role"]


async def test_where_spot_is_planned_its_role_is_looked_for(rented: Rented) -> None:
    (there,) = await of_role(rented)
    assert (there.verdict, there.detail) == (Verdict.OK, ROLE)
    assert await of_role(rented, Market.ON_DEMAND) == []

    rented.cloud.fault("error", service="iam", action="GetRole", code="AccessDenied", status=403)
    (hidden,) = await of_role(rented)
    assert (hidden.verdict, "is not known" in hidden.detail, "iam:GetRole" in hidden.hint) == (Verdict.WARN, True, True)

    iam = rented.cloud.boto("iam")
    role = iam.get_role(RoleName=ROLE)["Role"]
    iam.delete_role(RoleName=ROLE)
    (lacking,) = await of_role(rented)
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}", Path=role["Path"])
    assert (lacking.verdict, COMMAND in lacking.hint) == (Verdict.WARN, True)
