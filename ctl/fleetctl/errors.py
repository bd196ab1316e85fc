"""The one error tree, split by who must act.

    FleetctlError
    |- ConfigError               the user: a profile, flag or file is wrong        exit 3
    |  `- ReadOnlyError          it would change something, under --readonly       exit 3
    |- UnconfirmedError          a question with nobody to answer it: pass --yes    exit 2
    |- InfeasiblePlanError       the user's goal: no plan meets the SLO            exit 4
    |- SloBreachError            a run, or a fleet now, is outside its SLO         exit 5
    |- BudgetExceededError       a hard cap (money, nodes) stopped the action      exit 6
    |- LockHeldError             another run owns the fleet                        exit 7
    |  |- FrozenError            somebody has frozen it: thaw it, or override that exit 7
    |  `- DisruptionLimitError   too much was taken out of it lately: wait         exit 7
    |- NotFoundError             no such fleet, lane, replica                      exit 8
    |- UnavailableError          the controller, gateway or an engine is silent    exit 9
    |- EngineStartError          an engine cannot start, however often it is tried  exit 15
    |- ApprovalPendingError      a runbook waits for somebody's yes              exit 16
    |- RolloutFailedError        a revision failed, and the one before takes its place  exit 17
    |- FencedError               this controller's: a newer one has the fleet      exit 14
    |- StateError                the state file cannot be used, or is from the future  exit 1
    |  |- MissingStateError      its file was deleted or moved under a controller   exit 1
    |  |- DamagedStateError      it is broken: restore it, or set it aside            exit 1
    |  |- DiskFullError          no room to write: make some, the rest goes by itself exit 1
    |  `- StateDeniedError       whoever keeps it refuses: also a CredentialsError  exit 13
    `- ProviderError             a provider refused or failed                      exit 10
       |- ThrottledError         asked too often: the same call again, later      exit 10
       |- UnobtainableError      some offerings cannot be had: try the next one    exit 10
       |  |- CapacityError       no stock of a type x zone x market                exit 11
       |  `- QuotaError          an account's limit, named                         exit 12
       |- CredentialsError       stop: no or wrong credentials                     exit 13
       |- AmbiguousOutcomeError  it may have happened: look before retrying        exit 10
       `- EngineMissingError     the engine's program is not where it is to run    exit 10

Anything else is a bug and keeps its traceback (exit 70). Exit 2 is typer's own too: wrong usage, and `plan
--detailed-exitcode` with changes pending.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

KeyPath = tuple[str | int, ...]  # of a profile: ("lanes", "short", "slo")

OTHER_USERS_HINT = "run it as that user, or set XDG_STATE_HOME to a directory of yours"
MAKE_ROOM = "make room on that disk; nothing else is needed"


class FleetctlError(Exception):
    """The root of every error fleetctl raises on purpose.

    `hint` is one sentence that says what to do next; `retryable` says whether the same call may succeed later. `key` is
    the profile's that is at fault, empty where none is. One that `joined` made of several has them in `parts`.
    """

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    _joined: tuple[FleetctlError, ...] = ()

    def __init__(self, message: str, *, hint: str = "", key: KeyPath = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.key = key

    @property
    def parts(self) -> tuple[FleetctlError, ...]:
        """Return the errors this one stands for: itself, or those it was joined of."""
        return self._joined or (self,)


class ConfigError(FleetctlError):
    """A profile, flag or file is wrong; carries every fault found, one line each."""

    exit_code = 3


class ReadOnlyError(ConfigError):
    """The command would change something, and --readonly or FLEETCTL_READONLY forbids that."""


class UnconfirmedError(FleetctlError):
    """A command that asks was run where nobody can answer, and without --yes."""

    exit_code = 2


class InfeasiblePlanError(FleetctlError):
    """No plan meets the SLO; the hint names the nearest feasible one."""

    exit_code = 4


class SloBreachError(FleetctlError):
    """A finished run did not keep its SLO, or a fleet that was checked is in breach of it."""

    exit_code = 5


class BudgetExceededError(FleetctlError):
    """A hard cap on money or nodes stopped the action."""

    exit_code = 6


class LockHeldError(FleetctlError):
    """Another run holds the fleet; the message names it."""

    exit_code = 7
    retryable = True


class FrozenError(LockHeldError):
    """The fleet or the lane is frozen; the message says by whom, why and until when."""

    retryable = False


class DisruptionLimitError(LockHeldError):
    """So much was taken out of the fleet in the last minutes that more may be a mistake."""


class NotFoundError(FleetctlError):
    """The named fleet, lane, replica or file does not exist; the hint lists what does."""

    exit_code = 8


class UnavailableError(FleetctlError):
    """A process that should answer (controller, gateway, engine) did not, before the deadline."""

    exit_code = 9
    retryable = True


class EngineStartError(FleetctlError):
    """An engine ended at its start for a reason that stays: nothing is tried again until `fleetctl up`."""

    exit_code = 15


class ApprovalPendingError(FleetctlError):
    """A runbook stands at an approval, and nobody is here to give it; `fleetctl runbook resume` goes on until it expires."""

    exit_code = 16

    def __init__(self, message: str, *, expires_at: datetime, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.expires_at = expires_at


class RolloutFailedError(FleetctlError):
    """A new revision failed while it was rolled out; the last complete one is put in force again, or nothing goes on."""

    exit_code = 17


class FencedError(FleetctlError):
    """Another controller has taken the fleet over: whoever gets this stops at once, and touches nothing more."""

    exit_code = 14


class StateError(FleetctlError):
    """The state store cannot be used as it is, or was written by a newer fleetctl."""


class MissingStateError(StateError):
    """The state file that is open is not at its path any more: it was deleted or moved, perhaps for a moment."""


class DamagedStateError(StateError):
    """The state file is no database any more, or a broken one."""


class DiskFullError(StateError):
    """There is no room for what should be written; the same write succeeds once there is."""

    retryable = True


def joined(errors: Sequence[FleetctlError]) -> FleetctlError:
    """Return one error for several, of the kind of the first by the order of _PRECEDENCE; for one alone itself."""
    parts = tuple(part for error in errors for part in error.parts)
    if len(parts) == 1:
        return parts[0]
    kind = next((kind for kind in _PRECEDENCE if any(isinstance(part, kind) for part in parts)), FleetctlError)
    hints = dict.fromkeys(part.hint for part in parts if part.hint)
    whole = kind("\n".join(part.message for part in parts), hint="; ".join(hints))
    whole._joined = parts  # noqa: SLF001  # its own module's
    return whole


# What is to be mended first: what cannot be meant, then what is not there, then what cannot be had.
_PRECEDENCE = (ConfigError, NotFoundError, InfeasiblePlanError, BudgetExceededError)


def is_disk_full(fault: OSError) -> bool:
    """Whether something could not be written for lack of room."""
    return fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def state_error(path: object, fault: OSError) -> StateError:
    """Return the error for a file of the state that could not be read or written."""
    if is_disk_full(fault):
        return DiskFullError(f"{path}: disk full ({fault.strerror})", hint=MAKE_ROOM)
    return StateError(f"{path}: {fault.strerror or fault}", hint=OTHER_USERS_HINT)


class ProviderError(FleetctlError):
    """A provider refused or failed."""

    exit_code = 10


class ThrottledError(ProviderError):
    """The provider was asked too often; the same call is made again after `retry_after_s`, and nothing has failed.

    `scope` names who shares the limit ("create", "account"); empty: this operation alone.
    """

    retryable = True

    def __init__(self, message: str, *, retry_after_s: float, scope: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.scope = scope


class UnobtainableError(ProviderError):
    """Some offerings cannot be had for now; the next one may. Empty fields stand for every value.

    `again_s` is how long they are best left alone; None: the provider does not know.
    """

    retryable = True

    def __init__(  # what cannot be had, each part named
        self,
        message: str,
        *,
        instance_type: str = "",
        zone: str = "",
        market: str = "",
        again_s: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.again_s = again_s
        self.instance_type = instance_type
        self.zone = zone
        self.market = market


class CapacityError(UnobtainableError):
    """There is no stock of a type, in a zone, on a market."""

    exit_code = 11


class QuotaError(UnobtainableError):
    """An account limit was hit; `quota` names it, and every lane shares it."""

    exit_code = 12
    retryable = False

    def __init__(  # noqa: PLR0913  # as of what cannot be had
        self,
        message: str,
        *,
        quota: str,
        instance_type: str = "",
        zone: str = "",
        market: str = "",
        again_s: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(
            f"quota {quota}: {message}",
            instance_type=instance_type,
            zone=zone,
            market=market,
            again_s=again_s,
            hint=hint,
        )
        self.quota = quota


class CredentialsError(ProviderError):
    """Credentials are missing, wrong or lack a right; nothing else will work until they are mended."""

    exit_code = 13


class StateDeniedError(StateError, CredentialsError):
    """Whoever keeps the state refuses, for credentials or a right: a command ends, and a controller serves on from memory."""

    exit_code = 13


class AmbiguousOutcomeError(ProviderError):
    """The call may have had its effect; look it up by its token before retrying."""


class EngineMissingError(ProviderError):
    """The program of an engine is not there, or may not be run, where its replica was to be started."""
