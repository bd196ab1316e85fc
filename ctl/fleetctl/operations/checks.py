"""What a check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.model.preflight import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding, and what to do about it."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def ok(name: str, found: str, advice: str = "") -> Check:
    """Return a check that found nothing to mend."""
    return Check(name=name, verdict=Verdict.OK, found=found, advice=advice)


def warn(name: str, found: str, advice: str) -> Check:
    """Return a check whose finding works, with something to know."""
    return Check(name=name, verdict=Verdict.WARN, found=found, advice=advice)


def fail(name: str, found: str, advice: str) -> Check:
    """Return a check whose finding will not work until mended."""
    return Check(name=name, verdict=Verdict.FAIL, found=found, advice=advice)
