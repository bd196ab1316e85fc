"""A fleet is named by its profile's file as well: who brought it up with the file takes it down with the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROFILE = """\
apiVersion: fleetctl/v1
name: demo
model: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: {kind: emulator}
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 480, p99: 3800}, output_tokens: {p50: 129, p99: 600}}
lanes:
  all: {max_wait: 5s, slo: {ttft: {p99: 5s}, itl: {p99: 150ms}}}
"""


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file-of-another-name.yaml").write_text(PROFILE)
    found = FakeSite()
    found.store.put_fleet(samples.profile(), samples.plan(), now=found.clock.now())
    yield found
    found.store.close()


@pytest.mark.parametrize("argv", [["down", "file-of-another-name.yaml", "--dry-run"], ["status", "file-of-another-name.yaml"],
                                  ["freeze", "--fleet", "file-of-another-name.yaml", "--reason", "x", "--dry-run"]])  # fmt: skip
def test_the_file_stands_for_the_fleet_it_names(fakes, capsys, argv):
    code = main(argv, site=fakes.site)
    shown = capsys.readouterr()
    assert "demo" in shown.out + shown.err
    assert "nothing to do" not in shown.err
    assert code == main([*(word.replace("file-of-another-name.yaml", "demo") for word in argv)], site=fakes.site)


def test_a_file_that_is_not_there_is_no_fleet_that_is_gone(fakes, capsys):
    assert main(["down", "demo.yaml", "--yes"], site=fakes.site) != 0
    shown = capsys.readouterr().err
    assert "no profile at demo.yaml" in shown
    assert "fleetctl ls" in shown


def test_a_file_that_is_no_profile_says_where_it_is_wrong(fakes, capsys, tmp_path):
    (tmp_path / "demo.yaml").write_text("name: [")
    assert main(["down", "demo.yaml", "--yes"], site=fakes.site) != 0
    assert "demo.yaml" in capsys.readouterr().err
