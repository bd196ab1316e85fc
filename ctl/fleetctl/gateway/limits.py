"""Every bound the gateway keeps that the routing table does not set."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.core.dispatch.limits import DispatchLimits

_KIB = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Defaults for production; tests make them small."""

    # What a client may send.
    url_bytes_max: int = 8 * _KIB
    header_bytes_max: int = 64 * _KIB
    header_count_max: int = 100
    pipelined_max: int = 16  # requests waiting on one connection
    connections_max: int = 16_384
    # How long a client may take.
    header_timeout_s: float = 10.0  # first byte of a request -> end of its headers
    body_timeout_s: float = 60.0
    idle_timeout_s: float = 300.0  # between requests
    client_stall_s: float = 60.0  # not reading its answer
    linger_s: float = 2.0  # reading on after a refusal, so that the client can read why
    # What is held in memory per request.
    client_write_bytes_high: int = 256 * _KIB  # then its replica is not read from
    event_bytes_max: int = _MIB  # one SSE event
    whole_bytes_max: int = _MIB  # of a non-streamed answer held back in case its replica dies
    # Of a stream, in case it must be continued: its text, as long as the request lets it get. No token of the public
    # vocabularies is longer than 128 B, and few are longer than 8; a request that sets no length may fill a context.
    text_bytes_per_token_max: int = 64
    output_tokens_max: int = 131_072
    # How long a replica may take.
    connect_timeout_s: float = 3.0
    upstream_idle_s: float = 4.0  # uvicorn, under vLLM, closes idle connections after 5
    dispatch: DispatchLimits = field(default_factory=DispatchLimits)
    # The gateway's own clockwork.
    sweep_interval_s: float = 0.25
    leave_s: float = 0.0  # on SIGTERM: serving on while whoever sends clients here learns of it
    stop_timeout_s: float = 30.0  # then: in-flight requests
