"""The degradation ladder: every step's name, meaning, effect and cost in one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import total_ordering


@total_ordering
class LadderStep(Enum):
    """A lane's step, by the name people and JSON write; ordered as the steps are taken, each including those below."""

    NORMAL = "normal"
    PAUSE_BATCH = "pause-batch"
    CAP_TOKENS = "cap-tokens"
    CAP_CONTEXT = "cap-context"
    SPILL = "spill"
    SHED = "shed"
    BREAKER = "breaker"

    def __str__(self) -> str:
        return self.value

    def __lt__(self, other: LadderStep) -> bool:
        return self.level < other.level

    @property
    def level(self) -> int:
        """Return how many steps lie below this one."""
        return _LEVELS[self.value]

    @property
    def entry(self) -> LadderEntry:
        """Return what the ladder says of this step."""
        return LADDER[self.level]


_LEVELS = {step.value: level for level, step in enumerate(LadderStep)}


class StepEffect(StrEnum):
    """What a step adds to those below it."""

    NOTHING = "nothing"
    HOLDS_QUEUE = "holds-queue"  # interruptible lanes only: nothing is dispatched
    CAPS_ANSWERS = "caps-answers"  # max_tokens is lowered, and a response header says so
    CAPS_PROMPTS = "caps-prompts"  # long prompts are refused or trimmed, and a response header says so
    SPILLS = "spills"  # idle replicas of the spill_to lanes may serve the lane
    SHEDS_WAITING = "sheds-waiting"  # what cannot be dispatched at once is refused
    BREAKS = "breaks"  # all new requests are refused but a probe a second


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderEntry:
    """One step of the ladder."""

    step: LadderStep
    effect: StepEffect
    meaning: str  # one clause for menus, after those of the steps below
    loss: str = ""  # what a lane pinned there will do to requests; empty: nothing is lost by it
    refusal: str = ""  # what a refused client is told of the lane; empty: the step refuses nothing


LADDER = (
    LadderEntry(step=LadderStep.NORMAL, effect=StepEffect.NOTHING, meaning="nothing is cut"),
    LadderEntry(
        step=LadderStep.PAUSE_BATCH,
        effect=StepEffect.HOLDS_QUEUE,
        meaning="interruptible lanes hold their queue",
        loss="hold its queue: nothing of it is dispatched",
    ),
    LadderEntry(step=LadderStep.CAP_TOKENS, effect=StepEffect.CAPS_ANSWERS, meaning="and answers are cut short"),
    LadderEntry(
        step=LadderStep.CAP_CONTEXT,
        effect=StepEffect.CAPS_PROMPTS,
        meaning="and long prompts are refused or trimmed",
        loss="refuse prompts over its context cap, or trim them where the profile says so",
        refusal="it takes no prompt this long while it is overloaded; shorten it, or come back later",
    ),
    LadderEntry(
        step=LadderStep.SPILL,
        effect=StepEffect.SPILLS,
        meaning="and idle replicas of other lanes may serve it",
    ),
    LadderEntry(
        step=LadderStep.SHED,
        effect=StepEffect.SHEDS_WAITING,
        meaning="and what would wait is refused",
        loss="refuse what it cannot dispatch at once",
        refusal="it is shedding what would have to wait",
    ),
    LadderEntry(
        step=LadderStep.BREAKER,
        effect=StepEffect.BREAKS,
        meaning="everything new is refused, with Retry-After",
        loss="refuse every request but a probe a second",
        refusal="it is refusing all new requests",
    ),
)


def entries_up_to(step: LadderStep, *, interruptible: bool) -> tuple[LadderEntry, ...]:
    """Return the entries in force for a lane on this step: only interruptible lanes hold their queue."""
    return tuple(
        entry
        for entry in LADDER
        if entry.step <= step and (interruptible or entry.effect is not StepEffect.HOLDS_QUEUE)
    )


def loss(step: LadderStep, *, interruptible: bool) -> str:
    """Return what a lane on this step will do to requests, gravest first; empty where nothing is lost by it."""
    losses = [entry for entry in entries_up_to(step, interruptible=interruptible) if entry.loss]
    held = [entry.loss for entry in losses if entry.effect is StepEffect.HOLDS_QUEUE]
    return (held or [entry.loss for entry in losses[-1:]] or [""])[0]
