"""What a gateway remembers of requests, made up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.request_trace import RequestTrace, RequestTraces
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.recording import RecordingRow


def trace(seq: int, *, at: datetime = samples.EPOCH, **given: Any) -> RequestTrace:
    usual: dict[str, Any] = {
        "id": f"req-{seq}", "lane": "short", "client": "c1", "is_stream": True, "prompt_tokens": 100, "cached_tokens": 0,
        "output_tokens": 20, "output_tokens_max": 64, "queue_wait_s": 0.0, "queued_behind": None, "ttft_s": 0.1,
        "total_s": 1.0, "ending": "complete", "verdict": "good", "max_wait_s": 1.5,
    }  # fmt: skip
    return RequestTrace(seq=seq, at=at, **(usual | given))


def answer(*traces: RequestTrace, started_at: datetime = samples.EPOCH, last_seq: int | None = None) -> RequestTraces:
    last = traces[-1].seq if traces else 0
    return RequestTraces(
        started_at=started_at,
        at=started_at + timedelta(seconds=last),
        last_seq=last if last_seq is None else last_seq,
        requests=traces,
    )


def desired(**changes: Any) -> Desired:
    usual: dict[str, Any] = {
        "fleet": "demo", "phase": DesiredPhase.UP, "generation": 1, "profile": samples.profile(), "plan": samples.plan(),
        "created_at": samples.EPOCH, "changed_at": samples.EPOCH,
    }  # fmt: skip
    return Desired(**(usual | changes))


def of_kind(kind: str, rows: Iterable[RecordingRow]) -> list[Any]:
    """Return what the rows of one kind hold."""
    return [getattr(row, kind) for row in rows if getattr(row, kind) is not None]
