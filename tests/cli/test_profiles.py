from __future__ import annotations

import json

import pytest


def test_init_writes_what_validate_accepts(fleetctl, home):
    file = home / "mine.yaml"
    assert fleetctl("init", str(file), "--use-case", "chat", "--name", "support").code == 0
    ran = fleetctl("validate", str(file))
    assert ran.code == 0
    assert "fleet support" in ran.out


def test_init_never_overwrites_unasked(fleetctl, home):
    file = home / "mine.yaml"
    file.write_text("precious")
    ran = fleetctl("init", str(file))
    assert (ran.code, file.read_text()) == (3, "precious")
    assert "--force" in ran.err
    assert fleetctl("init", str(file), "--force").code == 0
    assert file.read_text() != "precious"


def test_faults_stand_one_to_a_line_with_file_and_line(fleetctl, home):
    file = home / "bad.yaml"
    text = fleetctl("init", "-", "-u", "chat").out
    file.write_text(text.replace("engine: emulator", "egnine: emulator").replace("p99: 300ms", "p99: 300"))
    ran = fleetctl("validate", str(file))
    assert (ran.code, ran.out) == (3, "")
    faults = [line for line in ran.err.splitlines() if line.startswith(str(file))]
    assert len(faults) >= 2
    assert any("egnine" in fault and "did you mean 'engine'" in fault for fault in faults)


def test_packaged_profiles_are_known_by_name(fleetctl):
    names = fleetctl("init", "-u", "list").out.split()
    assert {"quickstart", "chat", "voice", "rag", "batch", "code-inline", "code-panel", "saas"} <= set(names)
    for name in names:
        assert fleetctl("validate", name).code == 0


def test_an_unknown_profile_names_the_known(fleetctl):
    ran = fleetctl("validate", "quickstrat")
    assert ran.code == 8
    assert "packaged: quickstart" in ran.err
    assert fleetctl("validate", "./nowhere.yaml").code == 8


@pytest.mark.parametrize("key", ["$schema", "properties"])
def test_the_schema_is_json(fleetctl, key):
    assert key in json.loads(fleetctl("schema").out)


def test_a_directory_is_said_to_be_one(fleetctl, home):
    ran = fleetctl("validate", str(home))
    assert (ran.code, "is a directory" in ran.err) == (3, True)
