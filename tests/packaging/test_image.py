"""The Containerfile's own instructions, on a tree of their own, make an installation that has all it needs and writes where it may.

No builder of images is needed, and no index: what the wheel requires is the test environment's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.catalogue import kubernetes_parts
from tests.packaging.containerfile import read_containerfile
from tests.packaging.installed import ROOT, run

if TYPE_CHECKING:
    from tests.packaging.containerfile import BuildStage

pytestmark = pytest.mark.xdist_group("wheel")

_ABSOLUTE = re.compile(r"/opt/fleetctl\b|/src\b|/var/lib/fleetctl\b|/tmp\b")
# Stands for the image's: it installs the wheel of the tree that pip is given, without an index, and as the image's requirements
# those of the tests.
_PYTHON = """\
#!/bin/sh
[ "$1 $2" = "-m pip" ] || exec PYTHON "$@"
PYTHON -m hatchling build -t wheel -d WHEELS >/dev/null || exit
for word; do
    shift
    [ "$word" != . ] || word=$(echo WHEELS/*.whl)
    set -- "$@" "$word"
done
shift 2
PIP -m pip "$@" --quiet --no-index --no-deps --disable-pip-version-check || exit
echo REQUIREMENTS >"$(echo OPT/lib/python*/site-packages)/requirements.pth"
"""


class UnpackedImage:
    """A directory that stands for the image's root, and for that of the stage that builds it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build = read_containerfile()
        self.opt, self.source = root / "opt/fleetctl", root / "src"
        (root / "bin").mkdir(parents=True)
        for directory in ("src", "opt", "var/lib", "tmp"):
            (root / directory).mkdir(parents=True)
        self._write_python()

    def follow(self, stage: BuildStage, **variables: str) -> None:
        """Do what a stage says."""
        assert stage.values_of("WORKDIR") in ([], ["/src"])
        for sources, target in stage.copies:
            for source in sources:
                _copy(source, self.source / target / source if target == "./" else self.source / target)
        env = {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "HOME": str(self.root / "root"), **variables}
        for command in stage.runs:
            run("sh", "-c", self._here(command), cwd=self.source, env=env)

    def environment(self) -> dict[str, str]:
        """Return what the image gives every process."""
        return {name: self._here(value) for name, value in self.build.environment.items()}

    def files(self) -> set[str]:
        """Return what is there by now, but for what is written at run time."""
        written = (self.root / "var", self.root / "tmp")
        return {str(each) for each in self.root.rglob("*") if not any(each.is_relative_to(at) for at in written)}

    def _here(self, text: str) -> str:
        text = _ABSOLUTE.sub(lambda found: f"{self.root}{found[0]}", text)
        return text if os.geteuid() == 0 else text.replace("-o 65532 -g 65532 ", "")

    def _write_python(self) -> None:
        # An environment that uv made has no pip.
        pip = Path(sys.executable)
        if importlib.util.find_spec("pip") is None:
            venv.create(self.root / "pip", with_pip=True)
            pip = self.root / "pip/bin/python"
        text = _PYTHON.replace("REQUIREMENTS", sysconfig.get_path("purelib")).replace("OPT", str(self.opt))
        text = text.replace("PYTHON", sys.executable).replace("PIP", str(pip))
        python = self.root / "bin/python"
        python.write_text(text.replace("WHEELS", str(self.root / "wheels")))
        python.chmod(0o755)


def _copy(name: str, target: Path) -> None:
    """Copy what a clone would have of a file or directory of the checkout."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", name]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:  # an archive of the checkout
        found = [str(each.relative_to(ROOT)) for each in (ROOT / name).rglob("*") if "__pycache__" not in each.parts]
    else:
        found = [each for each in listed.stdout.split("\0") if each]
    for each in found or [name]:
        if (ROOT / each).is_file():
            to = target / Path(each).relative_to(name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / each, to)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> UnpackedImage:
    """Build it. The standard library's byte code, which is this machine's, goes elsewhere."""
    made = UnpackedImage(tmp_path_factory.mktemp("image"))
    first, last = made.build.stages
    made.follow(first)
    assert last.takes == [(first.name, "/opt/fleetctl", "/opt/fleetctl")]
    made.follow(last, PYTHONPYCACHEPREFIX=str(made.root / "bytecode"))
    assert len(list((made.root / "bytecode").rglob("*.pyc"))) > 500
    return made


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_built_tree_runs_by_itself_and_writes_only_where_a_pod_may(image: UnpackedImage, tmp_path: Path) -> None:
    before, env = image.files(), image.environment()
    (home := tmp_path / "home").mkdir(0o555)

    def fleetctl(*words: str, **variables: str) -> str:
        return run("fleetctl", *words, cwd=home, env={**env, "FLEETCTL_NO_PROOF": "1", **variables})

    assert "fleetctl 0.1.0" in fleetctl("--version")
    where = run("python", "-c", "import fleetctl; print(fleetctl.__file__)", cwd=home, env=env).strip()
    assert Path(where).is_relative_to(image.opt)
    fleetctl("doctor")
    assert '"lanes"' in fleetctl("plan", "chat", "-o", "json", HOME=str(home))
    fleetctl("render", "chat", "-o", str(image.root / "tmp/out"), "--target", "kubernetes", HOME=str(home))
    assert (image.root / "tmp/out/kubernetes/short.yaml").is_file()
    for module in ("fleetctl.cli.pod", "fleetctl.gateway.__main__", "fleetctl.controller.__main__"):
        run("python", "-c", f"import {module}", cwd=home, env=env)

    assert image.files() == before
    assert list(home.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_image_has_neither_tests_nor_an_installer(image: UnpackedImage) -> None:
    (packages,) = image.opt.glob("lib/python*/site-packages")
    assert not [each for each in packages.rglob("tests") if each.is_dir()]
    assert not list(packages.glob("pip*"))
    # Byte code is there for all of it, and is taken for what it says.
    (compiled,) = (packages / "fleetctl/__pycache__").glob("errors.*.pyc")
    assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", "hashed, and not checked"


def test_the_containerfile_says_what_the_project_and_its_pods_say() -> None:
    build = read_containerfile()
    first, last = build.stages
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in last.pairs("LABEL").items()}
    assert (labels["version"], labels["licenses"]) == (project["version"], project["license"])
    assert last.values_of("USER") == [f"{kubernetes_parts.USER}:{kubernetes_parts.USER}"]
    assert build.arguments == {"PYTHON_IMAGE": "docker.io/library/python:3.11-slim"}
    assert [each.values_of("FROM")[0].split()[0] for each in (first, last)] == ["${PYTHON_IMAGE}"] * 2
    given = kubernetes_parts.container("i", [], variables={}, port=1, mounts=[])["env"]
    variables = {each["name"]: each["value"] for each in given}
    common = build.environment.keys() & variables.keys()
    assert {"HOME", "XDG_STATE_HOME"} <= common
    assert {name: build.environment[name] for name in common} == {name: variables[name] for name in common}


def test_a_builder_is_sent_what_is_copied_and_nothing_else() -> None:
    lines = [each for each in (ROOT / ".dockerignore").read_text().splitlines() if each and not each.startswith("#")]
    copied = {source for stage in read_containerfile().stages for sources, _ in stage.copies for source in sources}
    assert lines[0] == "*"
    assert {each.removeprefix("!") for each in lines if each.startswith("!")} == copied
    assert not {each for each in lines if not each.startswith("!")} - {
        "*",
        "**/__pycache__",
        "**/*.pyc",
        "**/*.egg-info",
    }
    assert all(shlex.quote(each) == each for each in copied)
