"""What a preflight found, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.preflight import Verdict
from fleetctl.views.table import Cell, Table, Tone, cell, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.preflight import Finding

_TONES = {Verdict.OK: Tone.GOOD, Verdict.WARN: Tone.WARN, Verdict.FAIL: Tone.BAD}


def verdict_cell(verdict: Verdict) -> Cell:
    """Return how a check went."""
    return cell(verdict.value, _TONES[verdict])


def findings_table(findings: Iterable[Finding]) -> Table:
    """Return what there is to know or to mend: a row for each finding that is not OK."""
    rows = [
        (verdict_cell(finding.verdict), finding.name, finding.detail, finding.hint)
        for finding in findings
        if finding.verdict is not Verdict.OK
    ]
    return text_table("VERDICT CHECK FOUND TO_DO", rows)


def finding_line(finding: Finding) -> str:
    """Return a finding as one line of text."""
    return f"{finding.name}: {finding.detail}" + (f"; {finding.hint}" if finding.hint else "")
