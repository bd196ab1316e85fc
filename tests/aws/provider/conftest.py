"""The AWS provider on a cloud of tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from fleetctl_aws.provider import PACE, AwsProvider
from fleetctl_aws.settings import AwsSettings
from tests.aws.cloud.client import Cloud, running_cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.clock import Clock

IMAGE = "tests/emulator:1"
PROFILE = "engines"


@dataclass
class Rented:
    """A cloud, and providers that work on it."""

    cloud: Cloud

    def settings(self, **changes: object) -> AwsSettings:
        base = replace(AwsSettings.of_environment(), image=IMAGE, gateway_source="10.0.0.0/8", instance_profile=PROFILE)
        return replace(base, **changes)  # type: ignore[arg-type]  # a test's own words

    def provider(self, clock: Clock | None = None, **changes: object) -> AwsProvider:
        """Return one that believes what it reads at once, as this cloud lags only where a test says so."""
        pace = replace(PACE, consistency_lag_s=0.0, list_interval_s=0.2, create_settles_s=0.5)
        return AwsProvider(clock, settings=self.settings(**changes), pace=pace)


# Of the whole run: the tests of a file are spread over the workers, each of which would start one for every file.
@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[Cloud]:
    with running_cloud() as running:
        iam = running.boto("iam")
        iam.create_role(RoleName=PROFILE, AssumeRolePolicyDocument="{}")
        iam.create_instance_profile(InstanceProfileName=PROFILE)
        iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=PROFILE)
        yield running


@pytest.fixture
def rented(shared_cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Rented:
    """The worker's cloud, behaving as at its start and with nothing running, in the environment of this process."""
    shared_cloud.control("POST", "reset")
    for name, value in shared_cloud.environment.items():
        monkeypatch.setenv(name, value)
    return Rented(shared_cloud)
