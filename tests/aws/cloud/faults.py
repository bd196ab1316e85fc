"""Faults by action and parameter: what happens to a call instead of, before, or after its effect."""

from __future__ import annotations

import fnmatch
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from tests.aws.cloud.calls import AwsCall

FaultKind = Literal[
    "error", "delay", "cut-before", "cut-after", "truncate", "hang", "outage", "kill-before", "kill-after"
]
KINDS: tuple[str, ...] = get_args(FaultKind)


@dataclass
class FaultRule:
    """One fault; it strikes calls whose service, action and parameters match its patterns.

    `error`: answered with `code` and `status`, without effect. `delay`: after `seconds`. `cut-before`, `cut-after`: the
    connection is reset, without or with the effect. `truncate`: with the effect, half of the response. `hang`: no response
    for `seconds`, then cut, without effect. `outage`: nobody listens for `seconds`. `kill-before`, `kill-after`: the server
    dies, and everything it keeps.
    """

    kind: FaultKind
    action: str = "*"
    service: str = "*"
    parameters: dict[str, str] = field(default_factory=dict)  # patterns, by the flat name or a pattern of it
    code: str = "InternalError"
    message: str = "a fault of the test's"
    status: int = 400
    seconds: float = 0.0
    times: int | None = 1  # how often it strikes; None: always
    probability: float = 1.0
    struck: int = 0

    def matches(self, call: AwsCall) -> bool:
        if self.times is not None and self.struck >= self.times:
            return False
        if not fnmatch.fnmatchcase(call.action, self.action) or not fnmatch.fnmatchcase(call.service, self.service):
            return False
        return all(
            any(
                fnmatch.fnmatchcase(name, key) and fnmatch.fnmatchcase(value, pattern)
                for name, value in call.parameters.items()
            )
            for key, pattern in self.parameters.items()
        )


@dataclass
class FaultRules:
    """The faults a test has set; the first that matches strikes."""

    seed: int = 0
    rules: list[FaultRule] = field(default_factory=list)
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def striking(self, call: AwsCall) -> FaultRule | None:
        """Return the fault for a call, counted as struck."""
        for rule in self.rules:
            if rule.matches(call) and (rule.probability >= 1.0 or self.dice.random() < rule.probability):
                rule.struck += 1
                return rule
        return None
