from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.emulator.engine_process import EngineProcess

if TYPE_CHECKING:
    from pathlib import Path

Start = Callable[..., EngineProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start emulators that end with the test."""
    started: list[EngineProcess] = []

    def one(*arguments: str, **options: object) -> EngineProcess:
        started.append(EngineProcess(tmp_path, *arguments, **options))  # type: ignore[arg-type]  # env or waits
        return started[-1]

    yield one
    for process in started:
        process.close()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """A vLLM look-alike forty times as fast as an L40S, shared by tests that leave it as it was."""
    process = EngineProcess(tmp_path_factory.mktemp("quick"), "--speed", "40", "--max-model-len", "2048")
    yield process
    process.close()
