"""The one way in for whatever changes a fleet by hand: refused where a Site is read only, and kept in the audit log.

What people, runbooks and the screen do passes through `audited`. A command that calls several operations is one entry;
what the operations within it did is added to that.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING

from fleetctl.errors import (
    ApprovalPendingError,
    CapacityError,
    CredentialsError,
    EngineStartError,
    FleetctlError,
    ProviderError,
    QuotaError,
    ReadOnlyError,
    StateError,
    UnavailableError,
)
from fleetctl.model.audit import AuditRecord, AuditResult
from fleetctl.operations.running_processes import is_gone, this_process
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.printable import printable
from fleetctl.secret_shapes import hidden_in_text, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.operations.site import Site

_log = logging.getLogger("fleetctl.audit")
_SHOWN_MAX = 1_000
_NUMBERS = count()  # orders what one process does in one instant
_TEXT_MAX = 300
_CHANGES_MAX = 50
_ARGUMENTS_MAX = 64
_EXIT_BUG = 70
_EXIT_INTERRUPTED = 130
_EXIT_UNKNOWN = -1
# Something was under way, or may have been, when these came; any other error of ours forbade the whole.
_FAILURES = (ProviderError, UnavailableError, StateError)
# The same by their exit codes, for what is on record. A state that fails has the code of a refused approval, and ends a
# run before it is on record.
_FAILURE_CODES = frozenset(
    error.exit_code
    for error in (ProviderError, CapacityError, QuotaError, CredentialsError, UnavailableError, EngineStartError)
)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One command under way, and what it has changed so far."""

    at: datetime
    key: str
    action: str
    fleet: str = ""
    argv: tuple[str, ...] = ()
    parameters: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    is_begun: bool = False  # an operation of it has: from then on it is an attempt to change something
    is_done: bool = False  # an operation of it has succeeded
    depth: int = 0  # operations of it that are under way
    result: AuditResult | None = None  # of what stands for all of it, such as a runbook's run; None: by how it ends

    def note(self, change: str) -> None:
        """Add what is changed: "short: replicas automatic -> 4"."""
        if len(self.changes) < _CHANGES_MAX:
            self.changes.append(hidden_in_text(printable(change))[:_TEXT_MAX])


_CURRENT: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


@contextmanager
def audited(  # noqa: PLR0913  # the columns of an entry
    site: Site,
    action: str,
    *,
    fleet: str = "",
    argv: tuple[str, ...] = (),
    parameters: Mapping[str, object] | None = None,
    dry_run: bool = False,
    is_command: bool = False,
) -> Iterator[Attempt]:
    """Let something be changed inside, and keep who did it, what it was and what came of it.

    A dry run is neither refused nor kept; one that a command begins with, to show what it would do, is what refuses that
    command. `is_command` marks the face's own frame round operations: by itself it attempts nothing, so that what fails
    before any of them is not kept, unless it is refused for being read only. Raises ReadOnlyError.
    """
    outer = _CURRENT.get()
    if dry_run and outer is None:
        yield _begun(site, action, fleet, (), parameters)
    elif dry_run and outer is not None:
        yield from _rehearsed(outer, fleet, parameters)
    elif outer is not None:
        yield from _joined(site, outer, action, fleet, parameters)
    else:
        yield from _kept(site, _begun(site, action, fleet, argv, parameters), is_command=is_command)


def audit_log(
    site: Site, *, fleet: str | None = None, since: datetime | None = None, who: str = "", limit: int = _SHOWN_MAX
) -> tuple[AuditRecord, ...]:
    """Return the newest entries, oldest first: of one fleet, gone or not, or of all; of whoever has `who` in the name."""
    found = site.store.records(Collection.AUDIT, fleet=fleet, since=since, limit=limit if not who else 20 * limit)
    entries = (_as_it_is(site, each.value_as(AuditRecord)) for each in found)
    return tuple(each for each in entries if not who or _is_of(each, who))[-limit:]


def _as_it_is(site: Site, entry: AuditRecord) -> AuditRecord:
    """Return an entry; one whose process is gone in the middle as killed. Another machine's processes cannot be told."""
    entry = replace(entry, result=_agreeing(entry.result, entry.exit_code))  # an older version wrote them otherwise
    is_own = not site.actor.host or entry.actor.host == site.actor.host
    if entry.result is not AuditResult.STARTED or not is_own or not is_gone(entry.process):
        return entry
    return replace(
        entry, result=AuditResult.KILLED, message="its process ended in the middle; what came of it is not known"
    )


def _is_of(entry: AuditRecord, who: str) -> bool:
    actor = entry.actor
    return who in (actor.user, actor.sudo_user, actor.name, actor.origin, actor.channel.value, str(actor.uid))


def _begun(
    site: Site, action: str, fleet: str, argv: tuple[str, ...], parameters: Mapping[str, object] | None
) -> Attempt:
    now = site.clock.now()
    return Attempt(
        at=now,
        key=f"{now.isoformat()}-{next(_NUMBERS):08d}-{os.urandom(4).hex()}",
        action=action,
        fleet=fleet,
        argv=tuple(printable(each)[:_TEXT_MAX] for each in without_secrets(argv)[:_ARGUMENTS_MAX]),
        parameters=_texts(parameters),
    )


def _rehearsed(outer: Attempt, fleet: str, parameters: Mapping[str, object] | None) -> Iterator[Attempt]:
    """Run an operation's dry run inside a command that goes on to do it: what refuses the one refuses the other."""
    try:
        yield outer
    except FleetctlError:
        outer.fleet = outer.fleet or fleet
        outer.parameters = {**_texts(parameters), **outer.parameters}
        outer.is_begun = True
        raise


def _texts(parameters: Mapping[str, object] | None) -> dict[str, str]:
    return {name: hidden_in_text(printable(str(value)))[:_TEXT_MAX] for name, value in (parameters or {}).items()}


def _joined(
    site: Site, outer: Attempt, action: str, fleet: str, parameters: Mapping[str, object] | None
) -> Iterator[Attempt]:
    """Run an operation inside a command, whose entry is written as soon as anything was changed: it may be killed."""
    refuse_if_readonly(action, is_readonly=site.is_readonly)
    outer.fleet = outer.fleet or fleet
    outer.parameters = {**_texts(parameters), **outer.parameters}
    outer.depth += 1
    _begin(site, outer)
    try:
        yield outer
    finally:
        outer.depth -= 1
    outer.is_done = True
    if outer.depth == 0:
        _keep(site, outer, AuditResult.STARTED, _EXIT_UNKNOWN, "")


def _begin(site: Site, attempt: Attempt) -> None:
    """Write that something is begun, once: who is killed in the middle has left that."""
    if not attempt.is_begun:
        attempt.is_begun = True
        _keep(site, attempt, AuditResult.STARTED, _EXIT_UNKNOWN, "")


def _kept(site: Site, attempt: Attempt, *, is_command: bool) -> Iterator[Attempt]:
    token = _CURRENT.set(attempt)
    try:
        refuse_if_readonly(attempt.action, is_readonly=site.is_readonly)
        if not is_command:
            _begin(site, attempt)
        yield attempt
        attempt.is_done = attempt.is_done or not is_command
    except BaseException as exc:
        result, code, message = _result_of(attempt, exc)
        if attempt.is_begun or isinstance(exc, ReadOnlyError):
            _keep(site, attempt, result, code, message)
        raise
    finally:
        _CURRENT.reset(token)
    if attempt.is_begun or attempt.is_done:
        _keep(site, attempt, AuditResult.OK if attempt.is_done else AuditResult.REFUSED, 0, "")


def _agreeing(result: AuditResult, exit_code: int) -> AuditResult:
    """Return a result that an exit code does not gainsay: whoever looks for what went well finds nothing else."""
    if result is not AuditResult.OK or exit_code == 0:
        return result
    return AuditResult.WAITING if exit_code == ApprovalPendingError.exit_code else AuditResult.FAILED


def _result_of(attempt: Attempt, exc: BaseException) -> tuple[AuditResult, int, str]:
    """Return how a command that ended with an exception ended."""
    done = attempt.result or (AuditResult.OK if attempt.is_done else None)
    if isinstance(exc, FleetctlError):
        refused = AuditResult.FAILED if isinstance(exc, _FAILURES) else AuditResult.REFUSED
        return done or refused, exc.exit_code, exc.message
    if isinstance(exc, KeyboardInterrupt):
        return done or AuditResult.FAILED, _EXIT_INTERRUPTED, "interrupted"
    code = getattr(exc, "exit_code", getattr(exc, "code", None))  # of typer's Exit, of SystemExit
    if isinstance(code, int):
        return done or AuditResult.REFUSED, code, ""
    return done or AuditResult.FAILED, _EXIT_BUG, f"{type(exc).__name__}: {exc}"


def audit_result(exit_code: int, *, was_changed: bool) -> AuditResult:
    """Return what came of several operations that ended badly, with the exit code of the one they ended at.

    Refused: a rule forbade that one before anything was changed. Else it was begun, and failed.
    """
    return AuditResult.FAILED if was_changed or exit_code in _FAILURE_CODES else AuditResult.REFUSED


def refuse_if_readonly(action: str, *, is_readonly: bool) -> None:
    """Raise ReadOnlyError where nothing may be changed."""
    if is_readonly:
        raise ReadOnlyError(
            f"{action} would change something, and this is read only",
            hint="leave out --readonly, and unset FLEETCTL_READONLY",
        )


def _keep(site: Site, attempt: Attempt, result: AuditResult, exit_code: int, message: str) -> None:
    """Write the entry. A state that cannot be written stops no command: a fleet must come down on a full disk too."""
    entry = AuditRecord(
        at=attempt.at,
        actor=site.actor,
        action=attempt.action,
        fleet=attempt.fleet,
        argv=attempt.argv,
        changes=tuple(attempt.changes),
        parameters=attempt.parameters,
        result=_agreeing(result, exit_code),
        exit_code=exit_code,
        message=hidden_in_text(printable(message))[:_TEXT_MAX],
        process=this_process(),
    )
    try:
        # A fleet that nobody knows in a state that is not there is no fleet's affair, and makes no state.
        if not attempt.is_done and not site.store.fleets():
            return
        site.store.put_record(StoredRecord.of(Collection.AUDIT, attempt.key, entry, at=attempt.at, fleet=attempt.fleet))
    except FleetctlError as exc:
        # A command that ended by the same fault says it itself.
        if exc.message not in message:
            _log.warning(
                "%s of %s is not in the audit log: %s", attempt.action, attempt.fleet or "no fleet", exc.message
            )
