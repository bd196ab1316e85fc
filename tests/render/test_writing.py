from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError
from fleetctl.operations.rendering import MANIFEST, render, render_to
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _only_shipped_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def everything(directory: Path) -> dict[str, str]:
    return {str(p.relative_to(directory)): p.read_text() for p in directory.rglob("*") if p.is_file()}


def test_a_plan_is_written_as_rendered_and_scripts_can_be_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = render_to(plugins_site(), *fleets.one_of_each(), out)
    files = render(plugins_site(), *fleets.one_of_each())
    assert [str(path.relative_to(out)) for path in paths] == list(files)
    assert everything(out).keys() - {MANIFEST} == files.keys()
    assert all((out / path).read_text() == text for path, text in files.items())
    assert os.access(out / "short" / "launch.sh", os.X_OK)
    assert not os.access(out / "short" / "engine.env", os.X_OK)


def test_rendering_again_changes_nothing(tmp_path: Path) -> None:
    render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "out")
    before = everything(tmp_path / "out")
    render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "out")
    assert everything(tmp_path / "out") == before


def test_its_own_files_are_replaced_when_the_plan_changes(tmp_path: Path) -> None:
    render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "out", engine="vllm")
    render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "out", engine="sglang")
    assert "sglang" in (tmp_path / "out" / "long" / "launch.sh").read_text()


def test_a_file_somebody_changed_is_not_overwritten_and_nothing_else_is_either(tmp_path: Path) -> None:
    out = tmp_path / "out"
    render_to(plugins_site(), *fleets.one_of_each(), out, engine="vllm")
    changed = out / "long" / "compose.yaml"
    changed.write_text(changed.read_text() + "# mine\n")
    before = everything(out)

    with pytest.raises(ConfigError, match=r"long/compose\.yaml") as refused:
        render_to(plugins_site(), *fleets.one_of_each(), out, engine="tgi")
    assert "force" in refused.value.hint
    assert everything(out) == before

    render_to(plugins_site(), *fleets.one_of_each(), out, engine="tgi", force=True)
    assert "# mine" not in changed.read_text()


def test_a_file_that_was_there_before_is_not_overwritten(tmp_path: Path) -> None:
    theirs = tmp_path / "out" / "short" / "launch.sh"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigError, match=r"short/launch\.sh"):
        render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "out")
    assert everything(tmp_path / "out") == {"short/launch.sh": "#!/bin/sh\n"}


def test_an_engine_that_cannot_be_rendered_for_is_named(tmp_path: Path) -> None:
    for engine in ("emulator", "llama.cpp"):
        with pytest.raises(ConfigError, match=engine) as refused:
            render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "out", engine=engine)
        assert ("real engine" if engine == "emulator" else "sglang, tgi, vllm") in refused.value.hint


def test_a_damaged_record_of_what_was_written_is_said_to_be_so(tmp_path: Path) -> None:
    render_to(plugins_site(), *fleets.one_of_each(), tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        render_to(plugins_site(), *fleets.one_of_each(), tmp_path)


def test_a_place_that_cannot_be_written_to_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigError, match="cannot write to"):
        render_to(plugins_site(), *fleets.one_of_each(), tmp_path / "file")
