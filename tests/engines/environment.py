"""Finds the heavy engine environment that `tests/engine_env/setup.sh` makes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def engine_env() -> Path:
    """Return its directory. Without it the test is skipped, or fails where CI=true promises that it is there."""
    directory = Path(os.environ.get("FLEETCTL_ENGINE_ENV") or CHECKOUT / ".venv-engines").absolute()
    if not (directory / ".fleetctl-stamp").is_file():
        reason = f"no engine environment in {directory}; make it: tests/engine_env/setup.sh {directory}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return directory


def option_cache() -> dict[str, str]:
    """Return the variable by which fleets of one run read the engine's options once: its parser takes long to be imported."""
    return {"XDG_CACHE_HOME": str(Path(tempfile.gettempdir()) / "engine-options")}


def offline() -> dict[str, str]:
    """Return the variables that keep a real engine off the network, and small."""
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
