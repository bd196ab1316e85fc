"""The vLLM look-alike is held to what a real vLLM 0.32 answered to the same requests, apart from values.

tests/engines/pages/vllm-0.32-answers.json is what a real one said; tests/engines/test_vllm_dialect.py holds it to that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.emulator.engine_process import EngineProcess
from tests.engines.dialect_requests import KEY, TOOL, VOCABULARY, WIRE, chat, posted
from tests.engines.vllm_differences import DIFFERENT, NOT_EMULATED
from tests.engines.wire import ANSWERS, exchange, recorded, shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.emulator.conftest import Start

REAL = recorded(ANSWERS.read_text())


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of an emulator of the tiny model that the real one served."""
    directory = tmp_path_factory.mktemp("dialect")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": VOCABULARY,
        "max_position_embeddings": 16384, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    engine = EngineProcess(
        directory, "--model", str(directory), "--served-model-name", "tiny", "--max-model-len", "2048",
        "--max-num-seqs", "4", "--api-key-env", "ENGINE_KEY", "--speed", "40", ENGINE_KEY=KEY,
    )  # fmt: skip
    yield engine.port
    engine.close()


def test_every_answer_has_the_shape_of_the_real_ones_but_where_it_is_listed(port: int) -> None:
    seen = {name: shape(exchange(port, request.encoded())) for name, request in WIRE.items()}
    assert seen.keys() == REAL.keys()
    unlike = {name: (REAL[name], seen[name]) for name in seen if name not in DIFFERENT and seen[name] != REAL[name]}
    assert unlike == {}


def test_what_is_listed_as_different_is_so(port: int) -> None:
    for name in DIFFERENT:
        seen = shape(exchange(port, WIRE[name].encoded()))
        assert seen != REAL[name], name
        # A trifle is told by nobody's status but where the reason says so; a refusal is never a success.
        assert name not in NOT_EMULATED or seen["status"] in (400, 501), name


@pytest.mark.parametrize("name", NOT_EMULATED)
def test_a_refusal_of_what_is_not_emulated_says_so(port: int, name: str) -> None:
    answer = exchange(port, WIRE[name].encoded())
    assert b"not emulated" in answer
    assert b'"error":{"message":' in answer


def test_tools_are_taken_with_a_parser_as_the_plan_gives_one(start: Start) -> None:
    engine = start("--served-model-name", "tiny", "--tool-call-parser", "llama3_json")
    statuses = {
        choice: shape(exchange(engine.port, posted(chat(tools=[TOOL], tool_choice=choice), key=None).encoded()))[
            "status"
        ]
        for choice in ("auto", "none", "required")
    }
    assert statuses == {"auto": 200, "none": 200, "required": 400}


@pytest.mark.parametrize(
    ("flavour", "statuses"),
    [("sglang", (400, 400, 400, 400, 400, 400, 200, 501)), ("tgi", (415, 400, 400, 422, 422, 422, 422, 404))],
)
def test_others_refuse_by_their_own_statuses(start: Start, flavour: str, statuses: tuple[int, ...]) -> None:
    engine = start("--flavour", flavour, "--served-model-name", "tiny", "--speed", "40")
    requests = (
        posted(chat(), headers={}, key=None),
        posted((chat()[0], b'{"model":"tiny",'), key=None),
        posted((chat()[0], b'{"model":"\xff"}'), key=None),
        posted(chat(messages="hello"), key=None),
        posted(chat(temperature=-1), key=None),
        posted(chat(frequency_penalty=9), key=None),
        posted(chat(top_p=1), key=None),
        posted(("/v1/responses", {}), key=None),
    )
    assert tuple(shape(exchange(engine.port, each.encoded()))["status"] for each in requests) == statuses
