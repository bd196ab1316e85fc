"""Files are written whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    write_whole(path, b"new", mode=0o600, is_durable=is_durable)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_put_in_place_leaves_the_old_and_no_draft(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    (taken / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_whole(taken, b"new", mode=0o600)
    assert list(tmp_path.iterdir()) == [taken]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file", b"", mode=0o600)
