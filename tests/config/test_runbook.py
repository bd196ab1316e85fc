"""A runbook's YAML: every fault at once, each at its line; the schema says what the parser says."""

from __future__ import annotations

import jsonschema
import pytest
import yaml

from fleetctl.config.runbook import read_runbook, step_arguments
from fleetctl.config.runbook_schema import runbook_schema
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.errors import ConfigError
from fleetctl.model.runbook import ParameterType, Period, Runbook

VALIDATOR = jsonschema.Draft202012Validator(runbook_schema())
TEXT = """\
apiVersion: fleetctl/v1
kind: Runbook
name: pre-warm
params:
  replicas: {type: int, default: 2}
  lane: {default: short, choices: [short, long]}
max_cost: $5
steps:
  - name: warm
    if: lanes.short.ready < params.replicas
    scale: {lane: "${{ params.lane }}", replicas: "${{ params.replicas }}"}
    retry: {attempts: 3}
  - wait: {ready: 2, lane: short}
    timeout: 2m
  - check:
on_failure:
  - scale: {lane: short, replicas: auto}
"""


def runbook(text: str = TEXT) -> Runbook:
    return read_runbook(text.encode(), source="pre-warm.yaml").checked()


def faults(text: str) -> list[str]:
    return [str(fault) for fault in read_runbook(text.encode(), source="pre-warm.yaml").faults]


def test_a_runbook_is_read_with_its_defaults() -> None:
    found = runbook()
    assert [step.name for step in found.steps] == ["warm", "wait-2", "check-3"]
    assert [step.name for step in found.on_failure] == ["undo-scale-1"]
    assert found.period is Period.SCHEDULE
    assert found.parameter("replicas").type is ParameterType.INT
    assert found.max_cost_usd_per_hour == 5.0
    assert found.steps[0].retry.attempts == 3
    assert found.steps[1].timeout_s == 120.0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("max_cost", "max_csot", "pre-warm.yaml:7: max_csot: unknown key (did you mean 'max_cost'?)"),
        ("attempts", "attmpts", "pre-warm.yaml:12: steps[0].retry.attmpts: unknown key (did you mean 'attempts'?)"),
        ("ready: 2", "raedy: 2", "pre-warm.yaml:13: steps[1].wait.raedy: unknown key (did you mean 'ready'?)"),
        ("timeout: 2m", "timeout: 2", "pre-warm.yaml:14: steps[1].timeout: 2 is not a duration"),
        ("default: short", "default: shrt", "pre-warm.yaml:6: params.lane.default: 'shrt' is none of the choices"),
        ("default: 2", "default: two", "pre-warm.yaml:5: params.replicas.default: 'two' is not of type int"),
        ("default: 2", "choices: [1]", "pre-warm.yaml:5: params.replicas: has neither a default nor `required: true`"),
        ("- check:", "- check:\n    thwa:", "pre-warm.yaml:16: steps[2].thwa: unknown key (did you mean 'thaw'?)"),
        ("- check:", "- check:\n    down:", "pre-warm.yaml:15: steps[2]: has check and down; a step has one action"),
        ("- check:", "- name: warm\n    check:", "pre-warm.yaml:15: steps[2]: a step is called 'warm' already"),
        ("max_cost: $5", 'schedule: "61 * * * *"', "pre-warm.yaml:7: schedule: '61 * * * *'"),
        ("max_cost: $5", "time_zone: Europe/Viena", "'Europe/Viena' is no time zone (did you mean 'Europe/Vienna'?)"),
        ("kind: Runbook", "kind: Profile", "pre-warm.yaml:2: kind: must be 'Runbook'"),
        ("replicas: auto", "replicas: many", "pre-warm.yaml:17: on_failure[0].scale.replicas: 'many' is not a number"),
        ("lane: short, replicas", "lane: sk-aaaaaaaaaaaaaaaaaaaaaaaa, replicas", "looks like a secret"),
    ],
)
def test_a_fault_names_its_line_its_key_and_the_nearest_known_one(old: str, new: str, expected: str) -> None:
    assert any(expected in fault for fault in faults(TEXT.replace(old, new, 1))), faults(TEXT.replace(old, new, 1))


def test_every_fault_is_reported_at_once_and_no_secret_is_repeated() -> None:
    found = faults(TEXT.replace("max_cost", "x").replace("timeout: 2m", "timeout: 2").replace("auto", "sk-" + "a" * 30))
    assert len(found) == 4
    assert not any("aaaa" in fault for fault in found if "looks like" in fault)


def test_a_template_is_judged_when_its_value_is_known() -> None:
    with pytest.raises(ConfigError, match="'many' is not a number of replicas"):
        step_arguments("scale", {"lane": "short", "replicas": "many"})
    assert step_arguments("scale", {"lane": "short", "replicas": 4}).replicas == 4


def test_the_schema_admits_what_the_parser_does() -> None:
    VALIDATOR.check_schema(runbook_schema())
    VALIDATOR.validate(yaml.safe_load(TEXT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_cost", "max_csot"),
        ("attempts", "attmpts"),
        ("ready: 2", "raedy: 2"),
        ("timeout: 2m", "timeout: 2"),
        ("- check:", "- check:\n    down:"),
        ("kind: Runbook", "kind: Profile"),
        ("replicas: auto", "replicas: many"),
    ],
)
def test_the_schema_refuses_what_the_parser_refuses_by_form(old: str, new: str) -> None:
    text = TEXT.replace(old, new, 1)
    assert faults(text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_every_action_has_a_noun_with_the_fields_of_its_section() -> None:
    for action, (shape, noun) in ARGUMENTS.items():
        assert set(noun.__dataclass_fields__) == set(shape.model_fields), action
