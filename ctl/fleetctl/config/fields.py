"""The kinds of values a profile holds, each with its unit, its parser and its pattern for editors."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from fleetctl import units
from fleetctl.core.routing.registry import FILTERS, SCORERS
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.model.profile import ContextCap, Mode, OnDemandPolicy, OnFailure, ReplicaShare, SpotPolicy
from fleetctl.model.serving import PerformanceMode, SpeculationMethod
from fleetctl.spelling import NAME_PATTERN, NAME_RULE, is_name, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from enum import StrEnum

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?\s*(us|ms|s|m|min|h|d|w)\s*)+$"
USD_PATTERN = r"^(\$\s*[0-9]+(\.[0-9]+)?|[0-9]+(\.[0-9]+)?\s*USD)$"
BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$"
# What stands in the schema for the names that only an installation knows.
INSTALLED_ENGINE, PLAYED_ENGINE = "an installed engine", "an engine the emulator can play"
_SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*%$"
_RATE_PATTERN = r"^\s*(<=?)?\s*[0-9]+(\.[0-9]+)?\s*%$"
_RANGE_PATTERN = r"^\s*((<|<=|>=|>)\s*[0-9]+|[0-9]+\s*\.\.\s*[0-9]+)\s*$"
_REFERENCE_PATTERN = r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+|keyring:[^/]+/.+)$"


def shown(value: object) -> str:
    """Return a wrong value as a message shows it: short, and by kind when it is a whole section."""
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _with_unit(parse: Callable[[str], float], what: str, example: str) -> Callable[[object], float]:
    """Return a validator that reads text with a unit and refuses bare numbers, zero and infinity."""

    def validate(value: object) -> float:
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is not {what}; write {example}")  # noqa: TRY004  # pydantic reports ValueError only
        try:
            amount = parse(value)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error
        if not math.isfinite(amount) or amount <= 0:
            raise ValueError(f"must be more than zero, not {value!r}")
        return amount

    return validate


def _whole(validate: Callable[[object], float]) -> Callable[[object], int]:
    """Return the validator with its answer rounded down to a whole number."""
    return lambda value: int(validate(value))


def share_of(value: object) -> float:
    """Read "30%" or 0.3 as 0.3. Raises ValueError for what is no share."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{shown(value)} is not a share; write a percentage like 30%")  # noqa: TRY004  # pydantic reports ValueError only
    if isinstance(value, str):
        try:
            return units.parse_fraction(value)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error
    if not 0 <= value <= 1:  # NaN fails this too
        raise ValueError(f"{shown(value)} is not a share; write a percentage like 30%, or a number from 0 to 1")
    return float(value)


def _allowance(value: object) -> float:
    share = share_of(value)
    if share >= 1.0:
        raise ValueError(f"must be below 100%, or no refusal would ever be a miss, not {shown(value)}")
    return share


def _open_share(value: object) -> float:
    share = share_of(value)
    if not 0 < share < 1:
        raise ValueError(f"must lie between 0% and 100%, both excluded, not {shown(value)}")
    return share


_COUNT_PATTERN = r"\s*(\d{1,5})(\s*replicas?)?\s*"


def _replica_share(value: object) -> ReplicaShare:
    """Read "10%", 2 or "2 replicas"."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
        return ReplicaShare(count=value)
    if isinstance(value, str):
        count = re.fullmatch(_COUNT_PATTERN, value)
        return ReplicaShare(count=int(count[1])) if count is not None else ReplicaShare(share=share_of(value))
    raise ValueError(f"{shown(value)} is neither a count nor a share of replicas; write 1 or 10%")


def token_range(value: object) -> tuple[int | None, int | None]:
    """Read "< 512", "<= 511", ">= 512", "> 511" or "512..4096" as (minimum inclusive, maximum exclusive)."""
    wrong = f'{shown(value)} is not a range of tokens; write "< 512", ">= 512" or "512..4096" (end excluded)'
    if not isinstance(value, str):
        raise ValueError(wrong)  # noqa: TRY004  # pydantic reports ValueError only
    bound = re.fullmatch(r"\s*(<=?|>=?)\s*(\d{1,9})\s*", value)
    if bound is not None:
        edge = int(bound[2]) + (bound[1] in ("<=", ">"))
        if bound[1] in (">", ">="):
            return edge, None
        if edge == 0:
            raise ValueError(f"{value!r} takes no request at all")
        return None, edge
    span = re.fullmatch(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*", value)
    if span is None:
        raise ValueError(wrong)
    if int(span[1]) >= int(span[2]):
        raise ValueError(f"{value!r} takes no request at all: the end must be above the start")
    return int(span[1]), int(span[2])


def rate_below(value: object) -> float:
    """Read "< 1%" or "1%" as a share above 0 and below 1."""
    given = re.sub(r"^\s*<=?\s*", "", value) if isinstance(value, str) else value
    try:
        share = units.parse_fraction(given) if isinstance(given, str) else None
    except ConfigError:
        share = None
    if share is None or not 0.0 < share < 1.0:
        raise ValueError(f'{shown(value)} is not a rate to stay below; write "< 1%" or 1%, above 0% and below 100%')
    return share


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a validator that takes the text that `check` raises no ConfigError for."""

    def validate(value: str) -> str:
        try:
            check(value)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error
        return value

    return validate


def choice(kinds: type[StrEnum], what: str) -> Callable[[object], StrEnum]:
    """Return a validator that reads one of the enum's values, and names the nearest when it is none of them."""
    names = [kind.value for kind in kinds]

    def validate(value: object) -> StrEnum:
        if isinstance(value, str) and value in names:
            return kinds(value)
        near = suggest(value, names) if isinstance(value, str) else ""
        raise ValueError(f"{shown(value)} is not {what}{near}; one of: {', '.join(names)}")

    return validate


def _one_of(names: Collection[str], what: str) -> Callable[[object], str]:
    """Return a validator that reads one of these names, and names the nearest when it is none of them."""

    def validate(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        near = suggest(value, names) if isinstance(value, str) else ""
        raise ValueError(f"{shown(value)} is not {what}{near}; one of: {', '.join(names)}")

    return validate


def _name(value: object) -> str:
    if isinstance(value, str) and is_name(value):
        return value
    raise ValueError(f"{shown(value)} is not a name; {NAME_RULE}")


def is_reference(value: object) -> bool:
    """Whether a value names where a secret lies, and is not the secret."""
    return isinstance(value, str) and re.fullmatch(_REFERENCE_PATTERN, value) is not None


def reference(value: object) -> str:
    """Read where a secret lies. Raises ValueError for what may be the secret itself."""
    if isinstance(value, str) and is_reference(value):
        return value
    # The value is not repeated: it may be the secret itself.
    raise ValueError("must say where the key lies, not be the key; write env:NAME, file:PATH or keyring:SERVICE/USER")


def _text_schema(pattern: str, *examples: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern, "examples": list(examples)}


def choice_schema(kinds: type[StrEnum]) -> dict[str, Any]:
    """Return the JSON Schema of one of the enum's values."""
    return {"type": "string", "enum": [kind.value for kind in kinds]}


SHARE_SCHEMA: dict[str, Any] = {
    "anyOf": [_text_schema(_SHARE_PATTERN, "99.5%", "30%"), {"type": "number", "minimum": 0, "maximum": 1}]
}

Duration = Annotated[
    float,
    BeforeValidator(_with_unit(units.parse_duration_s, "a duration", "a number and a unit: 300ms, 2s, 5m, 4h, 7d")),
    WithJsonSchema(_text_schema(DURATION_PATTERN, "300ms", "2s", "4h", "7d")),
]
Usd = Annotated[
    float,
    BeforeValidator(_with_unit(units.parse_usd, "an amount of money", "dollars: $55 or $1.69")),
    WithJsonSchema(_text_schema(USD_PATTERN, "$55", "$1.69")),
]
Bytes = Annotated[
    int,
    BeforeValidator(_whole(_with_unit(units.parse_bytes, "a size", "a number and a unit: 512KiB, 16MiB"))),
    WithJsonSchema(_text_schema(BYTES_PATTERN, "16MiB")),
]
Share = Annotated[float, BeforeValidator(share_of), WithJsonSchema(SHARE_SCHEMA)]
Allowance = Annotated[float, BeforeValidator(_allowance), WithJsonSchema(SHARE_SCHEMA)]
OpenShare = Annotated[float, BeforeValidator(_open_share), WithJsonSchema(SHARE_SCHEMA)]
RateBelow = Annotated[float, BeforeValidator(rate_below), WithJsonSchema(_text_schema(_RATE_PATTERN, "< 1%", "0.5%"))]
TokenRange = Annotated[
    tuple[int | None, int | None],
    BeforeValidator(token_range),
    WithJsonSchema(_text_schema(_RANGE_PATTERN, "< 512", ">= 512", "512..4096")),
]
Name = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
REFERENCE_SCHEMA = _text_schema(_REFERENCE_PATTERN, "env:FLEETCTL_API_KEY", "file:/run/secrets/gateway-key")
Reference = Annotated[str, BeforeValidator(reference), WithJsonSchema(REFERENCE_SCHEMA)]
# Any name will do here: which engines are installed is looked at with the whole profile (engine_names).
EngineName = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "$comment": INSTALLED_ENGINE})]
PlayedEngineName = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "$comment": PLAYED_ENGINE})]
Number = Annotated[
    Precision, BeforeValidator(choice(Precision, "a precision")), WithJsonSchema(choice_schema(Precision))
]
Spot = Annotated[
    SpotPolicy, BeforeValidator(choice(SpotPolicy, "a spot policy")), WithJsonSchema(choice_schema(SpotPolicy))
]
Guess = Annotated[
    SpeculationMethod,
    BeforeValidator(choice(SpeculationMethod, "a method of speculation")),
    WithJsonSchema(choice_schema(SpeculationMethod)),
]
Performance = Annotated[
    PerformanceMode,
    BeforeValidator(choice(PerformanceMode, "a performance mode")),
    WithJsonSchema(choice_schema(PerformanceMode)),
]
OnDemand = Annotated[
    OnDemandPolicy,
    BeforeValidator(choice(OnDemandPolicy, "an on-demand policy")),
    WithJsonSchema(choice_schema(OnDemandPolicy)),
]
ContextCapChoice = Annotated[
    ContextCap, BeforeValidator(choice(ContextCap, "a context cap")), WithJsonSchema(choice_schema(ContextCap))
]
OnFailureChoice = Annotated[
    OnFailure, BeforeValidator(choice(OnFailure, "an answer to failure")), WithJsonSchema(choice_schema(OnFailure))
]
Replicas = Annotated[
    ReplicaShare,
    BeforeValidator(_replica_share),
    WithJsonSchema(
        {
            "anyOf": [
                _text_schema(r"^\s*[0-9]+(\.[0-9]+)?\s*(%|replicas?)?\s*$", "10%", "1 replica"),
                {"type": "integer", "minimum": 0},
            ]
        }
    ),
]
ScorerName = Annotated[
    str, BeforeValidator(_one_of(SCORERS, "a scorer")), WithJsonSchema({"type": "string", "enum": list(SCORERS)})
]
FilterName = Annotated[
    str, BeforeValidator(_one_of(FILTERS, "a filter")), WithJsonSchema({"type": "string", "enum": list(FILTERS)})
]
Weight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
ControlMode = Annotated[Mode, BeforeValidator(choice(Mode, "a mode")), WithJsonSchema(choice_schema(Mode))]
