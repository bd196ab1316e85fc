"""What starting a part of fleetctl loads, asked of a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"boto3", "botocore", "kubernetes", "textual", "pydantic", "httpx", "jinja2", "rich", "aiohttp", "yaml"}


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules in sys.modules after running `code`."""
    probe = f"{code}\nimport sys\nprint('\\n' + ' '.join({{name.split('.')[0] for name in sys.modules}}))"
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.splitlines()[-1].split())


def test_the_probe_sees_what_is_loaded() -> None:
    assert "pydantic" in loaded_by("import pydantic")


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by("from fleetctl.cli.main import main\nassert main(['--help']) == 0")
    assert "typer" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    "module",
    [
        "fleetctl.state.sqlite",
        "fleetctl.locks",
        "fleetctl_local.provider",
        "fleetctl_aws.provider",
        "fleetctl_kubernetes.provider",
        "fleetctl.model.status",
        "fleetctl.plugins",
    ],
)
def test_what_every_command_opens_is_lean(module: str) -> None:
    assert loaded_by(f"import {module}") & (HEAVY | {"typer", "psutil"}) == set()


def test_the_reclaimer_needs_the_standard_library_alone() -> None:
    loaded = loaded_by("import fleetctl_local.reclaim")
    assert loaded & (HEAVY | {"fleetctl", "msgspec", "asyncio", "psutil"}) == set()


@pytest.mark.parametrize("package", ["fleetctl.gateway", "fleetctl_emulator"])
def test_the_data_plane_is_lean(package: str) -> None:
    walk = (
        f"import importlib, pkgutil, {package} as p\n"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')\n"
        " if not m.name.endswith('__main__')]"
    )
    # yaml is how the emulator reads the catalogue, aiohttp how it and the gateway's admin door are served; the rest no
    # replica should pay for.
    assert loaded_by(walk) & (HEAVY - {"yaml", "aiohttp"}) == set()


def test_a_command_on_a_fleet_reads_no_profile_and_loads_nothing_that_decides() -> None:
    ran = "from fleetctl.cli.main import main\nassert main(['status', 'nobodys']) == 8\n"
    loaded = loaded_by(
        f"{ran}import sys\nassert not {{'fleetctl.config.profile', 'fleetctl.core.reconcile'}} & set(sys.modules)"
    )
    assert "fleetctl" in loaded
