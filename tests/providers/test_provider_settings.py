"""What a profile says to its provider: checked by the provider's own declaration, a third party's too, and kept while nodes are there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml

from fleetctl import codec
from fleetctl.cli.main import main
from fleetctl.config.profile import profile_hash, read_profile
from fleetctl.config.profile_changes import diff_profiles
from fleetctl.config.schema import json_schema
from fleetctl.config.use_cases import starter
from fleetctl.core.provider_settings import setting_faults
from fleetctl.errors import ConfigError
from fleetctl.model.profile import Profile
from fleetctl.model.provider_setting import ProviderSetting, SettingKind
from fleetctl.operations.explaining import explain_keys
from tests.plan.profiles import planned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PACKAGE = """
from fleetctl.model.provider_setting import ProviderSetting, SettingKind
from fleetctl.ports.provider import ProviderCapabilities

class Zeta:
    name = "zeta"
    declared = (
        ProviderSetting(name="region", description="Where its nodes are.", pattern="[a-z]+-[0-9]", form="a region, such as north-1"),
        ProviderSetting(name="subnets", description="Of its nodes.", kind=SettingKind.TEXTS),
        ProviderSetting(name="disk_gib", description="Of each node.", kind=SettingKind.COUNT, count_min=20, count_max=4000),
        ProviderSetting(name="public", description="Whether they have addresses.", kind=SettingKind.FLAG),
    )
    def __init__(self, given=()):
        self.given, self.capabilities = dict(given), ProviderCapabilities(settings=self)
    def configured(self, given):
        return Zeta(given)
"""


@pytest.fixture
def zeta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a third party's provider, as pip would have unpacked it."""
    (tmp_path / "fleetctl_zeta.py").write_text(PACKAGE)
    named = tmp_path / "fleetctl_zeta-1.0.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: fleetctl-zeta\nVersion: 1.0\n")
    (named / "entry_points.txt").write_text("[fleetctl.provider]\nzeta = fleetctl_zeta:Zeta\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("fleetctl_zeta", None)


def text(provider: str) -> str:
    return starter("quickstart").replace("provider: local", f"provider: {provider}")


def read(provider: str) -> Profile:
    return read_profile(text(provider).encode(), source="fleet.yaml").checked()


def refused(provider: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(provider)
    return caught.value.message


def line_of(provider: str) -> int:
    lines = text(provider).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith("provider:"))


@pytest.mark.usefixtures("zeta")
def test_a_third_partys_settings_are_read_kept_and_shown() -> None:
    given = "{kind: zeta, region: north-1, subnets: [a, b], disk_gib: 200, public: false}"
    profile = read(given)
    assert profile.provider == "zeta"
    assert profile.provider_settings == {"region": "north-1", "subnets": ("a", "b"), "disk_gib": 200, "public": False}
    assert codec.decode(Profile, codec.encode(profile)) == profile
    assert str(profile.provider_choice) == "zeta (disk_gib 200, public false, region north-1, subnets a b)"
    assert profile_hash(profile) != profile_hash(read("zeta"))
    (change,) = diff_profiles(profile, read(given.replace("north-1", "south-2")))
    assert (change.key, change.old, change.new) == ("provider.region", "north-1", "south-2")


@pytest.mark.usefixtures("zeta")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            "{kind: zeta, regoin: north-1}",
            "no such setting (did you mean 'region'?); it takes: disk_gib, public, region",
        ),
        ("{kind: zeta, region: North}", "'North' is not a region, such as north-1"),
        ("{kind: zeta, region: 5}", "must be text, not 5"),
        ("{kind: zeta, subnets: a}", "must be a list of texts, not 'a'"),
        ("{kind: zeta, disk_gib: 5}", "must be 20 to 4000, not 5"),
        ("{kind: zeta, public: 1}", "must be true or false, not 1"),
        ("{kind: zeta, region: }", "must be text, not nothing"),
        ("{kind: local, region: here}", "provider local takes no settings from a profile"),
        ("{kind: zetta}", "'zetta' is not an installed provider (did you mean 'zeta'?)"),
        ("{region: north-1}", "is missing"),
    ],
)
def test_what_a_provider_does_not_take_is_refused_by_file_and_line(given: str, says: str) -> None:
    message = refused(given)
    assert f"fleet.yaml:{line_of(given)}" in message
    assert says in message


@pytest.mark.usefixtures("zeta")
def test_the_schema_has_the_settings_of_each_provider_that_is_installed() -> None:
    schema = json_schema()
    lawful = yaml.safe_load(text("{kind: zeta, region: north-1, disk_gib: 30}"))
    jsonschema.validate(lawful, schema)
    for wrong in ("{kind: zeta, regoin: north-1}", "{kind: zeta, disk_gib: 3}", "{kind: local, region: north-1}"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(text(wrong)), schema)


@pytest.mark.usefixtures("zeta")
def test_a_setting_is_explained_as_its_provider_describes_it() -> None:
    plan = planned(read("local"), trace_rows=None)
    given = "{kind: zeta, disk_gib: 200}"
    reading = read_profile(text(given).encode(), source="fleet.yaml")
    found = {key.key: key for key in explain_keys(reading.checked(), plan, reading.source)}
    disk = found["provider.disk_gib"]
    assert (disk.value, disk.effect, disk.source) == ("200", "Of each node.", f"fleet.yaml:{line_of(given)}")
    assert found["provider.kind"].value == "zeta"


def test_every_setting_of_the_built_in_providers_has_a_form_that_is_checked() -> None:
    declared = (ProviderSetting(name="names", description="", kind=SettingKind.TEXTS, pattern="[a-z]+", form="a name"),)
    assert list(setting_faults("zeta", declared, {"names": ["a", "B"]})) == [("names", "'B' is not a name")]
    assert list(setting_faults("zeta", declared, {"names": ("a", "b")})) == []
    assert list(setting_faults("zeta", declared, {"names": ["a", ""]})) == [("names", "is empty; leave it out")]


def test_validate_names_the_setting_that_was_meant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text("{kind: kubernetes, namespce: llm}"))
    assert main(["validate", str(path)]) != 0
    shown = capsys.readouterr()
    assert "did you mean 'namespace'" in shown.out + shown.err
