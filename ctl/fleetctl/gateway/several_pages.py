"""The metrics page of several gateways: whichever is scraped answers for all, each sample with the number of its own.

A scrape comes to any of them, for all have one port. The others' pages are asked for over their admin sockets.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fleetctl.telemetry.page import heading, sample_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_log = logging.getLogger("fleetctl.gateway")
_PAGE_S: Final = 1.0
_PAGE_BYTES_MAX: Final = 64 * 1024 * 1024
_REQUEST: Final = b"GET /v1/metrics HTTP/1.0\r\nhost: gateway\r\n\r\n"
_ANSWERS: Final = "fleetctl_gateway_answers"


async def page_of_all(fleet: str, number: int, own: bytes, sockets: Mapping[int, Path]) -> bytes:
    """Return the pages of all as one, after at most a second; `sockets` are those of the others, by number."""
    pages = await asyncio.gather(*(_page(each) for each in sockets.values()))
    by_number = {number: own, **dict(zip(sockets, pages, strict=True))}
    answers = [
        f"{sample_name(_ANSWERS, {'fleet': fleet, 'gateway': str(n)})} {int(bool(page))}"
        for n, page in sorted(by_number.items())
    ]
    text = "1 for each gateway that answered for this page; the samples of one that did not are missing."
    first = "\n".join((*heading(_ANSWERS, "gauge", text), *answers, ""))
    return first.encode() + joined_pages(page for _, page in sorted(by_number.items()))


def joined_pages(pages: Iterable[bytes]) -> bytes:
    """Return one page with each family once, its samples of every page beneath its heading."""
    headings: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for page in pages:
        name = b""
        for line in page.splitlines():
            if line.startswith(b"# HELP "):
                name = line.split(b" ", 3)[2]
                headings.setdefault(name, [line])
                samples.setdefault(name, [])
            elif line.startswith(b"# TYPE "):
                if len(headings[name]) == 1:
                    headings[name].append(line)
            elif line:
                samples[name].append(line)
    lines = [line for name, found in headings.items() for line in (*found, *samples[name])]
    return b"\n".join((*lines, b""))


async def _page(socket: Path) -> bytes:
    """Return another's page; empty: it does not answer."""
    try:
        async with asyncio.timeout(_PAGE_S):
            reader, writer = await asyncio.open_unix_connection(str(socket), limit=_PAGE_BYTES_MAX)
            try:
                writer.write(_REQUEST)
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as exc:
        _log.warning("the gateway at %s has no page to give: %s", socket.name, exc)
        return b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body if head.split(b" ", 2)[1:2] == [b"200"] else b""
