"""Conditions in CEL: what is wrong with them is known before a run as far as it can be."""

from __future__ import annotations

import pytest

from fleetctl.config.runbook import read_runbook
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.errors import ConfigError
from fleetctl.model.runbook import Parameter, ParameterType
from fleetctl.runbooks.expressions import Expressions
from fleetctl.runbooks.known_runbooks import lint_faults
from fleetctl.runbooks.step_table import STEPS
from tests.runbooks.conftest import HEAD

EXPRESSIONS = Expressions(parameters=(Parameter(name="replicas", type=ParameterType.INT), Parameter(name="zone")))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("stauts.fleet == 'x'", "undeclared reference to 'stauts.fleet'"),
        ("params.replcas > 1", "undeclared reference to 'params.replcas'"),
        ("params.replicas == 'three'", "no matching overload"),
        ("params.replicas", "is no condition: its value is a int"),
        ("lanes.short.redy > 1", "there is no 'redy' (did you mean 'ready'?) in a lane's status"),
        ('lanes["short"].verdict.complaince == "kept"', "there is no 'complaince' (did you mean 'compliance'?)"),
        ("status.cost_usd > 1.0", "there is no 'cost_usd'"),
        ("replicas[0].record.stat == 'ready'", "there is no 'stat' (did you mean 'state'?)"),
        ("lanes.short.ready >", "Syntax error"),
        ("lanes.map(l, lanes[l].ready).sum() > 1", "undeclared reference to 'sum'"),
    ],
)
def test_a_typo_is_known_before_the_run(text: str, fault: str) -> None:
    assert fault in EXPRESSIONS.fault(text, is_condition=True)


@pytest.mark.parametrize(
    "text",
    [
        "lanes.short.ready >= params.replicas",
        "lanes.all(l, lanes[l].condition.type == 'READY')",
        "status.lanes.exists(l, l.name == params.zone)",
        "'short' in lanes && lanes.short.burn['5m'] > 14.4",
        "replicas.filter(r, r.record.zone == params.zone).size() > 0",
        "now.getHours('Europe/Vienna') < 8 && failure.exit_code == 5",
        "status.reason == 'lanes.short.redy'",
        "lanes.short.verdict.compliance == 'kept'",
    ],
)
def test_what_is_right_has_no_fault(text: str) -> None:
    assert EXPRESSIONS.fault(text, is_condition=True) == ""


def test_a_text_with_an_expression_in_it_has_its_value_there_and_alone_it_is_the_value() -> None:
    values = {"params.replicas": 3, "params.zone": "a"}
    written = {"replicas": "${{ params.replicas + 1 }}", "message": "zone ${{ params.zone }}: ${{ params.replicas }}"}
    assert EXPRESSIONS.arguments(written, values) == {"replicas": 4, "message": "zone a: 3"}


def test_a_figure_nobody_measured_is_an_error_of_the_condition_and_never_a_traceback() -> None:
    with pytest.raises(ConfigError, match="null"):
        EXPRESSIONS.holds("lanes.short.pressure > 0.5", {"lanes": {"short": {"pressure": None}}})


def test_an_expression_that_takes_too_long_is_stopped() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    text = "true"
    for name in "abcdefg":
        text = f"{ten}.all({name}, {text})"
    with pytest.raises(ConfigError, match="budget"):
        EXPRESSIONS.holds(text, {})


def faults(body: str) -> list[str]:
    return [str(fault) for fault in lint_faults(read_runbook((HEAD + body).encode(), source="x.yaml"))]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("steps:\n  - if: lanes.a.redy > 1\n    check:\n", "x.yaml:5: steps[0].if: "),
        ("steps:\n  - wait: {until: 'params.x == 1'}\n", "x.yaml:5: steps[0].wait.until: "),
        ("steps:\n  - if: steps.warm.status == 'ok'\n    check:\n", "no step before it is called 'warm'"),
        ('steps:\n  - scale: {lane: a, replicas: "${{ params.n }}"}\n', "undeclared reference to 'params.n'"),
        ('params: {count: {type: int, default: 1}}\nsteps:\n  - scale: {lane: a, replicas: "${{ params.coutn }}"}\n', "(did you mean 'count'?)"),
        ('steps:\n  - notify: {message: "${{ 1"}\n', "has a ${{ without its }}"),
    ],
)  # fmt: skip
def test_lint_names_the_line_and_the_key_of_an_expression(body: str, expected: str) -> None:
    assert any(expected in fault for fault in faults(body)), faults(body)


def test_every_action_of_the_format_is_in_the_step_table() -> None:
    assert set(STEPS) == set(ARGUMENTS)
