"""What of a shell's environment reaches which process of a fleet, and what a second shell changes of it."""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.environment import controller_environment, engine_environment, gateway_environment
from fleetctl.errors import StateError
from fleetctl.model.profile import GatewaySpec
from fleetctl.paths import FleetPaths
from fleetctl.testing import samples
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.provider import FakeProvider
from fleetctl.variables import fleet_environment
from fleetctl_host_local import recorded_environment

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.environment import FleetEnvironment

SHELL = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "LC_ALL": "C.UTF-8",
    "https_proxy": "http://proxy:3128",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "CUDA_VISIBLE_DEVICES": "0",
    "XDG_STATE_HOME": "/home/me/state",
    "AWS_SECRET_ACCESS_KEY": "canary",
    "ACME_REGION": "north",
    "ACME_TOKEN": "canary",
    "GATEWAY_KEY": "canary",
    "SSH_AUTH_SOCK": "/run/agent",
    "FLEETCTL_LISTEN_FDS": "3",
    "FLEETCTL_FLEET": "other",
    "VLLM_API_KEY": "canary",
    "PS1": "$",
}


def taken(environ: dict[str, str], before: FleetEnvironment | None = None, **env: str) -> FleetEnvironment:
    """Return what a fleet takes whose provider declares ACME_* and whose engine is named by FAKE_PROGRAM."""
    profile = replace(samples.profile(), gateway=GatewaySpec(api_keys=("env:GATEWAY_KEY", "file:/run/key")))
    engine = FakeEngine(env=env)
    engine.program_env = "FAKE_PROGRAM"
    provider = FakeProvider(ManualClock(samples.EPOCH))
    provider.capabilities = replace(provider.capabilities, variables=frozenset({"ACME_*"}))
    return fleet_environment(
        profile, samples.plan(), provider=provider, engine_of=lambda _: engine, environ=environ, before=before
    )


def test_an_engine_gets_less_than_the_controller_and_a_gateway_least() -> None:
    controller = controller_environment(SHELL, declared=("ACME_*",))
    engine, gateway = engine_environment(SHELL), gateway_environment(SHELL)
    assert sorted(controller.keys() - engine.keys()) == ["ACME_REGION", "ACME_TOKEN", "XDG_STATE_HOME"]
    assert sorted(engine.keys() - gateway.keys()) == ["CUDA_VISIBLE_DEVICES", "SSL_CERT_FILE", "https_proxy"]
    assert sorted(gateway) == ["HOME", "LC_ALL", "PATH", "XDG_STATE_HOME"]


def test_what_nobody_declares_reaches_nobody() -> None:
    assert "canary" not in controller_environment(SHELL, declared=()).values()


def test_references_are_kept_apart_from_what_a_process_is_started_with() -> None:
    kept = taken(SHELL | {"HUB": "hub-canary"}, HUB_OF_MODELS="env:HUB", PLAIN="1")
    assert kept.variables == {"GATEWAY_KEY": "canary", "HUB": "hub-canary"}
    assert kept.inherited["ACME_TOKEN"] == SHELL["ACME_TOKEN"]  # declared by the provider
    assert not {"GATEWAY_KEY", "HUB"} & kept.inherited.keys()
    assert "canary" not in repr(kept)


def test_a_second_shell_changes_what_is_declared_and_referred_to_and_nothing_else() -> None:
    first = taken(SHELL | {"FAKE_PROGRAM": "/opt/a"})
    second = taken(
        {
            "PATH": "/bin",
            "https_proxy": "http://other",
            "ACME_TOKEN": "new",
            "GATEWAY_KEY": "new",
            "FAKE_PROGRAM": "/b",
        },
        first,
    )
    changed = {name for name in second.inherited if second.inherited[name] != first.inherited[name]}
    assert changed == {"ACME_TOKEN", "FAKE_PROGRAM"}
    assert second.variables == {"GATEWAY_KEY": "new"}
    assert taken({"PATH": "/bin"}, first) == first


class TestItsRecord:
    @pytest.fixture
    def paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetPaths:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        paths = FleetPaths(fleet="demo")
        paths.make()
        return paths

    def test_its_user_alone_reads_it_and_it_can_be_removed(self, paths: FleetPaths) -> None:
        kept = taken(SHELL)
        recorded_environment.write(paths, kept)
        assert stat.S_IMODE(paths.environment.stat().st_mode) == 0o600
        assert recorded_environment.read(paths) == kept
        recorded_environment.write(paths, None)
        assert recorded_environment.read(paths) is None

    def test_a_controller_is_started_with_it_whatever_the_starter_has(self, paths: FleetPaths, tmp_path: Path) -> None:
        recorded_environment.write(paths, taken(SHELL))
        for ours in ({"PATH": "/bin"}, {"https_proxy": "http://other", "EVIL": "1"}):
            environ = recorded_environment.of_controller(paths, ours)
            assert environ == taken(SHELL).inherited | {"XDG_STATE_HOME": str(tmp_path)}

    def test_a_damaged_one_is_said_to_be_and_not_repeated(self, paths: FleetPaths) -> None:
        paths.environment.write_text('{"inherited": {"TOKEN": "canary"')
        with pytest.raises(StateError, match=r"environment\.json") as caught:
            recorded_environment.read(paths)
        assert "canary" not in caught.value.message
        assert "fleetctl up" in caught.value.hint


def test_no_secret_slips_through_under_a_locales_or_an_engines_prefix() -> None:
    secret = ("LC_SECRET", "LC_API_KEY", "MALLOC_TOKEN", "CUDA_PASS", "VLLM_DSN", "VLLM_DB_PASSWD", "RAY_AUTH")
    given = dict.fromkeys((*secret, "LC_CTYPE", "LC_MESSAGES", "VLLM_USE_V1"), "x")
    assert sorted(gateway_environment(given)) == ["LC_CTYPE", "LC_MESSAGES"]
    assert sorted(engine_environment(given)) == ["LC_CTYPE", "LC_MESSAGES", "VLLM_USE_V1"]
