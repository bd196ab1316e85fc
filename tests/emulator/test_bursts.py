"""A stream whose events are held back leaves in bursts, and loses nothing by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator.engine_process import emitted, texts_of

if TYPE_CHECKING:
    from tests.emulator.conftest import Start

TOKENS = 200


@pytest.mark.parametrize("flavour", ["vllm", "tgi"])
def test_what_is_held_at_the_end_goes_with_it(start: Start, flavour: str) -> None:
    engine = start("--flavour", flavour, "--speed", "40", "--stream-burst-s", "60")
    stream = engine.stream(max_tokens=TOKENS)
    assert stream.first_text() in emitted(1)
    rest = stream.rest()
    assert emitted(1) + texts_of(rest) == emitted(TOKENS)
    assert rest[-1] == "[DONE]"


def test_bursts_carry_every_token_once_and_in_order(start: Start) -> None:
    engine = start("--speed", "4", "--stream-burst-s", "0.2")
    rest = engine.stream(max_tokens=TOKENS).rest()
    assert texts_of(rest) == emitted(TOKENS)
    assert rest[-1] == "[DONE]"


def test_an_engine_that_shuts_down_sends_what_it_held_before_it_says_so(start: Start) -> None:
    engine = start("--speed", "1", "--stream-burst-s", "60")
    stream = engine.stream(max_tokens=4000)
    first = stream.first_text()
    engine.chat(max_tokens=20)  # meanwhile the stream has made as many
    engine.send_signal()
    rest = stream.rest()
    assert emitted(4000).startswith(first + texts_of(rest))
    assert len(texts_of(rest)) > len(emitted(10))
