"""One fleet with two models, an alias and an adapter, used through OpenAI's client; one stands in for the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FLEET = "models"
PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
models:
  big: {{id: Qwen/Qwen3-32B, aliases: [gpt-4o], adapters: {{legal: ./legal}}, share: 30%, fallback: small}}
  small: {{id: mistralai/Mistral-7B-Instruct-v0.3}}
engine: emulator
emulator: {{startup: 200ms, speed: 8}}
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 20, p99: 60}}}}
lanes:
  quality: {{model: big, slo: {{ttft: {{p99: 10s}}}}, max_wait: 30s, replicas: 1}}
  fast: {{model: small, slo: {{ttft: {{p99: 10s}}}}, max_wait: 30s, replicas: 1}}
gateway: {{port: {port}}}
"""


@pytest.fixture(scope="module")
def port(home: Home) -> Iterator[int]:
    port = free_port()
    profile = home.root / "models.yaml"
    profile.write_text(PROFILE.format(fleet=FLEET, port=port))
    home.fleetctl("up", str(profile), "--yes", timeout_s=240.0)
    yield port
    home.fleetctl("down", FLEET, "--yes", timeout_s=120.0)


async def test_each_name_is_served_by_its_models_lane_and_one_model_stands_in_for_the_other(
    home: Home, port: int
) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0, timeout=60
    ) as client:
        listed = {model.id: model.to_dict() for model in (await client.models.list()).data}
        assert set(listed) == {"big", "gpt-4o", "legal", "small"}
        assert listed["legal"]["parent"] == "big"
        assert all(model["max_model_len"] for model in listed.values())
        served = {}
        for name in listed:
            raw = await client.chat.completions.with_raw_response.create(
                model=name, messages=[{"role": "user", "content": "hello"}], max_tokens=5
            )
            served[name] = (raw.headers["x-fleetctl-lane"], raw.parse().model)
        assert served == {
            "big": ("quality", "big"), "gpt-4o": ("quality", "big"), "legal": ("quality", "legal"), "small": ("fast", "small"),
        }  # fmt: skip
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "hello"}])

        home.fleetctl("shed", "quality", "--fleet", FLEET, "--step", "breaker", "--yes")
        stood_in = 0
        async with asyncio.timeout(60.0):  # until the table is there; then a probe passes now and then
            while stood_in < 3:
                raw = await client.chat.completions.with_raw_response.create(
                    model="gpt-4o", messages=[{"role": "user", "content": "hello"}], max_tokens=5
                )
                if raw.headers.get("x-fleetctl-fallback-for") == "big":
                    assert (raw.headers["x-fleetctl-model"], raw.parse().model) == ("small", "small")
                    stood_in += 1
