"""An integer program as a value: what is asked of whoever solves such. Planning states one where lanes share limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearConstraint:
    """One constraint: `low <= sum of coefficient x variable <= high`."""

    terms: tuple[tuple[int, float], ...]  # (variable's number, coefficient), each variable once
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerProgram:
    """Minimise the sum of cost x variable over whole numbers from 0 to each one's most, under rows."""

    costs: tuple[float, ...]  # a variable each
    most: tuple[float, ...]
    rows: tuple[LinearConstraint, ...]


# Returns each variable's value in an optimal solution; None: no values keep every row.
Solve = Callable[[IntegerProgram], tuple[int, ...] | None]
