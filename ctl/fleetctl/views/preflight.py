"""What a preflight found, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.preflight import Verdict
from fleetctl.views.table import Cell, Tone, cell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.preflight import Finding

_TONES = {Verdict.OK: Tone.GOOD, Verdict.WARN: Tone.WARN, Verdict.FAIL: Tone.BAD}


def verdict_cell(verdict: Verdict) -> Cell:
    """Return how a check went."""
    return cell(verdict.value, _TONES[verdict])


def findings_lines(findings: Iterable[Finding]) -> tuple[Cell, ...]:
    """Return what there is to know or to mend: whole lines, for a table would be cut where they say what to do."""
    found: list[Cell] = []
    for finding in findings:
        if finding.verdict is not Verdict.OK:
            found.append(_line(finding))
            found += [cell(f"      to do: {finding.hint}")] if finding.hint else []
    return tuple(found)


def _line(finding: Finding) -> Cell:
    verdict = f"{finding.verdict.value:<5} "
    return Cell(((verdict, _TONES[finding.verdict]), (f"{finding.name}: {finding.detail}", Tone.PLAIN)))


def finding_line(finding: Finding) -> str:
    """Return a finding as one line of text."""
    return f"{finding.name}: {finding.detail}" + (f"; {finding.hint}" if finding.hint else "")
