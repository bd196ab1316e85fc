"""The errors the gateway answers with before a request has a lane, and the last of them, for whoever has such an id."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.refusal import Refusal
from fleetctl.gateway import wire
from fleetctl.gateway.request_ids import REQUEST_ID, TRACEPARENT, RequestIds, trace_id
from fleetctl.gateway.wrong_request import WrongRequest
from fleetctl.model.request_trace import EarlyRefusal
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Collection

    from fleetctl.clock import Clock
    from fleetctl.core.admission.tokens import RequestTokens
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.requests import Request

# Of those with a wrong key, and of all others: whoever tries keys has nobody else forgotten. Some 600 bytes each at most.
_KEPT_MAX = 512
_MESSAGE_MAX = 300
_NAME_CHARS_MAX, _NAMES_SHOWN = 100, 20


class EarlyRefusals:
    """Refuses requests that no lane has had, and remembers why."""

    def __init__(self, clock: Clock, ids: RequestIds) -> None:
        self._clock = clock
        self._ids = ids
        self._kept: deque[EarlyRefusal] = deque(maxlen=_KEPT_MAX)
        self._kept_of_keys: deque[EarlyRefusal] = deque(maxlen=_KEPT_MAX)

    def find(self, id_: str) -> tuple[EarlyRefusal, ...]:
        """Return those of a request id, a traceparent or its trace id, oldest first."""
        named = {id_, trace_id(id_.encode())} - {""}
        found = [each for each in chain(self._kept, self._kept_of_keys) if {each.id, each.trace_id} & named]
        return tuple(sorted(found, key=lambda each: each.at))

    def refuse(  # what such an answer is made of
        self,
        client: ClientConnection,
        request: Request,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        refusal: Refusal | None = None,
    ) -> None:
        """Answer with an error in OpenAI's shape, its reason in a header."""
        reason = refusal.value if refusal else ""
        request_id = self._noted(self._kept, request, status, reason, message)
        _reply(client, request_id, status, wire.error_body(message, kind=kind, code=reason or status), refusal)

    def refuse_key(self, client: ClientConnection, request: Request) -> None:
        """Answer that there is no key, or a wrong one."""
        message, code = "no or wrong API key", "invalid_api_key"
        request_id = self._noted(self._kept_of_keys, request, 401, code, message)
        body = wire.error_body(message, kind="authentication_error", code=code)
        client.reply(401, wire.lines(wire.JSON, (REQUEST_ID, request_id), (b"www-authenticate", b"Bearer")), body)
        client.answered()

    def postpone_key(self, client: ClientConnection, request: Request) -> None:
        """Answer that a key is unknown here, and that too many such keys wait to be checked."""
        message, code = "too many unknown API keys are being checked", "too_many_unknown_keys"
        request_id = self._noted(self._kept_of_keys, request, 429, code, message)
        body = wire.error_body(message, kind="rate_limit_error", code=code)
        client.reply(429, wire.lines(wire.JSON, (REQUEST_ID, request_id), (b"retry-after", b"1")), body)
        client.answered()

    def refuse_unfit(self, client: ClientConnection, request: Request, raw: bytes, known: Collection[str]) -> None:
        """Answer what is wrong with a request, or that there is no such model: 404, with the nearest there is."""
        wrong: WrongRequest | None = request.wrong
        if wrong is not None:
            self._refuse_key_of(client, request, Refusal.NOT_ALLOWED, wrong, code="invalid_value")
            return
        name, refusal = msgspec.json.decode(raw), Refusal.UNKNOWN_MODEL
        if not isinstance(name, str):
            wrong = WrongRequest("`model` must be a text", "model")
            self._refuse_key_of(client, request, Refusal.NOT_ALLOWED, wrong, code="invalid_type")
            return
        near = suggest(name[:_NAME_CHARS_MAX], known)
        message = f"The model `{name[:_NAME_CHARS_MAX]}` does not exist{near}; there are: {_some(known)}"
        self._refuse_key_of(client, request, refusal, WrongRequest(message, "model"), code="model_not_found")

    def _refuse_key_of(
        self, client: ClientConnection, request: Request, refusal: Refusal, wrong: WrongRequest, *, code: str
    ) -> None:
        request_id = self._noted(self._kept, request, refusal.status, refusal.value, wrong.message)
        body = wire.error_body(wrong.message, kind="invalid_request_error", code=code, param=wrong.param or None)
        _reply(client, request_id, refusal.status, body, refusal)

    def refuse_without_lane(  # noqa: PLR0913  # as above
        self,
        client: ClientConnection,
        request: Request,
        refusal: Refusal,
        tokens: RequestTokens,
        routes: RoutingState,
        header: str | None,
        *,
        prompt_key: str,
    ) -> None:
        """Answer that no lane takes a request, with the limits it is over where it is too long.

        `prompt_key` is what this endpoint calls the prompt: `messages` or `prompt`.
        """
        limits = {
            name: lane.route.max_model_len
            for name, lane in routes.lanes.items()
            if request.model in ("", lane.route.model)
        }
        header = header if header in limits else None
        if refusal is not Refusal.CONTEXT_LENGTH:
            of_model = f" of model {request.model}" if request.model else ""
            message = f"no lane{of_model} takes this request ({refusal.value}); there are: {', '.join(limits)}"
            kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
            self.refuse(client, request, refusal.status, message, kind=kind, refusal=refusal)
            return
        most = max(limits.values()) if header is None else limits[header]
        message = (
            f"This model's maximum context length is {most} tokens{f' in lane {header}' if header else ''}. However, you "
            f"requested about {tokens.expected} tokens (about {tokens.prompt} in the prompt, {tokens.output} in the "
            f"completion). Please reduce the length of the prompt or completion."
        )
        fitting = [f"{name} ({limit})" for name, limit in limits.items() if limit >= tokens.least]
        if fitting:
            message += f" Lanes that hold it: {', '.join(fitting)}."
        param = "max_tokens" if tokens.output > most else prompt_key
        body = wire.error_body(message, kind="invalid_request_error", code="context_length_exceeded", param=param)
        request_id = self._noted(self._kept, request, 400, refusal.value, message)
        _reply(client, request_id, 400, body, refusal)

    def _noted(self, kept: deque[EarlyRefusal], request: Request, status: int, reason: str, message: str) -> bytes:
        """Remember a refusal, and return the id of its request."""
        request_id = self._ids.id_of(request.headers.get(REQUEST_ID, b""))
        kept.append(
            EarlyRefusal(
                id=request_id.decode(),
                trace_id=trace_id(request.headers.get(TRACEPARENT)),
                at=self._clock.now(),
                status=status,
                reason=reason,
                message=message[:_MESSAGE_MAX],
            )
        )
        return request_id


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _reply(client: ClientConnection, request_id: bytes, status: int, body: bytes, refusal: Refusal | None) -> None:
    headers = [wire.JSON, (REQUEST_ID, request_id)]
    if refusal is not None:
        headers.append((b"x-fleetctl-reason", refusal.value.encode()))
        if refusal.status not in (400, 404):
            headers.append((b"retry-after", b"1"))
    client.reply(status, wire.lines(*headers), body)
    client.answered()
