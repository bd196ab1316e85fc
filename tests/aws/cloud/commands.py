"""Systems Manager's commands, which moto takes and never runs: here the instance runs them, as its agent would."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.aws.cloud.access import AccessControl
    from tests.aws.cloud.calls import AwsCall
    from tests.aws.cloud.machines import Machines

_OUTPUT_CHARS_MAX = 24_000  # of a command's output, the first


class InstanceCommands:
    """Sends commands to booted instances."""

    def __init__(self, machines: Machines, access: AccessControl) -> None:
        self._machines = machines
        self._access = access
        self._numbers = itertools.count(1)

    def response(self, call: AwsCall) -> dict[str, Any] | None:
        """Return the response to a call about commands; None: it is about something else."""
        if call.service != "ssm":
            return None
        if call.action == "SendCommand":
            return self._sent(call.parameters)
        if call.action == "GetCommandInvocation":
            return self._invocation(call.parameters)
        return None

    def _sent(self, parameters: dict[str, str]) -> dict[str, Any]:
        if parameters["DocumentName"] != "AWS-RunShellScript":
            return {"__type": "InvalidDocument", "message": ""}
        instance = parameters["InstanceIds.1"]
        if not self._access.runs_agent(self._machines.access_key(instance)):
            return {"__type": "InvalidInstanceId", "message": "Instances not in a valid state for account"}
        command = str(uuid.UUID(int=next(self._numbers)))
        if not self._machines.send(instance, command, parameters["Parameters.commands.1"]):
            return {"__type": "InvalidInstanceId", "message": "Instances not in a valid state for account"}
        return {"Command": {"CommandId": command, "Status": "Pending", "InstanceIds": [instance]}}

    def _invocation(self, parameters: dict[str, str]) -> dict[str, Any]:
        command, instance = parameters["CommandId"], parameters["InstanceId"]
        text = self._machines.result(instance, command)
        found: dict[str, Any] = {"CommandId": command, "InstanceId": instance}
        if text is None:
            return {**found, "Status": "InProgress", "StandardOutputContent": "", "StandardErrorContent": ""}
        ran = json.loads(text)
        return {
            **found,
            "Status": "Success" if ran["status"] == 0 else "Failed",
            "ResponseCode": ran["status"],
            "StandardOutputContent": ran["output"][:_OUTPUT_CHARS_MAX],
            "StandardErrorContent": ran["errors"][:_OUTPUT_CHARS_MAX],
        }
