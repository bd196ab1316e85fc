"""Each receiver's own shape, within its own bounds, and nothing in it that it would take for a command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.model.notification import NotificationKind, NotificationRule, RunEvent, Severity
from fleetctl.notifications.shapes import PAGERDUTY_ENDPOINT, outgoing, pagerduty_body, slack_body, webhook_body
from tests.notifications.samples import notification

if TYPE_CHECKING:
    from typing import Any

# https://github.com/PagerDuty/api-schema, reference/events-v2/openapiv3.json, the request's schema.
EVENTS_V2: dict[str, Any] = {
    "type": "object",
    "properties": {
        "routing_key": {"type": "string"},
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "maxLength": 255},
        "client": {"type": "string"},
        "payload": {
            "type": "object",
            "properties": {
                "summary": {"type": "string", "maxLength": 1024},
                "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"},
                "severity": {"enum": ["critical", "warning", "error", "info"]},
                "source": {"type": "string", "minLength": 1},
                "component": {"type": "string"},
                "group": {"type": "string"},
                "class": {"type": "string"},
                "custom_details": {"type": "object"},
            },
            "required": ["summary", "severity", "source"],
            "additionalProperties": False,
        },
    },
    "required": ["routing_key", "event_action"],
    "additionalProperties": False,
}
# https://docs.slack.dev/reference/block-kit/blocks: the bounds of the blocks that are used.
SLACK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "blocks": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "oneOf": [
                    {"properties": {"type": {"const": "header"}, "text": {"properties": {"text": {"maxLength": 150}}}}},
                    {
                        "properties": {
                            "type": {"const": "section"},
                            "text": {"properties": {"type": {"const": "mrkdwn"}, "text": {"maxLength": 3000}}},
                        }
                    },
                    {"properties": {"type": {"const": "context"}, "elements": {"type": "array", "maxItems": 10}}},
                ]
            },
        },
    },
    "required": ["text", "blocks"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("event", list(RunEvent))
def test_an_event_of_pagerduty_s_keeps_its_published_schema(event):
    body = pagerduty_body(notification(event), routing_key="k" * 32, severity=Severity.CRITICAL)
    jsonschema.validate(body, EVENTS_V2)


def test_a_failure_triggers_what_a_success_resolves_and_a_resumed_run_acknowledges():
    bodies = {
        event: pagerduty_body(notification(event), routing_key="k", severity=Severity.CRITICAL)
        for event in (RunEvent.FAILED, RunEvent.RESUMED, RunEvent.SUCCEEDED)
    }
    assert [body["event_action"] for body in bodies.values()] == ["trigger", "acknowledge", "resolve"]
    assert {body["dedup_key"] for body in bodies.values()} == {"fleetctl/chat/pre-warm"}
    assert bodies[RunEvent.FAILED]["payload"]["severity"] == "critical"
    assert bodies[RunEvent.FAILED]["payload"]["source"] == "ops-1"


def test_an_approval_is_a_warning_whatever_a_failure_is():
    body = pagerduty_body(notification(RunEvent.AWAITS_APPROVAL), routing_key="k", severity=Severity.CRITICAL)
    assert body["payload"]["severity"] == "warning"


@pytest.mark.parametrize("event", list(RunEvent))
def test_a_message_of_slack_s_keeps_its_bounds(event):
    jsonschema.validate(slack_body(notification(event)), SLACK)


def test_nothing_in_a_message_calls_anybody_or_ends_its_block():
    shown = json.dumps(slack_body(notification(summary="<!channel> & <@U1>", text="``` <https://evil.example|ok>")))
    assert "<!" not in shown
    assert "<@" not in shown
    assert "<https" not in shown
    assert shown.count("```") == 2


def test_a_webhook_gets_one_flat_object():
    body = webhook_body(notification())
    assert body["event"] == "failed"
    assert body["scheduled_at"] == "2026-11-23T07:30:00+00:00"
    assert body["details"] == {"step": "scale", "exit code": "11"}


@given(text=st.text(max_size=6000), key=st.text(min_size=1, max_size=400))
@settings(max_examples=60, deadline=None)
def test_whatever_is_told_fits_every_receiver(text, key):
    sample = notification(summary=text, text=text * 3, fleet=key, details=dict.fromkeys(map(str, range(99)), text))
    jsonschema.validate(slack_body(sample), SLACK)
    jsonschema.validate(pagerduty_body(sample, routing_key="k", severity=Severity.INFO), EVENTS_V2)
    assert len(json.dumps(webhook_body(sample))) < 400_000  # PagerDuty's own bound is 512 KB


def test_a_request_goes_where_its_reference_leads_and_shows_nothing_of_it():
    rule = NotificationRule(kind=NotificationKind.SLACK, reference="env:URL")
    request = outgoing(rule, notification(), secret="https://hooks.slack.com/services/T/B/s", headers={})  # noqa: S106  # no secret
    assert request.url.endswith("/T/B/s")
    assert "hooks.slack.com" not in f"{request!r}{request}"


def test_pagerduty_is_asked_where_the_account_is_served():
    rule = NotificationRule(kind=NotificationKind.PAGERDUTY, reference="env:KEY")
    assert outgoing(rule, notification(), secret="k", headers={}).url == PAGERDUTY_ENDPOINT  # noqa: S106  # no secret
    eu = NotificationRule(
        kind=NotificationKind.PAGERDUTY, reference="env:KEY", endpoint="https://events.eu.pagerduty.com/v2/enqueue"
    )
    assert outgoing(eu, notification(), secret="k", headers={}).url == eu.endpoint  # noqa: S106  # no secret
