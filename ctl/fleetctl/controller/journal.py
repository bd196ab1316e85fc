"""Writes down what was decided, done and gone wrong; what has not changed is not said again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError
from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.model.reason import ReasonCode

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.controller.write_behind import WriteBehindStore
    from fleetctl.model.decision import AnyAction, Decision
    from fleetctl.model.subject import Subject

_log = logging.getLogger("fleetctl.controller")
# The same error again within this is the same news.
_REPEAT_AFTER_S = 60.0
_RECENT_MAX = 500


class Journal:
    """Writes the fleet's decision journal: actions, failures and notices, each with its reason and inputs."""

    def __init__(self, store: WriteBehindStore, fleet: str, clock: Clock, *, epoch: int = 0) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._epoch = epoch
        self._shadowed: set[str] = set()
        self._reported_s: dict[str, float] = {}

    def decided(self, decision: Decision, actions: list[AnyAction], lanes: dict[Subject, Subject]) -> None:
        """Write the actions about to be taken, and shadow actions that are new. `lanes` is replica -> lane."""
        shadowed = {_news(action) for action in decision.actions if action.shadow}
        fresh = [a for a in decision.actions if a.shadow and _news(a) not in self._shadowed]
        self._shadowed = shadowed
        entries = [self._entry(action, decision, lanes) for action in [*actions, *fresh]]
        for entry in entries:
            _log.info("%s%s %s: %s", "shadow: " if entry.shadow else "", entry.action, entry.subject, entry.reason)
        self._store.append(tuple(entries))

    def note(
        self,
        kind: EntryKind,
        subject: Subject,
        action: str,
        code: ReasonCode,
        reason: str,
        *,
        inputs: dict[str, float | str] | None = None,
    ) -> None:
        """Write one line on what happened."""
        _log.info("%s %s: %s", action, subject, reason)
        self._store.append((self.line(kind, subject, action, code, reason, inputs=inputs or {}),))

    def failed(
        self, subject: Subject, action: str, error: BaseException, *, code: ReasonCode = ReasonCode.FAILED
    ) -> None:
        """Write that something did not work, or was refused, unless that was said a moment ago."""
        reason = f"{error.message}; {error.hint}" if isinstance(error, FleetctlError) and error.hint else str(error)
        key = f"{subject.path}/{action}/{reason}"
        now_s = self._clock.monotonic_s()
        if key in self._reported_s and now_s - self._reported_s[key] < _REPEAT_AFTER_S:
            return
        if len(self._reported_s) >= _RECENT_MAX:
            self._reported_s.clear()
        self._reported_s[key] = now_s
        is_bug = not isinstance(error, FleetctlError | TimeoutError)
        _log.error("%s %s failed: %s", action, subject, reason, exc_info=error if is_bug else None)
        self._store.append(
            (self.line(EntryKind.ERROR, subject, action, code, reason or type(error).__name__, ok=False),)
        )

    def _entry(self, action: AnyAction, decision: Decision, lanes: dict[Subject, Subject]) -> JournalEntry:
        kind, subject = action.entry_kind, action.subject
        is_decided = kind in (EntryKind.DECISION, EntryKind.NOTICE)
        inputs = decision.inputs.get(lanes.get(subject, subject).name, {}) if is_decided else {}
        return self.line(
            kind,
            subject,
            action.name,
            action.code,
            action.reason,
            inputs={**inputs, **action.figures, **_rejected(action)},
            shadow=action.shadow,
        )

    def line(  # noqa: PLR0913  # a journal line's own columns
        self,
        kind: EntryKind,
        subject: Subject,
        action: str,
        code: ReasonCode,
        reason: str,
        *,
        inputs: dict[str, float | str] | None = None,
        shadow: bool = False,
        ok: bool = True,
    ) -> JournalEntry:
        """Return a line of this controller's, not yet written."""
        return JournalEntry(
            seq=0,
            at=self._clock.now(),
            fleet=self._fleet,
            kind=kind,
            subject=subject,
            action=action,
            code=code,
            reason=reason,
            shadow=shadow,
            ok=ok,
            inputs=inputs or {},
            epoch=self._epoch,
        )


def _rejected(action: AnyAction) -> dict[str, float | str]:
    return {"rejected": "; ".join(action.rejected)} if action.rejected else {}


def _news(action: AnyAction) -> str:
    """Return a key that a shadow action keeps from tick to tick, whatever its figures, so that it is journalled once."""
    return f"{action.subject.path}/{action.name}/{action.figures.get('step', '')}"
