"""Whoever has a key is served, however many have none."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.admission.keys import scrypt_hash, sha256_hash
from fleetctl.gateway.auth import Authenticator
from fleetctl.gateway.key_checks import KeyChecks

if TYPE_CHECKING:
    from tests.gateway.rig import GatewayRig

SHORT, SECOND = "correct horse", "battery staple"
LONG = "k" * 48
HASHES = (scrypt_hash(SHORT, salt=b"s" * 16), scrypt_hash(SECOND, salt=b"t" * 16), sha256_hash(LONG))
CONNECTIONS = 24
FLOOD_S = 3.0


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def flood(rig: GatewayRig, statuses: list[int], *, suffix: str) -> None:
    for number in itertools.count():
        async with rig.http.get(f"{rig.url}/v1/models", headers=bearer(f"{number}{suffix}")) as response:
            statuses.append(response.status)
            if response.status == 429:
                assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("wrong", ["wrong", "wrong" * 12])
async def test_valid_keys_short_and_long_are_served_under_a_flood_of_wrong_ones(rig, wrong):
    await rig.add("r1")
    rig.apply(api_key_hashes=HASHES)
    statuses: list[int] = []
    flooding = [asyncio.create_task(flood(rig, statuses, suffix=f"{wrong}{n}")) for n in range(CONNECTIONS)]
    try:
        await SYSTEM_CLOCK.sleep(0.2)  # let the flood be there first
        began_s = SYSTEM_CLOCK.monotonic_s()
        valid: list[int] = []
        while SYSTEM_CLOCK.monotonic_s() - began_s < FLOOD_S or len(valid) < 12:
            valid += [(await rig.post(headers=bearer(key))).status for key in (SHORT, SECOND, LONG)]
    finally:
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
    assert valid == [200] * len(valid)
    assert statuses
    assert set(statuses) <= {401, 429}


async def test_a_key_that_was_used_stays_known_whatever_wrong_ones_come():
    authenticator = Authenticator(SYSTEM_CLOCK, is_open_without_keys=True)
    authenticator.apply(HASHES)
    right = f"Bearer {SHORT}".encode()
    assert authenticator.check(right) is None
    assert await authenticator.check_slowly(right, address="a")
    for number in range(10_000):
        authenticator._note(b"%d" % number, "")
    assert authenticator.check(right) is True
    assert len(authenticator._wrong) == 4096


async def test_addresses_take_turns_and_one_that_asks_too_much_is_told_to_come_back():
    checks = KeyChecks(SYSTEM_CLOCK)
    slow = HASHES[:1]
    crowd = [asyncio.create_task(checks.check(b"wrong %d" % n, slow, address="crowd")) for n in range(300)]
    await SYSTEM_CLOCK.sleep(0)
    assert await checks.check(SHORT.encode(), slow, address="alone") == slow[0]
    assert sum(task.done() and task.result() is None for task in crowd) == 300 - 256
    assert sum(task.done() and task.result() == "" for task in crowd) <= 2
    for task in crowd:
        task.cancel()
    checks.close()


async def test_a_long_key_is_never_checked_slowly():
    authenticator = Authenticator(SYSTEM_CLOCK, is_open_without_keys=True)
    authenticator.apply(HASHES)
    assert authenticator.check(b"Bearer " + b"x" * 200) is False


async def test_metrics_are_for_this_machine_and_for_key_holders_and_health_is_for_all(rig, monkeypatch):
    await rig.add("r1")
    rig.apply(api_key_hashes=HASHES)
    assert (await rig.get("/metrics")).status == 200
    monkeypatch.setattr("fleetctl.gateway.client.ClientConnection.address", property(lambda _: "192.0.2.7"))
    assert (await rig.get("/health")).status == 200
    assert (await rig.get("/metrics")).status == 401
    async with rig.http.get(f"{rig.url}/metrics", headers=bearer(LONG)) as response:
        assert response.status == 200
