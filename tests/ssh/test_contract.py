"""The SSH provider is held to what every provider keeps, by the same scenarios, on machines with a real sshd."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import pytest

from fleetctl_ssh.provider import SshProvider
from fleetctl_ssh.settings import SshSettings
from tests.providers.contract import test_contract, test_machines
from tests.providers.contract.cases import Case

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ssh.hosts import Host

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SCENARIOS = {
    name: scenario
    for module in (test_contract, test_machines)
    for name, scenario in vars(module).items()
    if name.startswith("test_") and [*inspect.signature(scenario).parameters] == ["held"]
}


@pytest.fixture(scope="module", autouse=True)
def _enough_gpus(machines: dict[str, Host]) -> None:
    """What one scenario leaves running keeps its GPUs."""
    machines["gpu-a"].write_gpus(32)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_contract_of_providers_is_kept(name: str, inventory: Path) -> None:
    settings = SshSettings(inventory=str(inventory), expires_s=20.0)
    case = Case(lambda clock: SshProvider(clock, settings=settings), order={"offering": "1xL40S/gpu-a/on-demand"})
    SCENARIOS[name](partial(case.run, owner=f"owner-of-{name}"))
