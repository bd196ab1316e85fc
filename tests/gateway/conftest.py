"""Runs the gateway's tests on uvloop, as the gateway itself runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.gateway.rig import GatewayRig

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    del config, item
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def rig() -> AsyncIterator[GatewayRig]:
    """A gateway in this process with scripted replicas."""
    async with GatewayRig() as made:
        yield made
