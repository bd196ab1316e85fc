"""Whether an account has the service-linked role of spot, without which its first order of spot is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_aws.faults import SPOT_ROLE_COMMAND, NoSuchResourceError

if TYPE_CHECKING:
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_aws.connection import AwsConnection

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
ROLE: Final = "AWSServiceRoleForEC2Spot"
_TITLE = "spot's role"


async def spot_role_findings(connection: AwsConnection, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    """Return whether the role is there, where spot is planned; nothing where none is."""
    if not any(each.offering.market is Market.SPOT for each in nodes):
        return ()
    try:
        await connection.read("iam", "get_role", RoleName=ROLE)
    except NoSuchResourceError:
        # EC2 makes it with the first request of whoever may have it made, which nobody can see beforehand.
        detail = f"{ROLE} is not there: the first order of spot is refused to whoever may not have it made"
        return (Finding(name=_TITLE, verdict=Verdict.WARN, detail=detail, hint=SPOT_ROLE_COMMAND),)
    except ProviderError as exc:
        detail = f"whether {ROLE} is there is not known: {exc.message}"
        hint = f"allow iam:GetRole to have it looked at; without the role spot is refused, then {SPOT_ROLE_COMMAND}"
        return (Finding(name=_TITLE, verdict=Verdict.WARN, detail=detail, hint=hint),)
    return (Finding(name=_TITLE, verdict=Verdict.OK, detail=ROLE),)
