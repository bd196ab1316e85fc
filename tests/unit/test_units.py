from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl import units
from fleetctl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250us", 250e-6), ("300ms", 0.3), ("2s", 2.0), ("1h30m", 5400.0), ("7d", 604800.0), ("4 h", 14400.0)],
)
def test_durations_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert units.parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "300", "ms", "3 parsecs", "-2s", "2s later", "1.2.3s"])
def test_a_duration_without_number_or_unit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        units.parse_duration_s(text)


@given(st.floats(min_value=1e-6, max_value=1e7))
def test_a_formatted_duration_reads_back_within_two_units(seconds: float) -> None:
    back = units.parse_duration_s(units.format_duration(seconds))
    assert back == pytest.approx(seconds, rel=0.05, abs=1e-6)


@pytest.mark.parametrize(("text", "count"), [("24GiB", 24 * 2**30), ("80 GB", 80 * 10**9), ("1B", 1)])
def test_sizes_are_binary_or_decimal_as_written(text: str, count: int) -> None:
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize(("text", "usd"), [("$55", 55.0), ("$1.69", 1.69), ("55 USD", 55.0)])
def test_money_is_dollars(text: str, usd: float) -> None:
    assert units.parse_usd(text) == usd


@pytest.mark.parametrize("text", ["101%", "0.5", "x%"])
def test_a_percentage_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        units.parse_fraction(text)


@given(st.integers(min_value=0, max_value=10000))
def test_fractions_round_trip(basis_points: int) -> None:
    fraction = basis_points / 10000
    assert units.parse_fraction(units.format_fraction(fraction)) == pytest.approx(fraction)
