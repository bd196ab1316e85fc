"""The wheel, built and installed outside the checkout, carries its data and runs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

# One worker builds and installs, and all the tests use it.
pytestmark = pytest.mark.xdist_group("wheel")

ROOT = Path(__file__).resolve().parents[2]


def _run(*argv: str, cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{argv} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a fresh environment's bin directory and a private environment block."""
    home = tmp_path_factory.mktemp("wheel")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_RUNTIME_DIR": str(home / "run"),
    }
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home / "dist"), cwd=ROOT, env=env)
    (wheel,) = (home / "dist").glob("fleetctl-*.whl")
    # Where this environment has pip, the new one needs none of its own, which is most of its making.
    has_pip = importlib.util.find_spec("pip") is not None
    venv.create(home / "venv", with_pip=not has_pip)
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)] if has_pip else [str(python), "-m", "pip"]
    _run(*pip, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel), cwd=home, env=env)
    # The dependencies are the test environment's own; its .pth files (the editable checkout) are not read from there.
    site = Path(
        _run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home, env=env).strip()
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "venv" / "bin", env


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_installed_wheel_runs_outside_the_checkout(installed: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    binaries, env = installed
    where = _run(str(binaries / "python"), "-c", "import fleetctl; print(fleetctl.__file__)", cwd=tmp_path, env=env)
    assert str(ROOT) not in where
    assert "0.1.0" in _run(str(binaries / "fleetctl"), "version", cwd=tmp_path, env=env)
    _run(str(binaries / "fleetctl"), "doctor", cwd=tmp_path, env=env)
    _run(str(binaries / "fleetctl"), "validate", "quickstart", cwd=tmp_path, env=env)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("profile", ["quickstart", "chat", "voice", "code-inline", "code-panel", "rag", "batch"])
def test_every_packaged_profile_plans_from_the_wheel(
    installed: tuple[Path, dict[str, str]], tmp_path: Path, profile: str
) -> None:
    binaries, env = installed
    # A profile that is not valid has no plan.
    assert '"lanes"' in _run(str(binaries / "fleetctl"), "plan", profile, "-o", "json", cwd=tmp_path, env=env)
