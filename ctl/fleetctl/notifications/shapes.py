"""A notification in its receiver's shape.

Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks (`text`, and `blocks` for what is shown
instead of it). PagerDuty: the Events API v2, https://developer.pagerduty.com/docs/events-api-v2-overview (routing_key,
event_action, dedup_key, payload of summary, source, severity, timestamp, component, group, class, custom_details).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from fleetctl.model.notification import NotificationKind, NotificationRule, RunEvent, Severity
from fleetctl.printable import printable

if TYPE_CHECKING:
    from fleetctl.model.notification import Notification

PAGERDUTY_ENDPOINT = "https://events.pagerduty.com/v2/enqueue"
API_VERSION = "fleetctl/v1"
# Receivers' own bounds: PagerDuty cuts a summary at 1024 characters and refuses a key of more than 255; a section of
# Slack's holds 3000 characters, a header 150. A webhook's receiver is spared what no message needs.
_SUMMARY_CHARS_MAX = 1024
_KEY_CHARS_MAX = 255
_SECTION_CHARS_MAX = 2900
_HEADER_CHARS_MAX = 150
_TEXT_CHARS_MAX = 32_000
_DETAILS_MAX = 50

_ACTIONS = {
    RunEvent.FAILED: "trigger",
    RunEvent.AWAITS_APPROVAL: "trigger",
    RunEvent.MESSAGE: "trigger",
    RunEvent.RESUMED: "acknowledge",
    RunEvent.SUCCEEDED: "resolve",
}
_MARKS = {
    RunEvent.FAILED: ":x:",
    RunEvent.AWAITS_APPROVAL: ":raised_hand:",
    RunEvent.MESSAGE: ":memo:",
    RunEvent.RESUMED: ":arrow_forward:",
    RunEvent.SUCCEEDED: ":white_check_mark:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """What is posted where; `url`, `headers` and `body` may hold secrets, so none of them is shown."""

    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return "OutgoingRequest(...)"


def outgoing(
    rule: NotificationRule, notification: Notification, *, secret: str, headers: Mapping[str, str]
) -> OutgoingRequest:
    """Return the request that tells a rule's receiver; `secret` is what its reference leads to."""
    match rule.kind:
        case NotificationKind.WEBHOOK:
            return OutgoingRequest(url=secret, body=webhook_body(notification), headers=headers)
        case NotificationKind.SLACK:
            return OutgoingRequest(url=secret, body=slack_body(notification), headers={})
        case NotificationKind.PAGERDUTY:
            body = pagerduty_body(notification, routing_key=secret, severity=rule.severity)
            return OutgoingRequest(url=rule.endpoint or PAGERDUTY_ENDPOINT, body=body, headers={})
        case _:
            assert_never(rule.kind)


def webhook_body(notification: Notification) -> dict[str, Any]:
    """Return our own shape, one flat object."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RunbookNotification",
        "event": str(notification.event),
        "at": notification.at.isoformat(),
        "runbook": notification.runbook,
        "fleet": notification.fleet,
        "run": notification.run,
        "host": notification.host,
        "scheduled_at": None if notification.scheduled_at is None else notification.scheduled_at.isoformat(),
        "summary": _cut(printable(notification.summary), _SUMMARY_CHARS_MAX),
        "text": _cut(printable(notification.text, keeps_lines=True), _TEXT_CHARS_MAX),
        "details": _details(notification),
    }


def slack_body(notification: Notification) -> dict[str, Any]:
    """Return an incoming webhook's message: `text` for notifications, blocks for the channel."""
    summary = _cut(printable(notification.summary), _SUMMARY_CHARS_MAX)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(_title(notification), _HEADER_CHARS_MAX)}},
        {"type": "section", "text": _mrkdwn(f"{_MARKS[notification.event]} {_escaped(summary)}")},
    ]
    if notification.text:
        text = _escaped(printable(notification.text, keeps_lines=True))
        # A fence inside would end the block.
        fenced = _cut(text.replace("```", "'''"), _SECTION_CHARS_MAX)
        blocks.append({"type": "section", "text": _mrkdwn(f"```{fenced}```")})
    facts = {"run": notification.run, "host": notification.host, **_details(notification)}
    shown = "  ".join(f"*{_escaped(name)}* {_escaped(value)}" for name, value in facts.items())
    blocks.append({"type": "context", "elements": [_mrkdwn(_cut(shown, _SECTION_CHARS_MAX))]})
    return {"text": f"{_escaped(_title(notification))}: {_escaped(summary)}", "blocks": blocks}


def pagerduty_body(notification: Notification, *, routing_key: str, severity: Severity) -> dict[str, Any]:
    """Return an event: a failure triggers, a resumed run acknowledges, a success resolves what shares its key."""
    action = _ACTIONS[notification.event]
    body: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": _cut(notification.alert_key, _KEY_CHARS_MAX),
    }
    if action != "trigger":
        return body
    return body | {
        "client": "fleetctl",
        "payload": {
            "summary": _cut(f"{_title(notification)}: {printable(notification.summary)}", _SUMMARY_CHARS_MAX),
            "source": notification.host,
            "severity": str(_severity(notification.event, severity)),
            "timestamp": notification.at.isoformat(),
            "component": notification.runbook,
            "group": notification.fleet,
            "class": str(notification.event),
            "custom_details": {
                "run": notification.run,
                "text": _cut(printable(notification.text, keeps_lines=True), _TEXT_CHARS_MAX),
                **_details(notification),
            },
        },
    }


def _severity(event: RunEvent, of_failure: Severity) -> Severity:
    if event is RunEvent.FAILED:
        return of_failure
    return Severity.WARNING if event is RunEvent.AWAITS_APPROVAL else Severity.INFO


def _title(notification: Notification) -> str:
    what = "" if notification.event is RunEvent.MESSAGE else f" {str(notification.event).replace('-', ' ')}"
    return f"{notification.runbook} on {notification.fleet}{what}"


def _details(notification: Notification) -> dict[str, str]:
    pairs = list(notification.details.items())[:_DETAILS_MAX]
    return {name: _cut(printable(value), _SUMMARY_CHARS_MAX) for name, value in pairs}


def _escaped(text: str) -> str:
    # The three characters that Slack gives a meaning of its own: <@user> would call somebody.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mrkdwn(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": text}


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 3]}..."
