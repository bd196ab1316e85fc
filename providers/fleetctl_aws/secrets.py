"""The engines' secrets on their way to the instances: in Parameter Store, which their role reads, and nowhere else."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl_aws import tags
from fleetctl_aws.settings import PROFILE
from fleetctl_aws.user_data import secret_names

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest
    from fleetctl.model.shared import SharedResource
    from fleetctl.ports.provider import ResolveSecrets
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

_ROOT = "/fleetctl"
_DELETED_AT_ONCE = 10  # the most that DeleteParameters takes


class EngineSecrets:
    """SecureStrings by fleet and by what they are references to."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def put(self, request: NodeRequest, resolve_secrets: ResolveSecrets) -> str:
        """Have a request's secrets there as they are now, and return their path; empty: it has none. Raises ConfigError."""
        names = secret_names(request)
        if not names:
            return ""
        if not self._settings.instance_profile:
            raise ConfigError(
                f"lane {request.lane} has secrets ({', '.join(names)}), and its instances no role to read them with",
                hint=f"name in provider.instance_profile or {PROFILE} an instance profile whose role may ssm:GetParametersByPath on {_ROOT}/*",
            )
        resolved = resolve_secrets(request.env)
        path = secrets_path(request)
        for name in names:
            if "\n" in resolved[name] or not resolved[name]:
                raise ConfigError(
                    f"{name}: its value is empty or has several lines", hint="an engine's variable is one line"
                )
            await self._connection.change(
                "ssm", "put_parameter", Name=f"{path}/{name}", Value=resolved[name], Type="SecureString", Overwrite=True
            )  # fmt: skip
        return path

    async def prepare(self, resource: SharedResource) -> None:
        """Make nothing: they come with the first order that has any."""

    async def teardown(self, resource: SharedResource) -> None:
        """Delete every secret of a fleet."""
        path = f"{_ROOT}/{tags.fleet_name(resource.owner, resource.fleet)}"
        # Without their values: nothing is decrypted for this.
        wanted = [{"Key": "Path", "Option": "Recursive", "Values": [path]}]
        found = await self._connection.read_all("ssm", "describe_parameters", "Parameters", ParameterFilters=wanted)
        names = [each["Name"] for each in found]
        for first in range(0, len(names), _DELETED_AT_ONCE):
            await self._connection.change("ssm", "delete_parameters", Names=names[first : first + _DELETED_AT_ONCE])


def secrets_path(request: NodeRequest) -> str:
    """Return where a request's secrets are: the same for all that have the same references."""
    references = {name: request.env[name] for name in secret_names(request)}
    digest = hashlib.sha256(json.dumps(references, sort_keys=True).encode()).hexdigest()[:12]
    return f"{_ROOT}/{tags.fleet_name(request.owner, request.fleet)}/{digest}"
