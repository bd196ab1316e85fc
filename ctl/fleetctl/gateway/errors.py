"""The errors the gateway answers with before a request has a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.gateway import wire
from fleetctl.gateway.request_ids import REQUEST_ID

if TYPE_CHECKING:
    from fleetctl.core.admission.tokens import RequestTokens
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.gateway.client import ClientConnection


def reply_error(
    client: ClientConnection,
    request_id: bytes,
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    refusal: Refusal | None = None,
) -> None:
    """Answer with an error in OpenAI's shape, its reason in a header."""
    body = wire.error_body(message, kind=kind, code=refusal.value if refusal else status)
    _reply(client, request_id, status, body, refusal)


def refuse_key(client: ClientConnection, request_id: bytes) -> None:
    """Answer that there is no key, or a wrong one."""
    body = wire.error_body("no or wrong API key", kind="authentication_error", code="invalid_api_key")
    client.reply(401, wire.lines(wire.JSON, (REQUEST_ID, request_id), (b"www-authenticate", b"Bearer")), body)
    client.answered()


def postpone_key(client: ClientConnection, request_id: bytes) -> None:
    """Answer that a key is unknown here, and that too many such keys wait to be checked."""
    body = wire.error_body(
        "too many unknown API keys are being checked", kind="rate_limit_error", code="too_many_unknown_keys"
    )
    client.reply(429, wire.lines(wire.JSON, (REQUEST_ID, request_id), (b"retry-after", b"1")), body)
    client.answered()


def refuse_without_lane(  # noqa: PLR0913  # what such an answer is made of
    client: ClientConnection,
    request_id: bytes,
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
    if refusal is not Refusal.CONTEXT_LENGTH:
        message = f"no lane takes this request ({refusal.value}); there are: {', '.join(routes.lanes)}"
        reply_error(client, request_id, 400, message, refusal=refusal)
        return
    limits = {name: lane.route.max_model_len for name, lane in routes.lanes.items()}
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
    _reply(client, request_id, 400, body, refusal)


def _reply(client: ClientConnection, request_id: bytes, status: int, body: bytes, refusal: Refusal | None) -> None:
    headers = [wire.JSON, (REQUEST_ID, request_id)]
    if refusal is not None:
        headers.append((b"x-fleetctl-reason", refusal.value.encode()))
        if refusal.status != 400:
            headers.append((b"retry-after", b"1"))
    client.reply(status, wire.lines(*headers), body)
    client.answered()
