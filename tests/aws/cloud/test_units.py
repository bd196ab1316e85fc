"""The units of the tests' instances keep systemd's limits of starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.instance.units import UnitManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

UNIT = """[Unit]
StartLimitIntervalSec=600
StartLimitBurst=3
OnFailure=failed@%i.service
[Service]
ExecStart=/bin/sh -c 'exit 3'
ExecStopPost=/bin/sh -c 'echo "$SERVICE_RESULT $EXIT_CODE $EXIT_STATUS" >>{place}/ends'
Restart=always
RestartSec=10ms
"""


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():
            await SYSTEM_CLOCK.sleep(0.02)


async def test_a_unit_that_failed_too_often_is_refused_until_that_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "engine@.service").write_text(UNIT.format(place=tmp_path))
    (tmp_path / "failed@.service").write_text(f"[Service]\nType=oneshot\nExecStart=/bin/touch {tmp_path}/failed-%i\n")
    units = UnitManager(tmp_path, {"PATH": "/usr/bin:/bin"}, tmp_path / "console.log", lambda: None)

    async def has_failed() -> bool:
        return (await units.control(["is-active", "engine@1.service"]))[1] == "failed\n"

    async def has_run() -> bool:
        return (tmp_path / "failed-1").exists()

    def ends() -> list[str]:
        return (tmp_path / "ends").read_text().splitlines()

    await units.control(["start", "engine@1.service"])
    await until(has_failed)
    await until(has_run)
    assert ends() == ["exit-code exited 3"] * 3
    with pytest.raises(ValueError, match="repeated too quickly"):
        await units.control(["start", "engine@1.service"])
    await units.control(["reset-failed", "engine@1.service"])
    await units.control(["start", "engine@1.service"])
    await until(has_failed)
    assert ends() == ["exit-code exited 3"] * 6
    await units.stop_all()
