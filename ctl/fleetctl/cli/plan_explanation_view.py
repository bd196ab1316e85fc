"""What is behind a plan, as people read it: key by key, and what a little more would buy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from fleetctl.cli.output import Format, lines, section
from fleetctl.units import format_count, format_duration, format_usd
from fleetctl.views.table import NOTHING, Tone, cell, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.cli.output import OutputSection
    from fleetctl.operations.explaining import Alternative, ExplainedKey, PlanExplanation
    from fleetctl.views.table import Cell

_YAML = (".yaml", ".yml")


def explanation_sections(explanation: PlanExplanation) -> tuple[OutputSection, ...]:
    """Return every key that plays a part in the plan, lane by lane, and what changes nearby would do.

    Keys that nobody gave and that no figure of the plan follows from are kept for -o wide.
    """
    keys = explanation.keys
    shown = [key for key in keys if key.is_given or key.is_planned]
    hidden = len(keys) - len(shown)
    return (
        *_by_lane(keys, only=Format.WIDE),
        *_by_lane(shown, only=Format.TABLE),
        lines(
            *(
                [f"{format_count(hidden, 'more key')} by default, for the running fleet alone: -o wide"]
                if hidden
                else []
            ),
            only=Format.TABLE,
        ),
        _alternatives(explanation.alternatives),
    )


def _by_lane(keys: tuple[ExplainedKey, ...] | list[ExplainedKey], *, only: Format) -> Iterator[OutputSection]:
    for lane in dict.fromkeys(key.lane for key in keys):
        rows = [_row(key) for key in keys if key.lane == lane]
        title = f"Lane {lane}, key by key" if lane else "Fleet, key by key"
        yield replace(section(text_table("KEY VALUE FROM WHAT_FOLLOWS", rows), title=title), only=only)


def _row(key: ExplainedKey) -> tuple[str | Cell, ...]:
    name = key.key.removeprefix(f"lanes.{key.lane}.") if key.lane else key.key
    if key.is_binding:
        effect = cell(f"binds: {key.effect}", Tone.WARN)
    else:
        effect = cell(key.effect if key.is_planned else f"running: {key.effect}")
    return name, key.value or NOTHING, _source(key), effect


def _source(key: ExplainedKey) -> str:
    """Return a line of a file by the file's own name; of a packaged profile, or of stdin, the line alone."""
    path = PurePath(key.file)
    short = f"{path.name}:" if path.suffix in _YAML else "line "
    return key.source.replace(f"{key.file}:", short) if key.file else key.source


def _alternatives(found: tuple[Alternative, ...]) -> OutputSection:
    rows = [
        (each.lane, each.change, NOTHING, NOTHING, NOTHING, f"no such plan: {each.refusal}")
        if each.refusal
        else (
            each.lane, each.change, str(each.replicas),
            f"{format_usd(each.cost_usd_per_hour)} ({signed(each.cost_change_usd_per_hour, format_usd)})",
            f"{format_duration(each.ttft_p99_s)} ({signed(each.ttft_p99_change_s, format_duration)})",
            _bought(each),
        )
        for each in found
    ]  # fmt: skip
    return section(
        text_table("LANE CHANGE >REPLICAS >$/H >TTFT_P99 WHAT_IT_BUYS", rows), title="What a little more would buy"
    )


def _bought(each: Alternative) -> str:
    cost, ttft_s = each.cost_change_usd_per_hour, each.ttft_p99_change_s
    if abs(cost) < _CENT and abs(ttft_s) < _MICROSECOND:
        return "nothing: this does not bind"
    if cost >= _CENT and ttft_s < 0:
        return f"{format_duration(-ttft_s / cost)} of the forecast TTFT P99 for each dollar an hour"
    if cost <= -_CENT:
        return f"{format_usd(-cost)} an hour less"
    return f"{format_usd(cost)} an hour more" if cost >= _CENT else "the same cost"


_CENT, _MICROSECOND = 0.01, 1e-6


def signed(change: float, spelled: Callable[[float], str]) -> str:
    r"""Return a difference with its sign: \"+$1.86\"."""
    return f"+{spelled(change)}" if change > 0 else f"-{spelled(-change)}" if change < 0 else f"+{spelled(0.0)}"
