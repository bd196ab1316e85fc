"""The ways a request is not served. Each engine words them with its own status and body."""

from __future__ import annotations

from enum import Enum


class RefusalReason(Enum):
    """Why a request is not served."""

    MALFORMED = "malformed"  # the body is not JSON, or not of the right shape
    INVALID = "invalid"  # a value that is not allowed, or that the emulator does not do
    TOO_LONG = "too-long"
    UNKNOWN_MODEL = "unknown-model"
    OVERLOADED = "overloaded"
    SHUTTING_DOWN = "shutting-down"
    ENGINE_FAILED = "engine-failed"
    REFUSING = "refusing"  # a fault


class EngineRefusal(Exception):  # noqa: N818  # it is an answer, not an error of the emulator
    """A request is not served, and why."""

    def __init__(self, reason: RefusalReason, message: str = "", *, param: str | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.param = reason, message, param
