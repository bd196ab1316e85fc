"""The values of a runbook's parameters, from what somebody typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.model.runbook import Json, Parameter, ParameterType, Runbook
from fleetctl.secret_shapes import is_secret_shaped
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

# What expressions and records hold of a number: CEL's int has 64 bits.
_INT_MAX = 2**63 - 1
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


def given_parameters(runbook: Runbook, given: Mapping[str, str]) -> dict[str, Json]:
    """Return the value of every parameter: as given, else its default. Raises ConfigError with every fault."""
    known = [parameter.name for parameter in runbook.parameters]
    faults = [
        f"runbook {runbook.name!r} has no parameter {name!r}{suggest(name, known)}"
        for name in given
        if name not in known
    ]
    values: dict[str, Json] = {}
    for parameter in runbook.parameters:
        try:
            values[parameter.name] = _value(parameter, given.get(parameter.name))
        except ConfigError as error:
            faults.append(error.message)
    if faults:
        raise ConfigError("\n".join(faults), hint=f"parameters: {', '.join(known) or 'none'}; --param NAME=VALUE")
    return values


def _value(parameter: Parameter, text: str | None) -> Json:
    if text is None and parameter.required:
        raise ConfigError(f"parameter {parameter.name!r} must be given")
    value = parameter.default if text is None else _parsed(parameter, text)
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(map(str, parameter.choices))
        raise ConfigError(f"parameter {parameter.name!r} is one of {choices}, not {value!r}")
    if isinstance(value, str) and is_secret_shaped(value):
        raise ConfigError(f"parameter {parameter.name!r} looks like a secret, and parameters are kept and shown")
    return float(value) if parameter.type is ParameterType.NUMBER else value


def _parsed(parameter: Parameter, text: str) -> Json:
    try:
        match parameter.type:
            case ParameterType.STRING:
                return text
            case ParameterType.INT:
                return _bounded(parameter, int(text))
            case ParameterType.NUMBER:
                return _bounded(parameter, float(text))
            case ParameterType.BOOL:
                return _TRUTHS[text.lower()]
    except (ValueError, KeyError):
        raise ConfigError(f"parameter {parameter.name!r} is of type {parameter.type}, not {text!r}") from None


def _bounded(parameter: Parameter, value: float) -> float:
    """Return a number that expressions can reckon with. Raises ConfigError."""
    if not -_INT_MAX <= value <= _INT_MAX:
        raise ConfigError(f"parameter {parameter.name!r} is out of range: at most {_INT_MAX:,} on either side of zero")
    return value
