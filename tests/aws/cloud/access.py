"""Who may call what: the tests' user by policies that a test sets, instances by those of their role in IAM."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from moto.iam.models import iam_backends

from tests.aws.cloud.access_requests import access_requests
from tests.aws.cloud.account import ACCOUNT
from tests.aws.cloud.iam_policy import USER, AccessRequest, is_allowed

if TYPE_CHECKING:
    from tests.aws.cloud.calls import AwsCall

ROLE = "ASIA"
# What Systems Manager's agent calls before a command reaches it, and to tell what that came to.
# https://docs.aws.amazon.com/systems-manager/latest/userguide/systems-manager-setting-up-messageAPIs.html
_AGENT = (
    "ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:OpenControlChannel",
    "ssmmessages:CreateDataChannel", "ssmmessages:OpenDataChannel", "ec2messages:GetMessages",
    "ec2messages:AcknowledgeMessage", "ec2messages:SendReply",
)  # fmt: skip
_CODES = {"ec2": "UnauthorizedOperation", "s3": "AccessDenied", "sqs": "AccessDenied"}


def role_key(profile: str) -> str:
    """Return the access key of the instances that have an instance profile."""
    return f"{ROLE}{hashlib.sha256(profile.encode()).hexdigest()[:16].upper()}"


class AccessControl:
    """Refuses what no policy allows, once a test has said whose; until then, and to others, everything is allowed."""

    def __init__(self) -> None:
        self._of_user: list[dict[str, Any]] | None = None  # None: the account's root, who may do everything
        self._checks_roles = False

    def set(self, wanted: dict[str, Any]) -> None:
        """Hold the user to `user` (a list of policies; None: to nothing), and instances to their roles where `roles`."""
        self._of_user, self._checks_roles = wanted.get("user"), bool(wanted.get("roles"))

    def requests(self, call: AwsCall) -> list[AccessRequest]:
        """Return what a call has to be allowed; nothing where its caller is held to nothing."""
        return access_requests(call) if self._policies(call) is not None else []

    def denied(self, call: AwsCall, requests: list[AccessRequest]) -> list[AccessRequest]:
        """Return those that the caller's policies do not allow."""
        policies = self._policies(call)
        return [] if policies is None else [each for each in requests if not is_allowed(each, policies)]

    def runs_agent(self, access_key: str) -> bool:
        """Whether the agent of an instance with this key is reached by Systems Manager."""
        policies = role_policies(access_key) if self._checks_roles else None
        return policies is None or all(is_allowed(AccessRequest(action=each), policies) for each in _AGENT)

    def refusal(self, call: AwsCall, denied: list[AccessRequest]) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return the response to a call that is not allowed, as its service words it."""
        kind, content = call.error(
            _CODES.get(call.service, "AccessDeniedException"),
            f"User: {call.access_key} is not authorized to perform: {'; '.join(map(str, denied))}",
        )
        return f"{400 if call.is_json else 403} Refused", [("Content-Type", kind)], content

    def _policies(self, call: AwsCall) -> list[dict[str, Any]] | None:
        if call.access_key == USER:
            return self._of_user
        if self._checks_roles and call.access_key.startswith(ROLE):
            return role_policies(call.access_key)
        return None


def role_policies(access_key: str) -> list[dict[str, Any]]:
    """Return the policies of the role whose instances have this key: its own, and the managed ones attached to it."""
    backend = iam_backends[ACCOUNT]["aws"]
    found = []
    for profile in backend.instance_profiles.values():
        for role in profile.roles if role_key(profile.name) == access_key else ():
            found += [_document(text) for text in role.policies.values()]
            found += [_document(_managed(policy)) for policy in role.managed_policies.values()]
    return found


def _managed(policy: Any) -> str:
    """Return a managed policy's document in force."""
    versions = [each for each in policy.versions if each.is_default]
    return str(versions[0].document)


def _document(text: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(unquote(text)) if isinstance(text, str) else dict(text)
    return found
