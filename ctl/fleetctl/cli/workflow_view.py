"""Workflows, for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.views.table import Tone, cell
from fleetctl.views.workflows import tree_notes, workflow_head, workflow_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from fleetctl.cli.output import OutputSection
    from fleetctl.model.workflow_trace import WorkflowTrace


def workflow_view(found: Sequence[WorkflowTrace], *, now: datetime) -> View:
    """Return `why WORKFLOW-ID`: what became of it, its calls as a tree, and where its time went."""
    sections = tuple(each for trace in found for each in _sections(trace, now))
    return View(value=list(found), names=tuple(trace.id for trace in found), sections=sections)


def _sections(trace: WorkflowTrace, now: datetime) -> Iterator[OutputSection]:
    yield lines(*workflow_head(trace, now))
    yield section(workflow_tree(trace))
    yield lines(*(cell(line, Tone.DIM) for line in tree_notes(trace)))
