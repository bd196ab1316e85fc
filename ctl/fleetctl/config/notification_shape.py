"""The receivers of a runbook's notifications, key by key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.fields import choice, choice_schema, shown
from fleetctl.config.forms import HEADER_FORM
from fleetctl.config.section import ProfileSection
from fleetctl.model.notification import NotificationKind, NotificationRule, NotifyOn, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFERENCE = re.compile(r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$")
_ENDPOINT = re.compile(r"^https?://[^\s@]+$")
_KINDS = tuple(kind.value for kind in NotificationKind)


def _reference(value: object) -> str:
    if isinstance(value, str) and _REFERENCE.match(value):
        return value
    # The value is not repeated: it may be the secret itself.
    raise ValueError("must say where the address or key lies, not be it; write env:NAME or file:PATH")


def _endpoint(value: object) -> str:
    if isinstance(value, str) and _ENDPOINT.match(value):
        return value
    raise ValueError(f"{shown(value)} is not an address; write https://events.eu.pagerduty.com/v2/enqueue")


def _one_or_several(value: object) -> object:
    return value if isinstance(value, list) else [value]


_Reference = Annotated[
    str,
    BeforeValidator(_reference),
    WithJsonSchema({"type": "string", "pattern": _REFERENCE.pattern, "examples": ["file:/etc/fleetctl/slack-url"]}),
]
_On = Annotated[NotifyOn, BeforeValidator(choice(NotifyOn, "an event")), WithJsonSchema(choice_schema(NotifyOn))]
_Severity = Annotated[
    Severity, BeforeValidator(choice(Severity, "a severity")), WithJsonSchema(choice_schema(Severity))
]
_ONE: dict[str, Any] = choice_schema(NotifyOn)


class NotificationShape(ProfileSection):
    """One receiver, and what it is told of."""

    webhook: _Reference | None = Field(default=None, description="Where the address of a webhook lies; it gets JSON.")
    slack: _Reference | None = Field(default=None, description="Where the address of a Slack incoming webhook lies.")
    pagerduty: _Reference | None = Field(
        default=None, description="Where the routing key of a PagerDuty Events API v2 integration lies."
    )
    on: Annotated[
        list[_On],
        Field(min_length=1),
        BeforeValidator(_one_or_several),
        WithJsonSchema({"anyOf": [_ONE, {"type": "array", "items": _ONE, "minItems": 1}]}),
    ] = Field(
        default_factory=lambda: [NotifyOn.FAILURE],
        description="success, failure, approval, always, or a list of them. PagerDuty is told of a success too where it "
        "is told of failures: what one opened the other resolves.",
    )
    headers: dict[Annotated[str, Field(pattern=HEADER_FORM)], _Reference] = Field(
        default_factory=dict, description="A webhook's own headers; each value says where its content lies."
    )
    severity: _Severity | None = Field(
        default=None, description="PagerDuty's severity of a failure: critical, error (the default), warning or info."
    )
    endpoint: Annotated[str, BeforeValidator(_endpoint)] | None = Field(
        default=None, description="PagerDuty's address, for an account that is served elsewhere (EU)."
    )

    @model_validator(mode="after")
    def _is_one(self) -> NotificationShape:
        named = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(named) != 1:
            found = " and ".join(named) if named else "nobody"
            raise ValueError(f"names {found}; a receiver is one of: {', '.join(_KINDS)}")
        if self.headers and self.webhook is None:
            raise ValueError(f"headers are a webhook's, and {named[0]} is none")
        if (self.severity is not None or self.endpoint is not None) and self.pagerduty is None:
            raise ValueError(f"severity and endpoint are PagerDuty's, and {named[0]} is none of it")
        return self


def notification_rules(sections: Sequence[NotificationShape]) -> tuple[NotificationRule, ...]:
    """Return the receivers as nouns."""
    return tuple(_rule(section) for section in sections)


def _rule(section: NotificationShape) -> NotificationRule:
    kind = next(kind for kind in NotificationKind if getattr(section, kind) is not None)
    return NotificationRule(
        kind=kind,
        reference=getattr(section, kind),
        on=tuple(section.on),
        headers=dict(section.headers),
        severity=section.severity or Severity.ERROR,
        endpoint=section.endpoint or "",
    )
