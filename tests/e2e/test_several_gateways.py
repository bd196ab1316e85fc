"""Several gateways on one port: one's death takes its own streams, and their number changes under load without a loss."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

import aiohttp
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

_PROFILE = """
apiVersion: fleetctl/v1
name: several
model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
engine: emulator
provider: local
workload: {{peak_rps: 4, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 40, p99: 100}}}}
lanes:
  chat:
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 200ms}}}}
    max_wait: 20s
    replicas: {{min: 2, max: 2}}
gateway: {{port: {port}, processes: {processes}}}
"""
_BODY = {
    "model": "meta-llama/Llama-3.1-8B-Instruct", "max_tokens": 60, "stream": True, "ignore_eos": True,
    "messages": [{"role": "user", "content": "tell me of the sea"}],
}  # fmt: skip


class Fleet:
    """One fleet, and a load on it."""

    def __init__(self, home: Home, path: Path) -> None:
        self.home, self.path, self.port = home, path, free_port()
        self.ended: Counter[str] = Counter()
        self.ids: list[str] = []

    def up(self, processes: int) -> None:
        self.path.write_text(_PROFILE.format(port=self.port, processes=processes))
        ran = self.home.run("up", str(self.path), "--yes")
        assert ran.code == 0, ran.err

    def gateways(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = self.home.query("status", "several")["gateways"]
        return found

    async def load(self, until: asyncio.Event, *, rps: float = 8.0) -> None:
        """Send requests, each on a connection of its own, and read every answer to its end."""
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            while not until.is_set():
                group.create_task(self._request(session))
                await asyncio.sleep(1.0 / rps)  # noqa: TID251  # a real load on real processes

    async def _request(self, session: aiohttp.ClientSession) -> None:
        try:
            url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
            async with session.post(url, json=_BODY, timeout=aiohttp.ClientTimeout(total=60)) as response:
                text = await response.text()
        except aiohttp.ClientError as exc:
            self.ended[type(exc).__name__] += 1
            return
        self.ids.append(response.headers.get("x-request-id", ""))
        self.ended["whole" if response.status == 200 and "[DONE]" in text else f"{response.status} cut"] += 1


@pytest.fixture
def fleet(home: Home, tmp_path: Path) -> Fleet:
    return Fleet(home, tmp_path / "several.yaml")


async def _until(is_so: Callable[[], bool], *, within_s: float = 120.0) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
    while not await asyncio.to_thread(is_so):
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        await asyncio.sleep(0.2)  # noqa: TID251  # real processes


def _answers(fleet: Fleet, numbers: set[int]) -> bool:
    return {each["number"] for each in fleet.gateways() if each["answers"]} == numbers


async def test_a_killed_gateway_takes_its_own_streams_and_is_replaced_and_the_number_changes_under_load(
    fleet: Fleet,
) -> None:
    await asyncio.to_thread(fleet.up, 1)
    assert fleet.gateways() == []
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(fleet.load(done))
        await asyncio.to_thread(fleet.up, 3)
        await _until(lambda: _answers(fleet, {1, 2, 3}))
        await _until(lambda: sum(int(str(g["in_flight"])) > 0 for g in fleet.gateways()) > 1)
        await _until(lambda: fleet.ended.total() > 0)  # all of them may still run
        assert set(fleet.ended) == {"whole"}, fleet.ended

        victim = next(each for each in fleet.gateways() if each["number"] == 2)
        others = {each["number"]: each["pid"] for each in fleet.gateways() if each["number"] != 2}
        os.kill(int(str(victim["pid"])), signal.SIGKILL)
        await _until(lambda: _answers(fleet, {1, 2, 3}) and fleet.gateways()[1]["pid"] != victim["pid"])
        assert {each["number"]: each["pid"] for each in fleet.gateways() if each["number"] != 2} == others
        lost = fleet.ended.total() - fleet.ended["whole"]
        whole_before = fleet.ended["whole"]

        page = await _page(fleet)
        assert set(re.findall(r'fleetctl_gateway_answers{fleet="several",gateway="(\d)"} 1', page)) == {"1", "2", "3"}
        assert page.count("# TYPE fleetctl_gateway_requests_total counter") == 1
        for id_ in fleet.ids[-5:]:
            assert fleet.home.run("why", id_, "-f", "several").code == 0

        stopped = fleet.gateways()[2]["pid"]
        os.kill(int(str(stopped)), signal.SIGSTOP)
        await _until(lambda: _answers(fleet, {1, 2, 3}) and fleet.gateways()[2]["pid"] != stopped)
        stopped_lost = fleet.ended.total() - fleet.ended["whole"] - lost

        await asyncio.to_thread(fleet.up, 1)
        await _until(lambda: fleet.gateways() == [])
        await _until(lambda: fleet.ended["whole"] > whole_before + 20)
        done.set()
    # Requests ended: those that the killed one had, and those of the stopped one; nobody else's, then or when their number changed.
    assert fleet.ended.total() - fleet.ended["whole"] == lost + stopped_lost, fleet.ended
    assert lost < 30
    assert stopped_lost < 40
    assert (await asyncio.to_thread(fleet.home.run, "down", "several", "--yes")).code == 0
    assert [process.cmdline() for process in fleet.home.processes()] == []
    assert fleet.home.sockets() == []


async def _page(fleet: Fleet) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{fleet.port}/metrics") as response:
        return await response.text()
