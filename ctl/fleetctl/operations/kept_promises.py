"""What a run of `load` or `simulate` says of the promises of tiers and of kinds of workflows, in words; docs/slo.md has the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.promises import compliance_of
from fleetctl.core.slo.wording import describe_promise
from fleetctl.model.verdict import Compliance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleetctl.model.verdict import PromiseFinding

    NamedFindings = tuple[str, Sequence[PromiseFinding]]  # what it is called, and what became of its promises


def missed_promises(parts: Iterable[NamedFindings]) -> tuple[str, ...]:
    """Return "workflows agent: MISSED elapsed P99 ~1.4s of 1s (8 of 8 late or failed)" for each that surely missed one."""
    return tuple(_lines(parts, Compliance.MISSED, "MISSED"))


def undecided_promises(parts: Iterable[NamedFindings]) -> tuple[str, ...]:
    """Return the same of those that more were unfinished of than may be missed."""
    return tuple(
        _lines(
            ((name, [each for each in found if each.undecided > each.allowed * each.samples]) for name, found in parts),
            Compliance.UNDECIDED,
            "undecided",
        )
    )


def compliance_of_parts(parts: Iterable[NamedFindings]) -> Compliance:
    """Return the gravest of all of them."""
    return compliance_of(each for _, found in parts for each in found)


def _lines(parts: Iterable[NamedFindings], compliance: Compliance, word: str) -> Iterator[str]:
    for name, found in parts:
        these = [describe_promise(each) for each in found if each.compliance is compliance]
        if these:
            yield f"{name}: {word} {'; '.join(these)}"
