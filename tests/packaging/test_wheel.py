"""The wheel, built and installed outside the checkout, carries its data and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.packaging.installed import ROOT, install_wheel, run

if TYPE_CHECKING:
    from pathlib import Path

# One worker builds and installs, and all the tests use it.
pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a fresh environment's bin directory and a private environment block."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_installed_wheel_runs_outside_the_checkout(installed: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    binaries, env = installed
    where = run(str(binaries / "python"), "-c", "import fleetctl; print(fleetctl.__file__)", cwd=tmp_path, env=env)
    assert str(ROOT) not in where
    assert "0.1.0" in run(str(binaries / "fleetctl"), "version", cwd=tmp_path, env=env)
    run(str(binaries / "fleetctl"), "doctor", cwd=tmp_path, env=env)
    run(str(binaries / "fleetctl"), "validate", "quickstart", cwd=tmp_path, env=env)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "profile", ["quickstart", "chat", "voice", "code-inline", "code-panel", "rag", "batch", "saas"]
)
def test_every_packaged_profile_plans_from_the_wheel(
    installed: tuple[Path, dict[str, str]], tmp_path: Path, profile: str
) -> None:
    binaries, env = installed
    # A profile that is not valid has no plan.
    assert '"lanes"' in run(str(binaries / "fleetctl"), "plan", profile, "-o", "json", cwd=tmp_path, env=env)
