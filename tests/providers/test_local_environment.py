"""What an engine inherits: enough to run, and no secret of the shell that ran `up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.environment import engine_environment
from fleetctl.testing.orders import create
from tests.providers.conftest import tagged_pids
from tests.providers.test_local import eventually, order

if TYPE_CHECKING:
    from fleetctl_local.provider import LocalProvider

CANARY = "canary-that-no-engine-may-see"
SECRETS = (
    "AWS_SECRET_ACCESS_KEY",
    "GATEWAY_API_KEY",
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "VLLM_API_KEY",
    "MY_OWN_THING",
    "SSH_AUTH_SOCK",
)
NEEDED = ("CUDA_HOME", "HF_HOME", "HF_HUB_OFFLINE", "LC_ALL", "VLLM_LOGGING_LEVEL", "https_proxy", "XDG_CACHE_HOME")


async def test_a_living_engine_holds_no_secret_of_its_starter_and_what_its_profile_names(
    local: LocalProvider, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    for name in NEEDED:
        monkeypatch.setenv(name, f"needed-{name}")
    await create(local, order(owner, env={"HF_TOKEN": "given by reference", "PLAIN": "1"}))
    await eventually(lambda: len(tagged_pids(owner)) == 1)
    (pid,) = tagged_pids(owner)
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123, ASYNC230  # the kernel's, at once
        seen = dict(pair.partition("=")[::2] for pair in file.read().decode().split("\0") if pair)
    assert CANARY not in "".join(seen.values())
    assert seen["HF_TOKEN"] == "given by reference"  # noqa: S105  # no secret
    assert seen["PLAIN"] == "1"
    assert {name: seen.get(name) for name in NEEDED} == {name: f"needed-{name}" for name in NEEDED}
    assert seen["PATH"]


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "SGLANG_SECRET", "RAY_TOKEN", "FLEETCTL_LISTEN_FDS", "AWS_PROFILE", "PS1"]
)
def test_a_prefix_passes_no_secret_on(name):
    assert engine_environment({name: "x"}) == {}
