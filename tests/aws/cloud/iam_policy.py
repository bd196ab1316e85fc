"""IAM's evaluation of identity policies: what one call asks for, and whether statements allow it.

After https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html: a Deny that matches wins, an
Allow that matches permits, and nothing permits nothing. What policies here do not use raises ValueError: a statement that is
not understood must not look as if it did not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
USER = "AKIAIOSFODNN7EXAMPLE"  # the access key of whoever has the environment of a test
# The keys that calls are given here, the tags' up to their names.
_KEYS = ("ec2:CreateAction", "iam:PassedToService", "s3:prefix", "aws:SourceArn", "ec2:LaunchTemplate")
_TAG_KEYS = ("aws:ResourceTag/", "aws:RequestTag/", "ssm:resourceTag/")
_STATEMENT_KEYS = {"Sid", "Effect", "Action", "Resource", "Condition"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """One action on one resource, with the context that conditions are held against."""

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}"


def is_allowed(request: AccessRequest, policies: list[Object]) -> bool:
    """Whether the policies allow a request together. Raises ValueError for what is not understood."""
    found = {
        statement["Effect"]
        for policy in policies
        for statement in _listed(policy["Statement"])
        if _matches(statement, request)
    }
    return found == {"Allow"}


def _matches(statement: Object, request: AccessRequest) -> bool:
    if unknown := set(statement) - _STATEMENT_KEYS:
        raise ValueError(f"{sorted(unknown)} in a statement is not evaluated here")
    return (
        any(_like(pattern.lower(), request.action.lower()) for pattern in _listed(statement["Action"]))
        and any(_like(pattern, request.resource) for pattern in _listed(statement["Resource"]))
        and _holds(statement.get("Condition", {}), request.context)
    )


def _holds(conditions: Object, context: Mapping[str, str]) -> bool:
    """Whether every operator holds for every key; one that the context lacks holds for no value."""
    for operator, wanted in conditions.items():
        compare = _OPERATORS.get(operator)
        if compare is None:
            raise ValueError(f"the condition operator {operator} is not evaluated here")
        for key, values in wanted.items():
            if key not in _KEYS and not key.startswith(_TAG_KEYS):
                raise ValueError(f"calls are not given the condition key {key} here")
            if not compare(context.get(key), [str(each) for each in _listed(values)]):
                return False
    return True


def _equals(value: str | None, wanted: list[str]) -> bool:
    return value is not None and value in wanted


def _is_like(value: str | None, wanted: list[str]) -> bool:
    return value is not None and any(_like(pattern, value) for pattern in wanted)


def _is_null(value: str | None, wanted: list[str]) -> bool:
    return wanted == [str(value is None).lower()]


_OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "StringEquals": _equals, "StringLike": _is_like, "ArnLike": _is_like, "ArnEquals": _is_like,
    "Null": lambda value, wanted: _is_null(value, [each.lower() for each in wanted]),
}  # fmt: skip


def _like(pattern: str, text: str) -> bool:
    """Whether a text is like a pattern of `*` and `?`; a resource `*` stands for all that name none, too."""
    wild = {"*": ".*", "?": "."}
    return re.fullmatch("".join(wild.get(each, re.escape(each)) for each in pattern), text, re.DOTALL) is not None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
