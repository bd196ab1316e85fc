"""docs/json.md is what the types say, and what commands really print has exactly the keys it names."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.json_reference import Key, documents, objects, reference
from fleetctl.cli.load_view import load_view
from fleetctl.cli.output import Format, text_of
from tests.operations.test_verdict import answered, report

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
_PLAIN: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "true or false": bool, "time": str}


def differences(value: Any, name: str, at: str) -> list[str]:
    """Return where an object differs from its documentation: keys too many or missing, and types."""
    keys = {key.name: key for key in objects()[name]}
    given = set(value) - {"apiVersion"}
    found = [f"{at}: {key} is not documented of {name}" for key in sorted(given - keys.keys())]
    found += [f"{at}: {key} of {name} does not exist" for key in sorted(keys.keys() - given)]
    for key in sorted(given & keys.keys()):
        found += _of_key(value[key], keys[key], f"{at}.{key}")
    return found


def _of_key(value: Any, key: Key, at: str) -> list[str]:
    if value is None:
        return [] if key.type.endswith(" or null") else [f"{at} is null, and documented as {key.type}"]
    kind = key.type.removesuffix(" or null")
    if not isinstance(value, _PLAIN.get(kind, object)):
        return [f"{at} is {value!r}, and documented as {key.type}"]
    if kind.startswith("list of "):
        return [found for n, each in enumerate(value) for found in _of_object(each, key, f"{at}[{n}]")]
    if kind.startswith("object of "):
        return [found for n, each in value.items() for found in _of_object(each, key, f"{at}.{n}")]
    return _of_object(value, key, at)


def _of_object(value: Any, key: Key, at: str) -> list[str]:
    if not key.objects or not isinstance(value, dict):
        return []
    return min((differences(value, name, at) for name in key.objects), key=len)


def test_the_page_is_what_the_types_say():
    wanted = "make it anew: python -m fleetctl.cli.json_reference > docs/json.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), wanted


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("ls", ["ls"]), ("status", ["status", "demo"]), ("lanes", ["lanes", "demo"]), ("why", ["why", "short"]), ("why", ["why", "r1"]),
        ("events", ["events", "demo"]), ("doctor", ["doctor"]), ("version", ["version"]), ("validate", ["validate", "chat"]),
        ("scale", ["scale", "short=2", "--dry-run"]), ("shed", ["shed", "short", "--dry-run", "--yes"]), ("gc", ["gc", "-q"]),
        pytest.param("plan", ["plan", "chat"], marks=pytest.mark.slow), pytest.param("plan", ["plan", "chat", "--explain"], marks=pytest.mark.slow),
        ("validate", ["validate", "broken.yaml"]),
    ],
)  # fmt: skip
def test_a_command_prints_exactly_the_documented_keys(fleetctl, dead_fleet, home, monkeypatch, command, argv):
    monkeypatch.chdir(home)
    (home / "broken.yaml").write_text(fleetctl("init", "-", "-u", "chat").out.replace("L40S", "L40"))
    ran = fleetctl(*argv, "-o", "json")
    printed = json.loads(ran.out)
    name, is_list = documents()[command]
    assert isinstance(printed, list) is is_list, ran.err
    values = printed if is_list else [printed]
    assert all(value["apiVersion"] == "fleetctl/v1" for value in values)
    assert [found for value in values for found in differences(value, name, command)] == []
    assert values or command == "gc"


def test_a_load_report_has_exactly_the_documented_keys():
    printed = json.loads(text_of(load_view(report([answered()]), {}), Format.JSON))
    assert differences(printed, "LoadReport", "load") == []


def test_every_command_that_prints_json_is_documented(fleetctl):
    for name in ("init", "up", "down", "drain", "logs", "render", "top"):
        assert name not in documents()
    for name in documents():
        words = itertools.takewhile(str.isalpha, name.split())  # not its options, nor which of its documents
        assert "--output" in fleetctl(*words, "--help").out
