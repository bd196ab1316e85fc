from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion


class SvgSnapshotExtension(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "svg"


class TextSnapshotExtension(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def same_picture(snapshot: SnapshotAssertion) -> Callable[[str], None]:
    def check(svg: str) -> None:
        assert svg == snapshot(extension_class=SvgSnapshotExtension)

    return check


@pytest.fixture
def same_text(snapshot: SnapshotAssertion) -> Callable[[str], None]:
    def check(text: str) -> None:
        assert text == snapshot(extension_class=TextSnapshotExtension)

    return check
