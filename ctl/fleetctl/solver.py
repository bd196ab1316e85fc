"""Solves integer programs with HiGHS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import InfeasiblePlanError

if TYPE_CHECKING:
    from fleetctl.core.plan.program import IntegerProgram

SECONDS_MAX = 20.0


def solve(program: IntegerProgram) -> tuple[int, ...] | None:
    """Return each variable's value in an optimal solution, or None where there is none.

    Raises InfeasiblePlanError where none was found to be optimal within `SECONDS_MAX`.
    """
    import highspy  # numpy comes with it: only a plan whose limits bind pays for both

    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 1e-7)
    highs.setOptionValue("random_seed", 0)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", SECONDS_MAX)
    for cost, most in zip(program.costs, program.most, strict=True):
        highs.addCol(cost, 0.0, most, 0, [], [])
        highs.changeColIntegrality(highs.getNumCol() - 1, highspy.HighsVarType.kInteger)
    for row in program.rows:
        highs.addRow(row.low, row.high, len(row.terms), [v for v, _ in row.terms], [c for _, c in row.terms])
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise InfeasiblePlanError(
            f"no optimal mix was found within {SECONDS_MAX:g} s ({highs.modelStatusToString(status)})",
            hint="raise capacity.max_nodes, max_cost_per_hour or limits, or allow fewer gpus",
            key=("capacity",),
        )
    return tuple(round(value) for value in highs.getSolution().col_value)
