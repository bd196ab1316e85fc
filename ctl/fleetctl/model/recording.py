"""A recording: what a fleet was asked for and what became of it, what was decided, and what it had. No text of a request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from fleetctl.model.desired import Desired
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.journal import JournalEntry
from fleetctl.model.replica import Replica

RECORDING_VERSION = 1


# One for every request of a day: what is as usual is not written.
class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request that is over, as the gateway's trace of it has it. Times are seconds since it was accepted."""

    at: datetime  # when it was accepted
    lane: str
    client: str  # tells clients of one gateway process apart; neither key nor address can be had from it
    is_lane_named: bool = False  # its client named the lane
    tier: str = ""  # that it was served in; empty: its lane had none, or the recording is older than this
    model: str = ""  # that its lane served; empty: the fleet had one, or the recording is older than this
    in_place_of: str = ""  # the model it was for, where that one's lane could not serve it; empty: its own
    adapter: str = ""  # of its model, that it asked for; empty: none, or the recording is older than this
    is_stream: bool = True
    prompt_tokens: int
    cached_tokens: int = 0
    output_tokens: int = 0
    output_tokens_max: int = 0  # as asked for; 0: it did not say
    deadline_s: float = 0.0  # how long its lane let it wait
    queue_wait_s: float | None = None
    ttft_s: float | None = None
    total_s: float
    gaps: int = 0
    gaps_over: int = 0  # longer than the lane's limit
    gap_s_mean: float | None = (
        None  # its time per output token; None: it had no gap, or the recording is older than this
    )
    gap_s_p99: float | None = None
    gap_s_max: float | None = None
    continuations: int = 0
    degraded: str = ""  # what a ladder step cut
    refusal: str = ""  # why it was turned away
    replica: str = ""  # the last that had it
    ending: str
    verdict: str


class GapKind(StrEnum):
    """Why a recording lacks something."""

    OVERRUN = "overrun"  # the gateway forgot requests before they were read
    GATEWAY_RESTART = "gateway-restart"  # what it had not told was lost with it
    NOT_RECORDED = "not-recorded"  # nobody recorded meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingGap:
    """What a recording lacks."""

    kind: GapKind
    since: datetime
    until: datetime
    requests: int | None = None  # how many are missing; None: nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingHeader:
    """The first row: what is recorded, from when on, and by what the fleet was then run."""

    version: int = RECORDING_VERSION
    fleet: str
    began_at: datetime
    written_by: str  # the version of fleetctl
    desired: Desired


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingEnd:
    """The last row; a recording without it was cut."""

    at: datetime
    requests_open: int | None = None  # waiting or running then, and not in the recording; None: nobody knows


class RecordingRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a recording: exactly one of these."""

    header: RecordingHeader | None = None
    request: RecordedRequest | None = None
    decision: JournalEntry | None = None
    desired: Desired | None = None  # what should be has changed
    replica: Replica | None = None  # its record has changed
    interruption: InterruptionRecord | None = None
    gap: RecordingGap | None = None
    end: RecordingEnd | None = None
