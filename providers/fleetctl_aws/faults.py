"""What AWS's error codes mean to whoever ordered: next offering, a limit, later, log in, look first, or stop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fleetctl.errors import (
    AmbiguousOutcomeError,
    CapacityError,
    CredentialsError,
    ProviderError,
    QuotaError,
    ThrottledError,
)
from fleetctl.printable import shortened
from fleetctl_aws.rights import rights_of_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity", "InsufficientCapacityOnHost", "UnfulfillableCapacity", "SpotMaxPriceTooLow", "Unsupported",
        "ReservationCapacityExceeded", "InsufficientFreeAddressesInSubnet",
    }
)  # fmt: skip
QUOTAS = frozenset(
    {
        "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded", "MaxSpotFleetRequestCountExceeded",
        "VolumeLimitExceeded", "MaxIOPSLimitExceeded", "PendingVerification", "ResourceLimitExceeded",
    }
)  # fmt: skip
THROTTLED = frozenset(
    {
        "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException",
        "RequestThrottled", "RequestThrottledException", "SlowDown", "PriorRequestNotComplete",
        # A queue's name is free again a minute after its end.
        "AWS.SimpleQueueService.QueueDeletedRecently", "QueueDeletedRecently",
    }
)  # fmt: skip
CREDENTIALS = frozenset(
    {
        "AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "ExpiredToken",
        "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "SignatureDoesNotMatch", "OptInRequired",
        "UnrecognizedClientException", "MissingAuthenticationToken", "Blocked", "InvalidAccessKeyId", "AuthorizationError",
        "InvalidSignatureException", "RequestTimeTooSkewed",
    }
)  # fmt: skip
AMBIGUOUS = frozenset({"InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable", "RequestTimeout"})
NOT_THERE = re.compile(
    r"(\.NotFound|NotFoundException|NonExistentQueue|QueueDoesNotExist|ParameterNotFound|NoSuchEntity|NoSuchBucket|DoesNotExist)"
)
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html: EC2 makes the role with
# an account's first spot request, and says this to whoever may not; CreateFleet says it of each override, too.
NO_LINKED_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
MISMATCH = frozenset({"IdempotentParameterMismatch"})
DRY_RUN = "DryRunOperation"
# Of a client token whose instance was launched and is gone.
LAUNCHED_AND_GONE = "IdempotentInstanceTerminated"

_RETRY_S = 5.0
_MESSAGE_MAX = 600
_LINKED_ROLE = re.compile(r"permission to create the service-linked role(?: for (?P<of>EC2 [A-Za-z ]+))?")
_LINKED_ROLES = {
    "EC2 Spot Fleet": "spotfleet.amazonaws.com", "EC2 Fleet": "ec2fleet.amazonaws.com",
}  # fmt: skip
_SPOT_ROLE = "spot.amazonaws.com"
_LINKED_ROLE_COMMAND = "once in this account: aws iam create-service-linked-role --aws-service-name"
SPOT_ROLE_COMMAND = f"{_LINKED_ROLE_COMMAND} {_SPOT_ROLE}"
_FAMILY = re.compile(r"(?P<family>[a-z]+)(?P<generation>\d*)")
_QUOTA_HINT = "ask for more in Service Quotas, or allow other GPUs, zones or markets in the profile's capacity"
_CLOCK_HINT = "this machine's clock is minutes off AWS's: `timedatectl` shows it"
# As STS and the services that speak JSON word it: "Signature expired: 20261130T135000Z is now earlier than ...".
_CLOCK = re.compile(r"Signature (?:expired|not yet current)")
# Who calls is not known by these, whatever rights it has.
_LOGIN_HINTS = dict.fromkeys(
    ("ExpiredToken", "ExpiredTokenException"),
    "the session is over: log in again (`aws sso login`), or export the new session's keys and AWS_SESSION_TOKEN",
) | dict.fromkeys(
    ("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "MissingAuthenticationToken"),
    "AWS does not know this access key: `aws configure list` shows where it comes from; log in again, or correct it there",
) | {
    **dict.fromkeys(
        ("SignatureDoesNotMatch", "InvalidSignatureException"),
        "the secret key is not this access key's: `aws configure list` shows where both come from",
    ),
    **dict.fromkeys(("RequestExpired", "RequestTimeTooSkewed"), _CLOCK_HINT),
    # EC2 says no more than this of a wrong key, of a session that is over and of a clock that is off.
    "AuthFailure": "`aws sts get-caller-identity` says which it is: a wrong key, a session that is over, or this machine's clock",
}  # fmt: skip
_WHO_HINT = "`aws sts get-caller-identity` shows who you are"
_RIGHTS_HINT = f"{_WHO_HINT}; `fleetctl doctor` names the rights that are missing"


class NoSuchResourceError(ProviderError):
    """What was named does not exist; believed after two readings alone."""


class DryRunPassedError(ProviderError):
    """The call would have been allowed."""


class ParameterMismatchError(ProviderError):
    """The same client token was sent before, with other parameters."""


def quota_name(instance_type: str, market: str) -> str:
    """Return what Service Quotas calls the limit on the vCPUs of an instance type's family."""
    match = _FAMILY.match(instance_type)
    family, generation = (match["family"], match["generation"]) if match else ("", "")
    spot = market == "spot"
    if family.startswith("p"):
        if spot:
            return {"5": "All P5 Spot Instance Requests", "6": "All P6 Spot Instance Requests"}.get(
                generation, "All P4, P3 and P2 Spot Instance Requests"
            )
        return "Running On-Demand P instances"
    return "All G and VT Spot Instance Requests" if spot else "Running On-Demand G and VT instances"


# Of Service Quotas, for EC2; in vCPUs.
QUOTA_CODES = {
    "Running On-Demand P instances": "L-417A185B",
    "Running On-Demand G and VT instances": "L-DB2E81BA",
    "All P5 Spot Instance Requests": "L-C4BD4855",
    "All P4, P3 and P2 Spot Instance Requests": "L-7212CCBC",
    "All G and VT Spot Instance Requests": "L-3819A6DF",
}


def translated(exc: Any, what: str, *, changes: bool) -> ProviderError:  # noqa: ANN401  # botocore's ClientError, untyped
    """Return the error for a refusal that AWS has answered with."""
    error: Mapping[str, str] = exc.response.get("Error", {})
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
    return of_code(
        error.get("Code", ""),
        shortened(f"{what}: {error.get('Message', '') or exc}", _MESSAGE_MAX),
        status=status,
        changes=changes,
        rights=rights_of_call(what.partition(".")[0], str(exc.operation_name)),
    )


def of_code(  # noqa: PLR0911  # one meaning each
    code: str, message: str, *, status: int = 0, changes: bool = False, rights: tuple[str, ...] = ()
) -> ProviderError:
    """Return the error for a code; an unknown one of a server's fault leaves open what became of a change.

    `rights` are those that the call takes, where that is known.
    """
    text = f"{message} ({code})"
    if _lacks_linked_role(code, message):
        return _of_linked_role(text)
    if code in CAPACITY:
        return CapacityError(text, hint="the next offering is tried; this one is left alone for three minutes")
    if code in QUOTAS:
        return QuotaError(text, quota=code, hint=_QUOTA_HINT)
    if code in THROTTLED or status == 429:
        return ThrottledError(text, retry_after_s=_RETRY_S, scope="account")
    if code in CREDENTIALS:
        return CredentialsError(text, hint=_login_hint(code, message, rights))
    if code == DRY_RUN:
        return DryRunPassedError(text)
    if code in MISMATCH:
        return ParameterMismatchError(text)
    if NOT_THERE.search(code):
        return NoSuchResourceError(text)
    if changes and (code in AMBIGUOUS or status >= 500):
        return AmbiguousOutcomeError(text, hint="it is looked up by its tag")
    return ProviderError(text)


def _login_hint(code: str, message: str, rights: tuple[str, ...]) -> str:
    """Return what whoever is not let in has to do."""
    if _CLOCK.search(message):
        return _CLOCK_HINT
    if code in _LOGIN_HINTS or not rights:
        return _LOGIN_HINTS.get(code, _RIGHTS_HINT)
    return f"have {' and '.join(rights)} allowed; docs/aws-policy.json has all that are needed; {_WHO_HINT}"


def of_fleet_errors(errors: Iterable[Mapping[str, Any]], *, market: str, names: frozenset[str]) -> ProviderError:
    """Return the one error of a CreateFleet that launched nothing: the gravest of what it says of each override.

    `names` are the instance types that were ordered. What is said of all overrides alike names no place: it is what was
    ordered that cannot be had.
    """
    found = [(str(each.get("ErrorCode", "")), str(each.get("ErrorMessage", ""))) for each in errors]
    if not found:
        return CapacityError(
            "CreateFleet launched nothing and said no reason", hint="the next offering is tried"
        )  # fmt: skip
    shown = "; ".join(dict.fromkeys(f"{message} ({code})" for code, message in found))[:_MESSAGE_MAX]
    if lacking := [f"{message} ({code})" for code, message in found if _lacks_linked_role(code, message)]:
        return _of_linked_role(lacking[0][:_MESSAGE_MAX])
    codes = [code for code, _ in found]
    # A right that lacks stops everything; where some place only lacks stock or quota, the others may be better off.
    for group in (CREDENTIALS, frozenset(codes) - CAPACITY - QUOTAS - THROTTLED):
        if code := next((code for code in codes if code in group), ""):
            return of_code(code, shown, changes=True)
    if all(code in THROTTLED for code in codes):
        return ThrottledError(shown, retry_after_s=_RETRY_S, scope="create")
    if any(code in CAPACITY for code in codes):
        return CapacityError(shown, hint="the next offering is tried; these are left alone for three minutes")
    quotas = {quota_name(name, market) for name in names}
    return QuotaError(shown, quota=" and ".join(sorted(quotas)), hint=_QUOTA_HINT)


def _lacks_linked_role(code: str, message: str) -> bool:
    # Within another code, as UnfulfillableCapacity, the message alone tells of it.
    return code == NO_LINKED_ROLE or _LINKED_ROLE.search(message) is not None


def _of_linked_role(text: str) -> ProviderError:
    """Return the error of an account without a service-linked role: spot's closes that market alone, any other stops orders."""
    match = _LINKED_ROLE.search(text)
    service = _LINKED_ROLES.get(((match["of"] if match else "") or "").strip(), _SPOT_ROLE)
    command = f"{_LINKED_ROLE_COMMAND} {service}"
    if service != _SPOT_ROLE:
        return CredentialsError(text, hint=command)
    return CapacityError(text, market="spot", hint=f"{command}; until then only on-demand instances are ordered")
