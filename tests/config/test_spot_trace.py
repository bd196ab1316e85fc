from __future__ import annotations

import gzip

import pytest

from fleetctl.config.spot_trace import SpotRow, read_spot_rows
from fleetctl.errors import ConfigError, NotFoundError


def test_rows_come_in_order_of_time_whatever_the_zones(tmp_path):
    path = tmp_path / "spot.csv.gz"
    path.write_bytes(gzip.compress(b"t_s,zone,available\n0,a,4\n50,a,0\n10,b,2\n"))

    assert read_spot_rows(path) == (
        SpotRow(at_s=0, zone="a", available=4),
        SpotRow(at_s=10, zone="b", available=2),
        SpotRow(at_s=50, zone="a", available=0),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_s,zone\n0,a\n", ":1: no column available"),
        ("t_s,zone,available\n0,a,many\n", ":2: available 'many' is no number"),
        ("t_s,zone,available\n0,a,1\n-1,a,1\n", ":3: t_s '-1' is no number"),
        ("t_s,zone,available\n0,a\n", ":2: has another number of cells"),
        ("t_s,zone,available\n", "holds no rows"),
    ],
)
def test_a_broken_trace_is_named_by_file_and_line(tmp_path, text, message):
    path = tmp_path / "spot.csv"
    path.write_text(text)
    with pytest.raises(ConfigError) as found:
        read_spot_rows(path)
    assert str(path) in found.value.message
    assert message in found.value.message


def test_a_trace_that_is_not_there_says_so(tmp_path):
    with pytest.raises(NotFoundError, match="no spot trace"):
        read_spot_rows(tmp_path / "none.csv")
