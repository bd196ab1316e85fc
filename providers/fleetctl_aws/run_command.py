"""Scripts run on instances by Systems Manager's Run Command: no port is open for it, and nobody logs in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.errors import CredentialsError, ProviderError, UnavailableError
from fleetctl_aws.faults import NoSuchResourceError

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl_aws.connection import AwsConnection

_DOCUMENT = "AWS-RunShellScript"
# Run Command gives an instance no less to take a command in.
_DELIVERY_S_MIN = 30
_WAITING = ("Pending", "InProgress", "Delayed")
_RIGHTS = ("ssm:SendCommand", "ssm:GetCommandInvocation")
_NO_AGENT = "InvalidInstanceId"
_POLL_S, _MARGIN_S, _ERROR_CHARS_MAX = 0.5, 15.0, 300


class RunCommand:
    """Runs scripts on instances, and waits for what they write."""

    def __init__(self, connection: AwsConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def output(self, instance: str, script: str, *, what: str, runs_s: float) -> str:
        """Return what a script writes on an instance, its first 24,000 characters; it is ended after `runs_s` seconds.

        `what` names its purpose, in errors and in the account's own list of commands. Raises CredentialsError (a right
        lacks), ProviderError (the agent is not reached, or the script failed), UnavailableError (no end in `runs_s` and 15 s).
        """
        limit_s = math.ceil(runs_s)
        try:
            sent = await self._connection.read(
                "ssm", "send_command", InstanceIds=[instance], DocumentName=_DOCUMENT, Comment=f"fleetctl: {what}",
                TimeoutSeconds=max(_DELIVERY_S_MIN, limit_s),
                Parameters={"commands": [script], "executionTimeout": [str(limit_s)]},
            )  # fmt: skip
            return await self._awaited(instance, str(sent["Command"]["CommandId"]), what, runs_s + _MARGIN_S)
        except CredentialsError as exc:
            rights = " and ".join(_RIGHTS)
            raise CredentialsError(
                f"{what} of {instance} goes through Systems Manager, which takes {rights}: {exc.message}",
                hint="have them granted (docs/aws-policy.json)",
            ) from exc
        except ProviderError as exc:
            if _NO_AGENT not in exc.message:
                raise
            raise ProviderError(
                f"Systems Manager does not reach {instance}",
                hint="its image needs the SSM agent, its role (provider.instance_profile) docs/aws-engine-policy.json, its "
                "subnet a way to AWS's endpoints; an instance that boots has it after a minute",
            ) from exc

    async def _awaited(self, instance: str, command: str, what: str, deadline_s: float) -> str:
        until_s = self._clock.monotonic_s() + deadline_s
        while self._clock.monotonic_s() < until_s:
            await self._clock.sleep(_POLL_S)
            try:
                found = await self._connection.read(
                    "ssm", "get_command_invocation", CommandId=command, InstanceId=instance
                )
            except NoSuchResourceError:
                continue  # for a moment after it was sent it is not there
            if found["Status"] in _WAITING:
                continue
            if found["Status"] == "Success":
                return str(found["StandardOutputContent"])
            why = str(found.get("StandardErrorContent", ""))[-_ERROR_CHARS_MAX:].strip()
            raise ProviderError(f"{what} of {instance}: {found['Status']}" + (f": {why}" if why else ""))
        raise UnavailableError(f"{what} of {instance} has not ended within {deadline_s:g} s", hint="try again")
