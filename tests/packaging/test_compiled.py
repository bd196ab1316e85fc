"""The compiled build decides as the sources do, to the last digit, and runs a fleet."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.installed import ROOT, install_wheel, run
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.xdist_group("compiled")]

_DIGEST = str(ROOT / "tests" / "bench" / "sim_digest.py")

# Every class of the product that is not compiled and inherits from one that is: making an instance of it raises.
_HALF_COMPILED = """
import importlib, inspect, pkgutil, fleetctl
names = [m.name for m in pkgutil.walk_packages(fleetctl.__path__, "fleetctl.") if not m.name.endswith("__main__")]
classes = {c for n in names for c in vars(importlib.import_module(n)).values() if inspect.isclass(c)}
own = "__mypyc_attrs__"
print(len([c for c in classes if own in vars(c)]))
print(sorted(str(c) for c in classes if own not in vars(c) and any(own in vars(base) for base in c.__mro__)))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return the bin directory of an environment with the compiled build, and a private environment block."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.exists() or shutil.which("cc") is None:
        reason = "no C compiler, or no headers of this Python: apt-get install gcc libc6-dev python3-dev"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
    # What mypyc makes of the sources is tested, not the C compiler, whose optimising is most of a build.
    hooks = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "1", "FLEETCTL_COMPILE_LEVEL": "0"}
    return install_wheel(tmp_path_factory.mktemp("compiled"), hooks=hooks)


@pytest.mark.timeout(900)
def test_compiled_decisions_and_figures_are_those_of_the_sources(compiled: tuple[Path, dict[str, str]]) -> None:
    binaries, env = compiled
    digests = []
    for number, python in enumerate((str(binaries / "python"), sys.executable)):
        seeded = env | {"PYTHONHASHSEED": str(number + 1)}
        printed = run(python, _DIGEST, "--seed", "3", cwd=binaries, env=seeded, timeout_s=300)
        digests.append([line.split()[:-2] for line in printed.splitlines()])  # without its time
    assert digests[0] == digests[1]
    assert "compiled" in run(str(binaries / "fleetctl"), "version", cwd=binaries, env=env)


@pytest.mark.timeout(300)
def test_a_compiled_fleet_answers_its_load(compiled: tuple[Path, dict[str, str]]) -> None:
    binaries, env = compiled
    count, half = run(str(binaries / "python"), "-c", _HALF_COMPILED, cwd=binaries, env=env).splitlines()
    assert int(count) > 50
    assert half == "[]"
    fleetctl = str(binaries / "fleetctl")
    port = str(free_port())
    run(fleetctl, "up", "quickstart", "--port", port, "-y", "-q", cwd=binaries, env=env)
    try:
        load = [fleetctl, "load", "quickstart", "--duration", "5s", "--rps", "5", "-o", "json"]
        total = json.loads(run(*load, cwd=binaries, env=env))["total"]
    finally:
        run(fleetctl, "down", "quickstart", "-y", cwd=binaries, env=env)
    # A busy machine may have to refuse some; what it takes it answers.
    assert total["ok"] >= 5, total
    assert total["ok"] + total["refused"] == total["requests"], total
