"""The JSON Schema says of a profile what the parser says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from fleetctl.config.schema import json_schema
from fleetctl.config.use_cases import starter, use_cases

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def quickstart() -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(starter("quickstart"))
    return tree


def test_it_is_a_valid_schema_of_its_dialect_and_plain_json() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("use_case", use_cases())
def test_every_packaged_profile_validates(use_case: str) -> None:
    VALIDATOR.validate(yaml.safe_load(starter(use_case)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("providr",), "x"),
        (("engine",), "vlm"),
        (("workload", "peak_rps"), 0),
        (("workload", "batch_share"), "5"),
        (("lanes", "short", "max_wait"), 200),
        (("lanes", "short", "max_wait"), "200"),
        (("lanes", "short", "match", "uncached_prompt_tokens"), "512"),
        (("lanes", "short", "slo", "ttft", "p98"), "1s"),
        (("lanes", "short", "replicas"), 0),
        (("lanes", "short", "replicas", "mx"), 3),
        (("lanes", "Not a name"), {"slo": {"ttft": {"p99": "1s"}}, "max_wait": "1s"}),
        (("lanes",), {}),
        (("capacity", "max_cost_per_hour"), 55),
        (("gateway", "api_keys"), ["the-key-itself"]),
    ],
)
def test_what_the_parser_refuses_by_form_the_schema_refuses_too(path: tuple[str, ...], value: object) -> None:
    tree = quickstart()
    section = tree
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    assert not VALIDATOR.is_valid(tree)


def test_every_key_is_described_and_defaults_are_spelt_with_units() -> None:
    sections = [SCHEMA, *SCHEMA["$defs"].values()]
    assert all("description" in section for section in sections)
    entries = [(key, entry) for section in sections for key, entry in section["properties"].items()]
    assert [key for key, entry in entries if not {"description", "$ref"} & entry.keys()] == []
    assert SCHEMA["$defs"]["ControlShape"]["properties"]["scale_down_after"]["default"] == "2m"
    assert SCHEMA["$defs"]["GatewayShape"]["properties"]["body_max"]["default"] == "16MiB"
