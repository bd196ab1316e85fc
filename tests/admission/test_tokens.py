"""What a prompt is estimated at, and between which bounds it lies."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.admission.tokens import PromptSize, RequestTokens, TokenRatio

sizes = st.builds(
    lambda text, messages, images, token_ids: PromptSize(text, messages, len(images), sum(images), token_ids),
    st.integers(0, 10**6),
    st.integers(0, 50),
    st.lists(st.sampled_from([85, 765]), max_size=3),
    st.one_of(st.none(), st.integers(0, 10**5)),
)


def tokens_of(ratio: TokenRatio, size: PromptSize, output: int = 0) -> RequestTokens:
    return ratio.request_tokens(size, ratio.prompt_tokens(size), output)


@given(sizes, st.integers(0, 10_000), st.integers(1, 10**6))
def test_the_bounds_are_around_the_estimate_and_what_is_asked_for_is_the_first_that_fits(size, output, held):
    found = tokens_of(TokenRatio(), size, output)
    assert found.prompt_least <= found.prompt <= max(found.prompt_most, 1)
    assert found.least <= max(found.expected, found.prompt_least + 1)
    assert found.needed(held) == (found.expected if found.expected <= held else found.least)


def test_the_bounds_close_in_where_clients_agree_and_open_where_they_do_not() -> None:
    text, ratio = PromptSize(40_000, 1), TokenRatio()
    before = tokens_of(ratio, text)
    for _ in range(100):
        ratio.learn(PromptSize(4000, 1), prompt_tokens=1010)
    agreed = tokens_of(ratio, text)
    assert agreed.prompt_least > before.prompt_least
    assert agreed.prompt_least == pytest.approx(0.8 * agreed.prompt, rel=0.01)
    for _ in range(50):
        ratio.learn(PromptSize(4000, 1), prompt_tokens=2010)
        ratio.learn(PromptSize(4000, 1), prompt_tokens=510)
    assert tokens_of(ratio, text).prompt_least < 0.5 * tokens_of(ratio, text).prompt


def test_a_client_with_tools_or_images_moves_nobody_elses_estimate() -> None:
    ratio = TokenRatio()
    for _ in range(60):
        ratio.learn(PromptSize(29_000 + 70, 2), prompt_tokens=7300)  # 29 KB of tools, counted as the engine does
        ratio.learn(PromptSize(70, 2, images=4, image_tokens=4 * 765), prompt_tokens=9000)
    assert ratio.tokens(1000) == pytest.approx(250, rel=0.02)


def test_token_ids_are_exact() -> None:
    found = tokens_of(TokenRatio(), PromptSize(9000, token_ids=1500), 10)
    assert (found.prompt_least, found.prompt, found.prompt_most) == (1500, 1500, 1500)
    assert (found.expected, found.least) == (1510, 1501)
