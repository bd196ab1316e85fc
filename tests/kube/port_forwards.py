"""Port-forwards as kubelet serves them over WebSockets: v4.channel.k8s.io, a channel of data and one of errors."""

from __future__ import annotations

import asyncio
import struct

from aiohttp import WSMsgType, web

_PROTOCOL = "v4.channel.k8s.io"


async def forwarded(request: web.Request, address: str) -> web.StreamResponse:
    """Carry one connection to a port of a pod."""
    port = int(request.query.get("port") or request.query["ports"])
    socket = web.WebSocketResponse(protocols=(_PROTOCOL,))
    await socket.prepare(request)
    for channel in (0, 1):
        await socket.send_bytes(bytes((channel,)) + struct.pack("<H", port))
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except OSError as exc:
        await socket.send_bytes(b"\x01" + f"error forwarding port {port}: {exc}".encode())
        await socket.close()
        return socket
    sending = asyncio.create_task(_sent(reader, socket))
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == b"\x00":
                writer.write(message.data[1:])
                await writer.drain()
    except ConnectionError:
        pass  # the pod has ended
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
    return socket


async def _sent(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while piece := await reader.read(65536):
        await socket.send_bytes(b"\x00" + piece)
    await socket.close()
