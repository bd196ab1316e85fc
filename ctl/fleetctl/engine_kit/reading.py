"""Turns a page's raw figures into signals, by the rules every engine shares."""

from __future__ import annotations

from enum import Enum
from typing import Final

from fleetctl.model.observation import EngineSignals
from fleetctl.model.slo import Validity

INVALID = EngineSignals(validity=Validity.INVALID)

# kv_usage is blocks in use over blocks there are, in floating point: a full cache may read a hair over one.
_KV_USAGE_SLACK = 1e-6
# Above this a float counts no longer by ones, and no engine has got there: the page lies.
_COUNT_MAX = 2.0**53


class Unreported(Enum):
    """A figure that an engine never gives, where one that is merely missing makes a page unfit."""

    KV_USAGE = "kv_usage"


UNREPORTED: Final = Unreported.KV_USAGE


def signals(  # noqa: PLR0913  # what an engine is known by, each named
    *,
    running: float | None,
    waiting: float | None,
    kv_usage: float | Unreported | None,
    preemptions: float | None,
    prompt_tokens: float | None,
    output_tokens: float | None,
    steps: float | None = None,
    kv_tokens: float | None = None,
) -> EngineSignals:
    """Return OK signals if every figure is there, finite, countable and not negative, and KV usage is at most one; else INVALID.

    `steps` and `kv_tokens` may be missing, or be no figures: the one only proves that an engine moves, the other is known
    of the plan. KV usage is None where the engine never tells it (`UNREPORTED`).
    """
    known_kv_usage = 0.0 if isinstance(kv_usage, Unreported) else kv_usage
    figures = (running, waiting, known_kv_usage, preemptions, prompt_tokens, output_tokens)
    present = [figure for figure in figures if figure is not None and 0 <= figure <= _COUNT_MAX]
    if len(present) < len(figures) or present[2] > 1 + _KV_USAGE_SLACK:
        return INVALID
    return EngineSignals(
        validity=Validity.OK,
        running=round(present[0]),
        waiting=round(present[1]),
        kv_usage=None if isinstance(kv_usage, Unreported) else min(present[2], 1.0),
        preemptions=present[3],
        prompt_tokens=present[4],
        output_tokens=present[5],
        steps=steps if steps is not None and 0 <= steps <= _COUNT_MAX else 0.0,
        kv_tokens=kv_tokens if kv_tokens is not None and 0 <= kv_tokens <= _COUNT_MAX else 0.0,
    )
