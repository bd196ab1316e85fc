"""The AWS provider is held to what every provider keeps, by the same scenarios, on a cloud of tests."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.providers.contract import test_contract, test_machines
from tests.providers.contract.cases import Case

if TYPE_CHECKING:
    from tests.aws.provider.conftest import Rented

SCENARIOS = {
    name: scenario
    for module in (test_contract, test_machines)
    for name, scenario in vars(module).items()
    if name.startswith("test_") and [*inspect.signature(scenario).parameters] == ["held"]
}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_contract_of_providers_is_kept(name: str, rented: Rented) -> None:
    case = Case(rented.provider, order={"offering": "g6.xlarge/us-east-1b/spot", "port": 8000})
    SCENARIOS[name](partial(case.run, owner=f"owner-of-{name}"))
