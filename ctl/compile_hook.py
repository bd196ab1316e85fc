"""Compiles the request's way through the core, and the simulator, while a wheel is built: `./install.sh --compiled`.

A hook of the wheel's builder, off unless HATCH_BUILD_HOOK_ENABLE_CUSTOM=1; FLEETCTL_COMPILE_LEVEL is the C compiler's level of
optimisation, 2 where it is not set. The sources stay what they are; compiled by
mypyc they make the same decisions, to the last digit (tests/packaging/test_compiled.py), in a quarter of the time
(docs/benchmarks.md). A checkout is never compiled in place: an extension beside its source would hide later edits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What a request and a simulated step run through. The controller's decision gains a third by it and takes four times as
# long to compile; configuration and faces gain nothing.
# `load/accounts` has a stopwatch that is one of `core/slo`: what is not compiled cannot inherit from what is.
COMPILED = (
    "core/admission", "core/dispatch", "core/fairness", "core/perf/kv.py", "core/perf/step.py", "core/routing", "core/slo", "load/accounts.py", "sim",
)  # fmt: skip

_SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="fleetctl-compiled", packages=[], package_dir={{"": "ctl"}}, ext_modules=mypycify(
    ["--config-file=mypy.ini", *{files!r}], opt_level={level!r}, debug_level="0", group_name="fleetctl_compiled"))
"""
_MYPY = """[mypy]
mypy_path = ctl:providers
explicit_package_bases = True
namespace_packages = True
ignore_missing_imports = True
"""


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration is of no interest
    """Puts extension modules beside the sources of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and include what came of it. Raises RuntimeError with the compiler's last lines."""
        if version == "editable":
            return
        self._place = Path(tempfile.mkdtemp(prefix="fleetctl-compile-"))
        root = Path(self.root)
        for source in ("ctl/fleetctl", "providers"):
            shutil.copytree(root / source, self._place / source, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        self._compile(sorted(_files(self._place / "ctl" / "fleetctl"), key=str))
        for built in sorted((self._place / "ctl").rglob("*.so")):
            build_data["force_include"][str(built)] = str(built.relative_to(self._place / "ctl"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # hatch's
        """Remove what was compiled: the wheel holds it."""
        if version != "editable":
            shutil.rmtree(self._place)

    def _compile(self, files: list[Path]) -> None:
        names = [str(file.relative_to(self._place)) for file in files]
        level = os.environ.get("FLEETCTL_COMPILE_LEVEL", "2")
        (self._place / "setup.py").write_text(_SETUP.format(files=names, level=level))
        (self._place / "mypy.ini").write_text(_MYPY)
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        done = subprocess.run(command, cwd=self._place, capture_output=True, text=True, check=False)  # noqa: S603  # our own
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise RuntimeError(f"the core could not be compiled; a C compiler and Python's headers are needed:\n{tail}")


def _files(package: Path) -> list[Path]:
    found: list[Path] = []
    for name in COMPILED:
        place = package / name
        found += [place] if place.is_file() else [file for file in place.glob("*.py") if file.stem != "__init__"]
    return found
