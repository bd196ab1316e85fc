"""The burst memory: how long a lane keeps what it needed, by how short the need was and what giving up has cost it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.model.bursts import BurstMemory, NeedLevel, NeedPeak

if TYPE_CHECKING:
    from datetime import datetime

MEMORY_SPAN = timedelta(hours=1)
# A need that is over within two calms was a burst: what is ordered for one comes too late, so it is kept for the next.
_BURST_CALMS = 2.0
_KEPT_CALMS = 15.0
# Of a peak: since when so much of it was needed says how long it lasted, whatever the noise at its top.
_PEAK_SHARE = 0.75
# A short peak is a burst where within a calm so many times less is needed; others are noise, or steps of a slope.
_BURST_FACTOR = 2.0
_LEVEL_STEP = 1.1  # needs closer than this share a level, so that there are few
_PEAKS_MAX = 32
# What is given up and lacking again within so many calms was given up too soon.
_REGRET_CALMS = 5.0
_REGRETS_MAX = 6


def note_need(memory: BurstMemory, need: int, now: datetime, *, calm: float) -> BurstMemory:
    """Return the memory with what is needed now. `calm` is the shortest calm in seconds: `calm_s` without any regret."""
    if _is_known(memory, need, now, calm):
        return memory
    over = [level for level in memory.levels if level.need > need]
    levels = [level for level in memory.levels if level.need <= need]
    if not levels or levels[-1].need < need:
        since = over[0].since if over else now
        if levels and not over and levels[-1].need > 1 and need <= _LEVEL_STEP * levels[-1].need:
            since = levels.pop().since
        levels.append(NeedLevel(need=need, since=since))
    passed = [
        NeedPeak(need=level.need, at=now, is_short=_lasted_s(memory, level.need, now) < _BURST_CALMS * calm)
        for level in over
    ]
    peaks = [
        replace(peak, is_burst=True) if _is_burst(peak, need, now, calm) else peak for peak in (*memory.peaks, *passed)
    ]
    return changed(memory, levels=tuple(levels), peaks=_undominated(peaks, now))


def _is_known(memory: BurstMemory, need: int, now: datetime, calm: float) -> bool:
    """Whether the memory says already all that there is to say of a need: so it is at nearly every tick."""
    if not memory.levels or memory.levels[-1].need != need:
        return False
    for peak in memory.peaks:
        if now - peak.at >= MEMORY_SPAN or (not peak.is_burst and _is_burst(peak, need, now, calm)):
            return False
    return True


def _is_burst(peak: NeedPeak, need: int, now: datetime, calm: float) -> bool:
    is_fresh = (now - peak.at).total_seconds() <= calm
    return peak.is_burst or (peak.is_short and is_fresh and peak.need > _BURST_FACTOR * need)


def is_far_over(ready: int, need: int) -> bool:
    """Whether a lane that is late with so many has them for bursts: they are too short for the rate, which asks for far fewer."""
    return ready > _BURST_FACTOR * need


def note_wanted(
    memory: BurstMemory, wanted: int, now: datetime, *, is_burst: bool = False, is_planned: bool = False
) -> BurstMemory:
    """Return the memory of a lane that has use for so many replicas now, whatever its load says."""
    peak = NeedPeak(need=wanted, at=now, is_burst=is_burst, is_planned=is_planned)
    return replace(memory, peaks=_undominated([*memory.peaks, peak], now))


def _lasted_s(memory: BurstMemory, need: int, now: datetime) -> float:
    """Return for how long most of a need has lasted."""
    since = next(level.since for level in memory.levels if level.need >= _PEAK_SHARE * need)
    return (now - since).total_seconds()


def _undominated(peaks: list[NeedPeak], now: datetime) -> tuple[NeedPeak, ...]:
    """Return the peaks that decide anything: no later one is as high and kept as long."""
    kept: list[NeedPeak] = []
    for peak in sorted(peaks, key=lambda each: (each.at, each.need, _rank(each)), reverse=True):
        if now - peak.at < MEMORY_SPAN and not any(
            later.need >= peak.need and _rank(later) >= _rank(peak) for later in kept
        ):
            kept.append(peak)
    return tuple(kept[:_PEAKS_MAX])


def _rank(peak: NeedPeak) -> int:
    return 2 * peak.is_burst + peak.is_short


def needed_lately(memory: BurstMemory, now: datetime, calm: float) -> NeedPeak:
    """Return the most that is kept: what is needed now, was within `calm` seconds, or in a burst not too long ago."""
    need = memory.levels[-1].need if memory.levels else 0
    found = [peak for peak in memory.peaks if (now - peak.at).total_seconds() < kept_s(peak, calm)]
    return max([NeedPeak(need=need, at=now), *found], key=lambda peak: (peak.need, peak.at))


def kept_s(peak: NeedPeak, calm: float) -> float:
    """Return for how long a peak's replicas are kept after it."""
    return min(MEMORY_SPAN.total_seconds(), calm * (_KEPT_CALMS if peak.is_burst else 1.0))


def calm_s(memory: BurstMemory, *, shortest_s: float) -> float:
    """Return how long a need must have passed before its replicas are given up: twice as long after every regret."""
    return min(MEMORY_SPAN.total_seconds(), shortest_s * 2.0**memory.regrets)


def note_lowered(memory: BurstMemory, now: datetime) -> BurstMemory:
    """Return the memory of a lane that gives replicas up now."""
    return replace(memory, lowered_at=now)


def note_raised(memory: BurstMemory, *, now: datetime, calm: float) -> BurstMemory:
    """Return the memory of a lane that lacks replicas all of a sudden: a regret where it had them not long ago."""
    lowered_at = memory.lowered_at
    if lowered_at is None or (now - lowered_at).total_seconds() > _REGRET_CALMS * calm:
        return memory
    return replace(memory, lowered_at=None, regrets=min(_REGRETS_MAX, memory.regrets + 1), regretted_at=now)


def without_old_regrets(memory: BurstMemory, now: datetime) -> BurstMemory:
    """Return the memory with one regret less for every hour without another."""
    if not memory.regrets or memory.regretted_at is None or now - memory.regretted_at < MEMORY_SPAN:
        return memory
    return replace(memory, regrets=memory.regrets - 1, regretted_at=now)
