"""The official client, as applications use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai
import pytest

from fleetctl.core.admission.keys import sha256_hash
from tests.gateway.scripted import answers

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionUserMessageParam

MESSAGES: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hi"}]


async def test_the_official_client_works_unchanged(rig):
    await rig.add("r1", answers(["Hel", "lo"], usage=True))
    rig.apply(api_key_hashes=(sha256_hash("sk-mine"),))
    async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="sk-mine", max_retries=0) as client:
        assert [m.id async for m in client.models.list()] == ["m"]
        whole = await client.chat.completions.create(model="m", messages=MESSAGES)
        assert whole.choices[0].message.content == "Hello"
        pieces = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        assert "".join([p.choices[0].delta.content or "" async for p in pieces if p.choices]) == "Hello"
    async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="sk-other", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="no or wrong API key"):
            await client.models.list()


async def test_the_official_client_sees_a_lost_stream_as_an_error(rig):
    await rig.add("r1", answers(["Hel", "lo"], die_after=1), continues=False)
    async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="x", max_retries=0) as client:
        pieces = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True, logprobs=True)
        with pytest.raises(openai.APIError, match="the replica was lost"):
            async for _ in pieces:
                pass
