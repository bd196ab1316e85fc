"""Sends one notification, within a deadline and a number of attempts; what goes wrong is an answer, never an error."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.errors import ConfigError
from fleetctl.model.notification import Delivery, NotificationRule, NotifyOn, RunEvent
from fleetctl.notifications.references import resolve
from fleetctl.notifications.shapes import OutgoingRequest, outgoing
from fleetctl.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from fleetctl.clock import Clock
    from fleetctl.model.notification import Notification

_EVENTS = {
    NotifyOn.SUCCESS: (RunEvent.SUCCEEDED,),
    NotifyOn.FAILURE: (RunEvent.FAILED,),
    NotifyOn.APPROVAL: (RunEvent.AWAITS_APPROVAL,),
    NotifyOn.ALWAYS: tuple(RunEvent),
}
_BODY_BYTES_MAX = 4096  # of an answer; the rest is not read
_EXCERPT_CHARS_MAX = 160
_RETRYABLE_STATUSES = (408, 425, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """How long and how often a receiver is tried. The run waits for it, so it is short."""

    attempts: int = 4
    attempt_timeout_s: float = 10.0
    deadline_s: float = 45.0
    backoff_s: float = 1.0  # doubles; what a receiver asks for with Retry-After comes before it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """One attempt's end."""

    fault: str = ""  # empty: taken
    is_final: bool = False
    may_have_arrived: bool = False
    retry_after_s: float | None = None


def is_wanted(rule: NotificationRule, event: RunEvent) -> bool:
    """Whether a receiver is told of an event.

    PagerDuty is told of a success too where it is told of failures: what one opened the other closes.
    """
    if any(event in _EVENTS[on] for on in rule.on):
        return True
    opens = any(on in rule.on for on in (NotifyOn.FAILURE, NotifyOn.APPROVAL))
    return rule.kind == "pagerduty" and opens and event in (RunEvent.SUCCEEDED, RunEvent.RESUMED)


async def deliver(
    rule: NotificationRule,
    notification: Notification,
    *,
    environ: Mapping[str, str],
    clock: Clock,
    limits: SendLimits = SendLimits(),  # frozen
) -> Delivery:
    """Tell one receiver, and return what became of it. Raises nothing but cancellation."""
    try:
        secret = resolve(rule.reference, environ)
        headers = {name: resolve(value, environ) for name, value in rule.headers.items()}
    except ConfigError as error:
        return Delivery(receiver=rule.label, is_delivered=False, fault=error.message)
    request = outgoing(rule, notification, secret=secret, headers=headers)
    delivery = await _until_taken(rule.label, request, clock, limits)
    return _without_secrets(delivery, (secret, *headers.values()))


def send(rule: NotificationRule, notification: Notification, *, environ: Mapping[str, str], clock: Clock) -> Delivery:
    """Tell one receiver from synchronous code, as `deliver` does."""
    return os_signals.run(deliver(rule, notification, environ=environ, clock=clock))


async def _until_taken(receiver: str, request: OutgoingRequest, clock: Clock, limits: SendLimits) -> Delivery:
    begun_s = clock.monotonic_s()
    reply, attempt, may_have_arrived = _Reply(fault="not tried"), 0, False
    _keep_addresses_out_of_logs()
    try:
        opened = _client(limits)
    except (ValueError, OSError) as exc:  # what the shell says of proxies and certificates is wrong
        fault = f"no HTTP client can be made here ({type(exc).__name__}); look at the *_PROXY and SSL_* variables"
        return Delivery(receiver=receiver, is_delivered=False, fault=fault)
    async with opened as client:
        while attempt < limits.attempts:
            attempt += 1
            reply = await _attempt(client, request, limits.attempt_timeout_s)
            may_have_arrived = may_have_arrived or reply.may_have_arrived
            if not reply.fault:
                return Delivery(receiver=receiver, is_delivered=True, attempts=attempt)
            left_s = limits.deadline_s - (clock.monotonic_s() - begun_s)
            wait_s = limits.backoff_s * 2 ** (attempt - 1) if reply.retry_after_s is None else reply.retry_after_s
            if reply.is_final or attempt == limits.attempts or wait_s >= left_s:
                break
            await clock.sleep(wait_s)
    return Delivery(
        receiver=receiver, is_delivered=False, attempts=attempt, fault=reply.fault, is_uncertain=may_have_arrived
    )


def _client(limits: SendLimits) -> httpx.AsyncClient:
    import httpx

    try:
        # Redirects are not followed: they would carry the secret to where nobody meant it to go.
        return httpx.AsyncClient(timeout=limits.attempt_timeout_s, follow_redirects=False)
    except httpx.InvalidURL as exc:
        raise ValueError("a proxy is no URL") from exc


async def _attempt(client: httpx.AsyncClient, request: OutgoingRequest, timeout_s: float) -> _Reply:
    import httpx

    try:
        async with (
            asyncio.timeout(timeout_s),  # httpx's own starts anew with each byte
            client.stream("POST", request.url, json=request.body, headers=dict(request.headers)) as response,
        ):
            return _read_reply(response, await _excerpt(response))
    except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
        return _Reply(fault=f"cannot connect ({type(exc).__name__})")
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError, UnicodeError):
        return _Reply(fault="what the reference leads to is no http(s) URL, or no header's value", is_final=True)
    except TimeoutError:
        return _Reply(fault=f"no answer within {timeout_s:g} s", may_have_arrived=True)
    except httpx.HTTPError as exc:
        # Its text may quote the address.
        return _Reply(fault=f"the connection failed ({type(exc).__name__})", may_have_arrived=True)
    except OSError as exc:
        return _Reply(fault=f"the connection failed ({exc.strerror or type(exc).__name__})", may_have_arrived=True)


async def _excerpt(response: httpx.Response) -> str:
    """Return the beginning of an answer's body; one that does not end, or is no text, is no trouble."""
    raw = b""
    async for piece in response.aiter_raw(_BODY_BYTES_MAX):
        raw += piece[: _BODY_BYTES_MAX - len(raw)]
        if len(raw) >= _BODY_BYTES_MAX:
            break
    return printable(raw.decode(errors="replace").strip())


def _read_reply(response: httpx.Response, body: str) -> _Reply:
    status = response.status_code
    if response.is_success:
        return _Reply()
    fault = f"HTTP {status}" + (f": {body}" if body else "")
    if status in _RETRYABLE_STATUSES or status >= 500:
        return _Reply(fault=fault, retry_after_s=_retry_after_s(response))
    if response.is_redirect:
        return _Reply(fault=f"HTTP {status}: redirects are not followed", is_final=True)
    return _Reply(fault=fault, is_final=True)


def _retry_after_s(response: httpx.Response) -> float | None:
    """Return what the receiver asks to be left alone for: seconds, or until a date by its own clock."""
    value = response.headers.get("retry-after", "")
    if value.isascii() and value.isdigit() and len(value) < 9:
        return float(value)
    try:
        until = parsedate_to_datetime(value)
        return max(0.0, (until - parsedate_to_datetime(response.headers["date"])).total_seconds())
    except (ValueError, KeyError, TypeError):
        return None


def _without_secrets(delivery: Delivery, secrets: tuple[str, ...]) -> Delivery:
    """Return a delivery whose fault quotes no secret, whatever a receiver sent back, and is not long."""
    fault = delivery.fault
    for secret in sorted(secrets, key=len, reverse=True):
        fault = fault.replace(secret, "***")
    fault = fault if len(fault) <= _EXCERPT_CHARS_MAX else f"{fault[:_EXCERPT_CHARS_MAX]}..."
    return Delivery(
        receiver=delivery.receiver,
        is_delivered=delivery.is_delivered,
        attempts=delivery.attempts,
        fault=fault,
        is_uncertain=delivery.is_uncertain,
    )


def _keep_addresses_out_of_logs() -> None:
    # httpx logs each request's URL at INFO, httpcore the headers at DEBUG.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
