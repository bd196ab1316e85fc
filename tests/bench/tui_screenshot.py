"""Writes a picture of the TUI on a running fleet: python tests/bench/tui_screenshot.py FLEET OUT.svg [COLUMNS ROWS SECONDS]."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from fleetctl.cli.site import UserSite
from fleetctl.tui.app import FleetApp
from fleetctl.tui.live import LiveActions, LiveSource


async def shoot(fleet: str, columns: int, rows: int, seconds: float) -> str:
    """Return the screen as SVG after watching the live stream for so long."""
    site = UserSite().site
    app = FleetApp(LiveSource(site, fleet), LiveActions(site, fleet), is_readonly=True)
    async with app.run_test(size=(columns, rows)) as pilot:
        await asyncio.sleep(seconds)
        await pilot.pause()
        drawn = app.export_screenshot(title="fleetctl top")
    # The picture names a web font; whoever looks at it should not have to fetch one.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def main() -> None:
    """Watch, shoot, write."""
    fleet, out, *size = sys.argv[1:]
    columns, rows, seconds = (int(size[0]), int(size[1]), float(size[2])) if size else (120, 36, 20.0)
    Path(out).write_text(asyncio.run(shoot(fleet, columns, rows, seconds)))


if __name__ == "__main__":
    main()
