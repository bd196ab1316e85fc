"""Conditions and values in CEL, the Common Expression Language (cel.dev): typed where a runbook declares types.

By `cel-expr-python`, the binding of the CEL team's own C++ implementation: no loops but over what is there, a budget of
iterations, no side effects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cel_expr_python.cel import Expression

from fleetctl.config.runbook import TEMPLATE
from fleetctl.errors import ConfigError
from fleetctl.model.runbook import Json, Parameter, ParameterType
from fleetctl.runbooks.known_variables import unknown_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cel_expr_python.cel import Env, Value

HINT = "expressions are CEL (cel.dev); docs/runbooks.md lists their variables"
EXPRESSION_KEYS = ("until", "that")  # arguments that are conditions themselves, asked again and again
_FAULT_CHARS_MAX = 300  # the library quotes whole values
_AT = re.compile(r"^\s*\|.*$", re.MULTILINE)
_POSITION = re.compile(r"<input>:(\d+):(\d+): ")


@dataclass(frozen=True, kw_only=True)
class Expressions:
    """Compiles and evaluates the expressions of one runbook."""

    parameters: tuple[Parameter, ...] = ()
    _compiled: dict[str, Expression] = field(default_factory=dict, init=False, repr=False)

    def fault(self, text: str, *, is_condition: bool) -> str:
        """Return what is wrong with an expression as far as can be known before it is evaluated; empty: nothing."""
        try:
            self._check(text, is_condition=is_condition)
        except ConfigError as error:
            return error.message
        return ""

    def holds(self, text: str, variables: Mapping[str, Any]) -> bool:
        """Return whether a condition holds. Raises ConfigError for one that has no answer."""
        value = self.value(text, variables)
        if not isinstance(value, bool):
            raise ConfigError(f"{text!r} is {value!r}, not true or false", hint=HINT)
        return value

    def value(self, text: str, variables: Mapping[str, Any]) -> Json:
        """Return an expression's value as JSON has it. Raises ConfigError for one that has none."""
        from cel_expr_python import cel

        try:
            found: Value = self._expression(text).eval(data=dict(variables))
        except (RuntimeError, TypeError, ValueError) as exc:
            raise ConfigError(f"{text!r}: {_plain(str(exc))}", hint=HINT) from exc
        if found.type() == cel.Type.ERROR:
            raise ConfigError(f"{text!r}: {_plain(str(found.value()))}", hint=HINT)
        return _json(found.plain_value())

    def replaced(self, node: Json, variables: Mapping[str, Any]) -> Json:
        """Return a tree with each ${{ EXPRESSION }} replaced: alone it becomes its value, in a text its text."""
        if isinstance(node, dict):
            return {key: self.replaced(value, variables) for key, value in node.items()}
        if isinstance(node, list):
            return [self.replaced(value, variables) for value in node]
        if not isinstance(node, str):
            return node
        alone = TEMPLATE.fullmatch(node.strip())
        if alone is not None and alone[1].count("${{") == 0:
            return self.value(alone[1], variables)
        return TEMPLATE.sub(lambda found: str(self.value(found[1], variables)), node)

    def arguments(self, written: Mapping[str, Json], variables: Mapping[str, Any]) -> dict[str, Json]:
        """Return a step's arguments with every ${{ EXPRESSION }} replaced; those that are expressions stay as they are."""
        return {
            key: value if key in EXPRESSION_KEYS else self.replaced(value, variables) for key, value in written.items()
        }

    def _check(self, text: str, *, is_condition: bool) -> None:
        from cel_expr_python import cel

        compiled = self._expression(text)
        if is_condition and compiled.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
            raise ConfigError(f"{text!r} is no condition: its value is a {compiled.return_type().name().lower()}")
        if unknown := unknown_field(text):
            raise ConfigError(f"{text!r}: {unknown}")

    def _expression(self, text: str) -> Expression:
        found = self._compiled.get(text)
        if found is None:
            try:
                found = self._compiled[text] = self._environment.compile(text)
            except RuntimeError as exc:
                raise ConfigError(f"{text!r}: {_plain(str(exc))}", hint=HINT) from exc
        return found

    @cached_property
    def _environment(self) -> Env:
        from cel_expr_python import cel

        kinds = {
            ParameterType.STRING: cel.Type.STRING,
            ParameterType.INT: cel.Type.INT,
            ParameterType.NUMBER: cel.Type.DOUBLE,
            ParameterType.BOOL: cel.Type.BOOL,
        }
        values = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
        declared = {
            **dict.fromkeys(("status", "lanes", "steps", "run", "failure"), values),
            "replicas": cel.Type.List(cel.Type.DYN),
            "now": cel.Type.TIMESTAMP,
            **{f"params.{each.name}": kinds[each.type] for each in self.parameters},
        }
        return cel.NewEnv(variables=declared)


def _plain(text: str) -> str:
    """Return an error of the library on one line, without its picture of the place."""
    bare = _AT.sub("", text).strip()
    bare = re.sub(r"^[A-Z_]+: (ERROR: )?", "", bare)
    bare = re.sub(r"\s*\[[A-Z_]+\]$", "", bare).replace(" (in container '')", "")
    line = " ".join(_POSITION.sub(r"line \1, column \2: ", bare).split())
    return line if len(line) <= _FAULT_CHARS_MAX else f"{line[: _FAULT_CHARS_MAX - 3]}..."


def _json(value: Any) -> Json:  # noqa: ANN401  # what CEL's values are in Python
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, dict):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)
