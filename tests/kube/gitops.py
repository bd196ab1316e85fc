"""Runs the programs that read rendered files: kubectl, helm."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.assets import VARIABLE


def program(name: str) -> Path:
    """Return a program of KUBEBUILDER_ASSETS or of PATH, or skip; where the variable is set, fail instead."""
    named = os.environ.get(VARIABLE, "")
    beside = Path(named) / name
    if named and os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    if found is None:
        assert not named, f"{VARIABLE}={named} has no {name}, nor has PATH"
        pytest.skip(f"no {name} here: put it into {VARIABLE} or on PATH")
    return Path(found)


def run(name: str, *arguments: str, home: Path) -> str:
    """Run a program to its end; return what it wrote. Its own files go below `home`."""
    folders = {f"HELM_{kind}_HOME": str(home / f"helm-{kind.lower()}") for kind in ("CONFIG", "CACHE", "DATA")}
    ran = subprocess.run(
        [str(program(name)), *arguments],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **folders, "HOME": str(home)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def documents(text: str) -> dict[tuple[str, str, str], Any]:
    """Return the objects of a stream by kind with its group (Deployment.apps), namespace and name."""
    found = [each for each in yaml.safe_load_all(text) if each]
    keyed = {(_kind(x), x["metadata"].get("namespace", ""), x["metadata"]["name"]): x for x in found}
    assert len(keyed) == len(found)
    return keyed


def _kind(item: Any) -> str:
    group, _, _ = item["apiVersion"].rpartition("/")
    return f"{item['kind']}.{group}" if group else str(item["kind"])
