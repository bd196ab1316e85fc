"""The ways a request is not served. Each engine words them with its own status and body."""

from __future__ import annotations

from enum import Enum


class RefusalReason(Enum):
    """Why a request is not served."""

    WRONG_TYPE = "wrong-type"  # its content type is not JSON's
    UNREADABLE = "unreadable"  # the body is no text, or nested too deeply; to TGI also: no JSON
    MALFORMED = "malformed"  # the body is not JSON, or not of the right shape
    INVALID = "invalid"  # a value that is not allowed, or that the emulator does not do
    TOO_LONG = "too-long"
    UNKNOWN_MODEL = "unknown-model"
    NOT_ENABLED = "not-enabled"  # a route that a flag of the engine opens
    NOT_EMULATED = "not-emulated"  # a route that the engine has and the emulator has not
    OVERLOADED = "overloaded"
    SHUTTING_DOWN = "shutting-down"
    ENGINE_FAILED = "engine-failed"
    REFUSING = "refusing"  # a fault


class EngineRefusal(Exception):  # noqa: N818  # it is an answer, not an error of the emulator
    """A request is not served, and why."""

    def __init__(self, reason: RefusalReason, message: str = "", *, param: str | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.param = reason, message, param
