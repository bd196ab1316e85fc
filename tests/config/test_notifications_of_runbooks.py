"""Who a runbook tells: one receiver an entry, secrets by reference alone, every fault at its line."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from fleetctl.config.runbook import read_runbook
from fleetctl.config.runbook_schema import runbook_schema
from fleetctl.model.notification import NotificationKind, NotificationRule, NotifyOn, Severity

VALIDATOR = jsonschema.Draft202012Validator(runbook_schema())
TEXT = """\
apiVersion: fleetctl/v1
kind: Runbook
name: pre-warm
notify:
{notify}
steps:
  - check:
"""


def text(*entries: str) -> str:
    return TEXT.format(notify="\n".join(f"  - {entry}" for entry in entries))


def faults(*entries: str) -> list[str]:
    return [str(fault) for fault in read_runbook(text(*entries).encode(), source="b.yaml").faults]


def test_receivers_are_read_with_their_defaults() -> None:
    entries = (
        "slack: env:SLACK_URL",
        "{webhook: file:/run/secrets/url, on: [success, failure], headers: {Authorization: env:TOKEN}}",
        "{pagerduty: env:KEY, on: always, severity: critical, endpoint: https://events.eu.pagerduty.com/v2/enqueue}",
    )
    VALIDATOR.validate(yaml.safe_load(text(*entries).replace(" on:", ' "on":')))
    assert read_runbook(text(*entries).encode(), source="b.yaml").checked().notify == (
        NotificationRule(kind=NotificationKind.SLACK, reference="env:SLACK_URL", on=(NotifyOn.FAILURE,)),
        NotificationRule(
            kind=NotificationKind.WEBHOOK,
            reference="file:/run/secrets/url",
            on=(NotifyOn.SUCCESS, NotifyOn.FAILURE),
            headers={"Authorization": "env:TOKEN"},
        ),
        NotificationRule(
            kind=NotificationKind.PAGERDUTY,
            reference="env:KEY",
            on=(NotifyOn.ALWAYS,),
            severity=Severity.CRITICAL,
            endpoint="https://events.eu.pagerduty.com/v2/enqueue",
        ),
    )


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("{slack: env:A, webhook: env:B}", "notify[0]: names webhook and slack; a receiver is one of"),
        ("{on: failure}", "notify[0]: names nobody; a receiver is one of: webhook, slack, pagerduty"),
        ("{slack: env:A, on: failed}", "'failed' is not an event (did you mean 'failure'?)"),
        ("{slack: env:A, on: []}", "notify[0].on"),
        ("{slak: env:A}", "notify[0].slak: unknown key (did you mean 'slack'?)"),
        ("{slack: env:A, headers: {X-A: env:B}}", "headers are a webhook's, and slack is none"),
        ("{slack: env:A, severity: error}", "severity and endpoint are PagerDuty's"),
        ("{webhook: env:A, headers: {'a b': env:B}}", "notify[0].headers"),
        ("{pagerduty: env:A, endpoint: 'file:///etc/passwd'}", "is not an address"),
        ("{slack: 'keyring:a/b'}", "write env:NAME or file:PATH"),
    ],
)
def test_a_fault_is_named_at_its_line(entry: str, fault: str) -> None:
    found = faults(entry)
    assert any(each.startswith("b.yaml:5: ") and fault in each for each in found), found


def test_an_address_in_the_open_is_refused_and_not_repeated() -> None:
    secret = "https://hooks.slack.com/services/T000/B000/abcdefghijk"  # noqa: S105  # no secret
    for entry in (f"slack: {secret}", f"{{webhook: env:A, headers: {{Authorization: {secret}}}}}"):
        found = faults(entry)
        assert any("must say where the address or key lies" in each for each in found)
        assert not any("hooks.slack.com" in each for each in found)
