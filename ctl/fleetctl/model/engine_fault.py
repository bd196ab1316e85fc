"""Why an engine ended, by its own last words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EngineFaultKind(StrEnum):
    """What kept an engine from starting; whether another try may end otherwise depends on it."""

    UNKNOWN = "unknown"  # no words that are known
    ARGUMENTS = "arguments"  # a flag or a setting it does not take
    PROGRAM = "program"  # it is not installed
    VERSION = "version"  # it is another than the profile asks for
    MODEL = "model"  # weights, tokenizer or configuration are missing, broken, or of a model it does not know
    HUB_ACCESS = "hub-access"  # the model hub, or the bucket they are in, gives them to nobody, or not to us
    ACCELERATOR = "accelerator"  # no GPU that it can use
    MEMORY = "memory"  # too little, of the GPU or of the machine
    PORT = "port"  # somebody else listens there
    STORAGE = "storage"  # a disk that is full or may not be written to
    KILLED = "killed"  # by a signal that was none of fleetctl's; the kernel sends one where memory is short

    @property
    def is_final(self) -> bool:
        """Whether the same start fails the same way whenever it is tried."""
        return self in _FINAL

    @property
    def is_final_repeated(self) -> bool:
        """Whether it is when it has failed that way several times: what was in the way may have gone."""
        return self in _FINAL_REPEATED


_FINAL = frozenset(
    {
        EngineFaultKind.ARGUMENTS,
        EngineFaultKind.PROGRAM,
        EngineFaultKind.VERSION,
        EngineFaultKind.MODEL,
        EngineFaultKind.HUB_ACCESS,
        EngineFaultKind.ACCELERATOR,
    }
)
_FINAL_REPEATED = frozenset(
    {EngineFaultKind.MEMORY, EngineFaultKind.PORT, EngineFaultKind.STORAGE, EngineFaultKind.KILLED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFault:
    """What an engine said last that explains its end: one printable line, bounded in length."""

    kind: EngineFaultKind
    line: str
