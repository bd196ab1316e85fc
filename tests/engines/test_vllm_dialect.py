"""A real vLLM still answers as it is recorded to: what the emulator is held to (tests/emulator/test_dialect.py).

After a change of its version or of the requests the record is written anew: python -m tests.engines.test_vllm_dialect
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines.dialect_requests import WIRE
from tests.engines.test_vllm_runs import running_vllm
from tests.engines.vllm_differences import DIFFERENT
from tests.engines.wire import ANSWERS, exchange, record, recorded, shape

if TYPE_CHECKING:
    import httpx

pytestmark = [pytest.mark.engines, pytest.mark.timeout(420)]


def answers_of(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """Return what it says to every request; where nobody is held to it, its status alone."""
    port = client.base_url.port
    assert port is not None
    seen = {name: shape(exchange(port, request.encoded())) for name, request in WIRE.items()}
    return {name: {"status": each["status"]} if name in DIFFERENT else each for name, each in seen.items()}


def test_a_real_vllm_answers_as_it_is_recorded_to(tmp_path: Path) -> None:
    with running_vllm(tmp_path) as client:
        seen = answers_of(client)
    real = recorded(ANSWERS.read_text())
    assert {name: (real.get(name), each) for name, each in seen.items() if each != real.get(name)} == {}
    assert seen.keys() == real.keys()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, running_vllm(Path(directory)) as running:
        ANSWERS.write_text(record(answers_of(running)))
