"""Whether a lane keeps its SLO, as one judge has it for every face, decision and exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from fleetctl.model.slo import TAIL_SAMPLES_MIN, LatencyTarget, Validity

VERDICT_VERSION = 1  # of the JSON; docs/verdicts.md


class Compliance(StrEnum):
    """How figures stand to what was promised."""

    MISSED = "missed"  # surely: the figures would be next to impossible if the promise were kept
    UNDECIDED = "undecided"  # over the limit on too few samples to be sure, or too many requests cut short to know
    KEPT = "kept"
    NONE = "none"  # nothing was measured, or nothing is promised


class SloFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One promise beside what was measured: a latency target, or the share of good requests where `target` is None."""

    target: LatencyTarget | None
    compliance: Compliance
    is_sure: bool  # few samples decide nothing; of KEPT: whether they would have shown a miss
    window_s: float  # what was measured over
    samples: int  # of the metric; for the share of good requests those offered
    missed: int  # samples over the limit; requests that were not good
    undecided: int = 0  # of the samples: requests cut short by the client before they were good or missed
    allowed: float  # the share of samples that may be
    covered: int = 0  # refusals among the good requests: the lane's shed allowance covers them
    shed: float = 0.0  # that allowance: the share of the samples that may be refused
    measured: (
        float | None
    )  # at the target's percentile, in its unit (seconds, but for rates and tokens); or the share of good requests
    kinds: dict[str, int] = {}  # the missed requests by BreachKind; of a target empty
    factor: float  # how many times the limit, or the error budget's rate (the burn rate), was measured

    @property
    def name(self) -> str:
        """What people call it."""
        return self.target.name if self.target else "good requests"

    @property
    def is_cut_short(self) -> bool:
        """Whether it is undecided as more requests were cut short than may be missed."""
        return self.compliance is Compliance.UNDECIDED and self.undecided > self.samples * self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseFinding:
    """What a tier or a kind of workflows is promised, beside what a whole run came to; docs/slo.md has the rule."""

    name: str  # "good requests", "ttft P99", "elapsed P50"
    percentile: float | None  # of the target; null: the share of good requests
    limit: float  # in seconds; of good requests the least share, 0-1
    measured: float | None  # in the same unit, at the percentile, of those answered; null: none was
    compliance: Compliance = Compliance.NONE
    is_sure: bool = False  # few samples decide nothing; of KEPT: whether they would have shown a miss
    samples: int  # good or missed
    missed: int
    covered: int = 0  # of the good: refusals that the tier's shed allowance covers
    refused: int = 0  # of the missed: refusals beyond it
    shed: float = 0.0  # that allowance: the share of the samples that may be refused
    undecided: int = 0  # unfinished inside the limit: in no share
    allowed: float  # the share of samples that may be missed

    @property
    def validity(self) -> Validity:
        """Whether what was measured is fit to decide on: a tail needs a hundred samples."""
        if self.measured is None:
            return Validity.NONE
        return Validity.FEW if (self.percentile or 0.0) > 0.5 and self.samples < TAIL_SAMPLES_MIN else Validity.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class BreachRecord:
    """A breach that goes on, or that ended within the last minute: since when, and which promises it is of."""

    since: datetime
    names: tuple[str, ...]  # SloFinding.name
    quiet_since: dict[str, datetime] = field(
        default_factory=dict
    )  # name -> the last seconds are inside the limit since
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedBreach:
    """The breach that the journal last spoke of."""

    since: datetime
    names: tuple[str, ...]  # SloFinding.name
    again: int = 0  # how often it has come back soon after its end was reported
    quiet_since: datetime | None = None  # it is over since, which is not reported yet
    ended_at: datetime | None = None  # its end was reported


@dataclass(frozen=True, slots=True, kw_only=True)
class SloVerdict:
    """A lane's compliance over a window, every promise held."""

    version: int = VERDICT_VERSION
    compliance: Compliance = Compliance.NONE
    window_s: float = 0.0  # the one that decides on the share of good requests
    objective: float = 0.0  # the share of good requests promised
    good: int = 0  # over window_s
    offered: int = 0  # good, missed or undecided, over window_s
    undecided: int = 0  # cut short by the client before they were good or missed; only of a finished run
    findings: tuple[SloFinding, ...] = ()  # the share of good requests first, then every target
    breach: BreachRecord | None = None  # a live verdict's, while it is MISSED
    breach_s: float = 0.0  # for how long
    ended: BreachRecord | None = None  # the breach that ended within the last minute

    @property
    def attained(self) -> float | None:
        """The share of good requests. None: none was offered."""
        return self.good / self.offered if self.offered else None

    @property
    def record(self) -> BreachRecord | None:
        """What the next live verdict has to know of this one."""
        return self.breach or self.ended

    def having(self, compliance: Compliance) -> tuple[SloFinding, ...]:
        """Return the findings that came out so, the worst latency first and the share of good requests last."""
        found = [finding for finding in self.findings if finding.compliance is compliance]
        return tuple(sorted(found, key=lambda finding: (finding.target is None, -finding.factor)))
