"""Where the binaries of a control plane lie: KUBEBUILDER_ASSETS, else a cached envtest release, else nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
VARIABLE = "KUBEBUILDER_ASSETS"
# setup-envtest keeps releases here; they hold etcd, kube-apiserver and kubectl, and whatever was put beside them.
_CACHES = (
    Path("~/.local/share/kubebuilder-envtest/k8s"),
    Path("~/Library/Application Support/io.kubebuilder.envtest/k8s"),
    Path("/usr/local/kubebuilder/bin"),
)
_HOW = (
    f"set {VARIABLE} to a directory with {', '.join(COMPONENTS)} (`setup-envtest use 1.36 -p path` brings the first two; "
    "the others: https://dl.k8s.io/release/v1.36.2/bin/linux/amd64/NAME, put beside them)"
)


def control_plane_assets() -> Path:
    """Return the directory of the binaries, or skip with how to get them; where the variable names one, fail instead."""
    found = _assets_with(COMPONENTS)
    if problem := _why_not_here():
        assert not os.environ.get(VARIABLE), problem
        pytest.skip(problem)
    return found


def api_server_assets() -> Path:
    """Return the directory of etcd and kube-apiserver, which is all that a release of envtest has, or skip as above."""
    found = _assets_with(COMPONENTS[:2])
    if problem := _why_no_certificates():
        assert not os.environ.get(VARIABLE), problem
        pytest.skip(problem)
    return found


def _assets_with(components: tuple[str, ...]) -> Path:
    named = os.environ.get(VARIABLE, "")
    if named:
        missing = _missing(Path(named), components)
        assert not missing, f"{VARIABLE}={named} has no {', '.join(missing)}"
        return Path(named)
    found = next((directory for directory in _cached() if not _missing(directory, components)), None)
    if found is None:
        pytest.skip(f"no Kubernetes control plane here: {_HOW}")
    return found


def client_program(name: str) -> Path:
    """Return a program that lies beside the control plane's, or skip; where the variable names the directory, fail instead."""
    program = control_plane_assets() / name
    if not os.access(program, os.X_OK):
        assert not os.environ.get(VARIABLE), f"{VARIABLE}={program.parent} has no {name}"
        pytest.skip(f"no {name} in {program.parent}")
    return program


def definition_file(name: str) -> Path:
    """Return a custom resource's definition that lies beside the control plane's binaries, or skip or fail as above."""
    definition = control_plane_assets() / "crds" / name
    if not definition.is_file():
        assert not os.environ.get(VARIABLE), f"{VARIABLE}={definition.parents[1]} has no crds/{name}"
        pytest.skip(f"no {definition}")
    return definition


def _cached() -> list[Path]:
    roots = [path.expanduser() for path in _CACHES]
    return [each for root in roots if root.is_dir() for each in (root, *sorted(root.iterdir(), reverse=True))]


def _missing(directory: Path, components: tuple[str, ...]) -> list[str]:
    return [name for name in components if not os.access(directory / name, os.X_OK)]


def _why_not_here() -> str:
    """Return what keeps pods from having addresses of their own here; empty: nothing."""
    if problem := _why_no_certificates():
        return problem
    if shutil.which("ip") is None:
        return "the tests' pods get addresses by the command ip (package iproute2), which is not installed"
    probe = ["ip", "addr", "add", "10.200.255.255/32", "dev", "lo"]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    # Two that look at the same moment: the kernel says "File exists", newer ones "Address already assigned".
    is_there = "File exists" in tried.stderr or "already assigned" in tried.stderr
    if tried.returncode and not is_there:
        return (
            f"the tests' pods need addresses on the loopback device, which only root may give: {tried.stderr.strip()}"
        )
    subprocess.run(["ip", "addr", "del", *probe[3:]], capture_output=True, check=False)  # noqa: S607  # whichever is first
    return ""


def _why_no_certificates() -> str:
    if shutil.which("openssl") is None:
        return "the tests' cluster makes its certificates with openssl, which is not installed"
    return ""
