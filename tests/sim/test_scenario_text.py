from __future__ import annotations

import pytest

from fleetctl.errors import ConfigError
from fleetctl.sim.scenario import Disturbance, DisturbanceKind
from fleetctl.sim.scenario_text import parse_disturbance, read_disturbances

LANES = ("short", "long")


def test_every_key_of_a_disturbance_is_read():
    found = parse_disturbance("slow@5m,lane=long,count=2,factor=3,for=10m,market=spot", lanes=LANES)

    assert found == Disturbance(
        kind=DisturbanceKind.SLOW, at_s=300, for_s=600, lane="long", count=2, factor=3.0, spot_only=True
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kil@5m", "did you mean 'kill'"),
        ("kill", "is no file and no disturbance"),
        ("kill@soon", "soon"),
        ("kill@5m,lane=shirt", "no lane 'shirt'"),
        ("kill@5m,cuont=1", "did you mean 'count'"),
        ("kill@5m,count=0", "'0' is no number above zero"),
        ("slow@5m,factor=nan", "'nan' is no number above zero"),
    ],
)
def test_what_cannot_be_read_says_what_is_wrong(text, message):
    with pytest.raises(ConfigError) as found:
        parse_disturbance(text, lanes=LANES)
    assert message in found.value.message


def test_a_file_has_one_a_line_and_names_the_line_that_is_wrong(tmp_path):
    path = tmp_path / "storm"
    path.write_text("# a storm\nnotice@1m,count=3,factor=120\n\ntake@2m # and one without a word\n")
    assert [each.kind.value for each in read_disturbances(path, lanes=LANES)] == ["notice", "take"]

    path.write_text("take@2m\nflood@3m\n")
    with pytest.raises(ConfigError, match=":2: 'flood@3m' is no disturbance"):
        read_disturbances(path, lanes=LANES)
