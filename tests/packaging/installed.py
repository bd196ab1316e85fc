"""The wheel in an environment of its own, outside the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*argv: str, cwd: Path, env: dict[str, str], timeout_s: float = 120) -> str:
    """Return what a command prints. Raises AssertionError, with both its outputs, if it fails."""
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{argv} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install_wheel(home: Path, *, hooks: dict[str, str] | None = None) -> tuple[Path, dict[str, str]]:
    """Build and install the wheel under `home`; return the bin directory and a private environment block.

    `hooks` are variables for the wheel's builder.
    """
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_RUNTIME_DIR": str(home / "run"),
    }
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home / "dist")]
    run(*build, cwd=ROOT, env=env | (hooks or {}), timeout_s=600)
    (wheel,) = (home / "dist").glob("fleetctl-*.whl")
    # Where this environment has pip, the new one needs none of its own, which is most of its making.
    has_pip = importlib.util.find_spec("pip") is not None
    venv.create(home / "venv", with_pip=not has_pip)
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)] if has_pip else [str(python), "-m", "pip"]
    run(*pip, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel), cwd=home, env=env)
    # The dependencies are the test environment's own; its .pth files (the editable checkout) are not read from there.
    site = Path(
        run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home, env=env).strip()
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "venv" / "bin", env
