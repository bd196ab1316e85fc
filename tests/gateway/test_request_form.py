"""A request in an engine's own words, and an answer without what it says to others than the client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleetctl.gateway.request_form import spelt
from fleetctl.plugins import load_engine

if TYPE_CHECKING:
    from tests.gateway.rig import GatewayRig
    from tests.gateway.scripted import Seen, Wire


def test_llamacpp_gets_the_penalty_for_repetition_by_its_own_name() -> None:
    form = load_engine("llamacpp").capabilities.request_form
    assert form is not None
    assert json.loads(spelt(b'{"model": "m", "repetition_penalty": 1.5}', form)) == {
        "model": "m",
        "repeat_penalty": 1.5,
    }
    untouched = b'{"model": "m", "stop": null}'
    assert spelt(untouched, form) is untouched


async def test_what_an_engine_tells_proxies_and_browsers_is_not_passed_on(rig: GatewayRig) -> None:
    async def answers(seen: Seen, wire: Wire) -> None:
        del seen
        body = b'{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{"index":0}]}'
        await wire.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver: e\r\nvary: origin\r\nx-accel-buffering: no\r\n"
            b"access-control-allow-origin: *\r\nx-own: kept\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )

    await rig.add("r1", answers)
    got = (await rig.post()).headers
    assert got["x-own"] == "kept"
    assert not {"server", "vary", "x-accel-buffering", "access-control-allow-origin"} & {name.lower() for name in got}
