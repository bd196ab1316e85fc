"""TLS between a client's socket and its connection, which knows nothing of it.

A layer of our own and not the event loop's: the connection exists from the first byte, so that handshakes are bounded and
timed as connections are; a refusal can be read to its end; and who speaks plain HTTP here is told so.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from fleetctl.gateway import wire
from fleetctl.gateway.client import ClientConnection

if TYPE_CHECKING:
    from fleetctl.gateway.frontend import Frontend

_HANDSHAKE = 0x16  # a TLS record's first byte; no method of HTTP begins with it
_READ_BYTES = 256 * 1024
_PLAIN = wire.whole(
    400,
    wire.lines(wire.JSON) + wire.CLOSE,
    wire.error_body("this port speaks HTTPS: use https:// in the base URL", kind="invalid_request_error", code=400),
)


def client_protocol(frontend: Frontend) -> asyncio.Protocol:
    """Return what serves a new connection: by TLS where the fleet has a certificate, and by nothing where that is wanting."""
    certificate = frontend.gauges.certificate
    if not certificate.is_wanted:
        return ClientConnection(frontend)
    if certificate.context is None:
        return _Closed()
    return TlsConnection(certificate.context, ClientConnection(frontend))


class _Closed(asyncio.Protocol):
    """Ends a connection at once: nothing is served in clear in place of TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End it."""
        cast("asyncio.Transport", transport).abort()


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """The socket's protocol, and the transport of the connection above it.

    What is written before the handshake is a refusal, which is kept until then.
    """

    def __init__(self, context: ssl.SSLContext, above: asyncio.Protocol) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._above = above
        self._is_begun = self._is_open = self._is_over = self._is_ending = False
        self._unsent = b""

    # The socket's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the connection above."""
        self._socket = cast("asyncio.Transport", transport)
        self._above.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, then hand on what was sent."""
        if self._is_over:
            return
        if not self._is_begun:
            self._is_begun = True
            if data[0] != _HANDSHAKE:
                self._refuse_plain()
                return
        self._incoming.write(data)
        if self._is_open or self._handshake():
            self._read()

    def eof_received(self) -> bool:
        """Hand on that the client has closed its side."""
        self._above.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand it on."""
        self._is_over = True
        self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand it on."""
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on."""
        self._above.resume_writing()

    # The transport of the connection above.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, encrypted."""
        if self._is_over or not data:
            return
        if not self._is_open:
            self._unsent += bytes(data)
            return
        self._tls.write(data)
        self._socket.write(self._outgoing.read())

    def write_eof(self) -> None:
        """Say that no more comes; what the client still sends is thrown away."""
        self._is_ending = True
        if self._is_open:
            self._say_goodbye()
            self._socket.write_eof()
            self._is_over = True

    def close(self) -> None:
        """Close once everything is sent."""
        if not self._is_over and self._is_open:
            self._say_goodbye()
        self._is_over = True
        self._socket.close()

    def abort(self) -> None:
        """Break it off."""
        self._is_over = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._socket.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bound what waits to be sent."""
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  # as asyncio has it
        """Return what is known of the socket."""
        return self._socket.get_extra_info(name, default)

    # Within.

    def _handshake(self) -> bool:
        """Answer the client's part of the handshake; return whether that was the last."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError:
            self._fail()
            return False
        self._is_open = True
        self._flush()
        unsent, self._unsent = self._unsent, b""
        self.write(unsent)
        if self._is_ending:
            self.write_eof()
        return not self._is_over

    def _read(self) -> None:
        while not self._is_over:
            try:
                data = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError:
                self._fail()
                return
            if not data:  # closed by TLS, whatever its socket does
                self._above.eof_received()
                self.close()
                return
            self._above.data_received(data)
        if not self._is_over:
            self._flush()

    def _flush(self) -> None:
        """Send what TLS itself has to say."""
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    def _fail(self) -> None:
        """Send why, as TLS has it, and close."""
        self._flush()
        self._is_over = True
        self._above.eof_received()
        self._socket.close()

    def _say_goodbye(self) -> None:
        # It wants the client's own, for which nobody waits; of a session that failed there is nothing to be said.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()

    def _refuse_plain(self) -> None:
        """Tell a client that speaks without TLS; the connection's own deadline ends it if the client does not."""
        self._is_over = True
        self._socket.write(_PLAIN)
        self._socket.write_eof()
