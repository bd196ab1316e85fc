from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleetctl.telemetry.exposition import parse

PAGE = (Path(__file__).parent / "pages" / "vllm-0.32.txt").read_text()


def test_every_sample_of_a_real_page_reads_as_the_reference_parser_reads_it() -> None:
    page = parse(PAGE)
    checked = 0
    for family in text_string_to_metric_families(PAGE):
        for name in {sample.name for sample in family.samples}:
            expected = [(sample.labels, sample.value) for sample in family.samples if sample.name == name]
            assert [(sample.labels, sample.value) for sample in page.samples(name)] == expected
            checked += 1
    assert checked > 100


@given(
    st.lists(
        st.tuples(st.text(max_size=8), st.floats(allow_nan=False)), min_size=1, max_size=5, unique_by=lambda p: p[0]
    ),
    st.floats(allow_nan=False),
)
def test_any_label_and_value_comes_back(samples: list[tuple[str, float]], other: float) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("queue_size", "Help with a # and {braces}.", ["model"], registry=registry)
    for label, value in samples:
        gauge.labels(label).set(value)
    Gauge("queue_size_max", "A longer name with the same beginning.", registry=registry).set(other)
    Counter("tokens", "Tokens.", registry=registry).inc(3)

    page = parse(generate_latest(registry).decode())

    assert [(sample.labels["model"], sample.value) for sample in page.samples("queue_size")] == samples
    assert page.total("queue_size_max") == pytest.approx(other, nan_ok=True) or math.isinf(other)
    assert page.total("tokens_total") == 3


def test_a_missing_series_is_missing_and_not_zero() -> None:
    assert parse("other 1\n").total("wanted") is None
    assert parse("").highest("wanted") is None


def test_the_first_spelling_present_counts() -> None:
    page = parse('old 7\nnew{a="1"} 1\nnew{a="2"} 2\n')
    assert page.total("new", "old") == 3
    assert page.total("newest", "old") == 7
    assert page.highest("new") == 2


@pytest.mark.parametrize(
    "line",
    ["wanted NaN", "wanted +Inf", "wanted", "wanted ", 'wanted{a="1} 3', "wanted twelve", "wanted 1_000", "wanted{ 3"],
)
def test_a_value_nobody_can_use_reads_as_nan_even_beside_good_ones(line: str) -> None:
    page = parse(f'wanted{{a="good"}} 1\n{line}\nother 2\n')
    assert math.isnan(page.total("wanted") or 0.0)
    assert math.isnan(page.highest("wanted") or 0.0)
    assert page.total("other") == 2


def test_a_page_cut_off_in_the_middle_of_a_number_is_not_believed() -> None:
    whole = 'wanted{a="1"} 123\n'
    assert parse(whole).total("wanted") == 123
    for length in range(len("wanted"), len(whole)):
        assert math.isnan(parse(whole[:length]).total("wanted") or 0.0), whole[:length]


def test_timestamps_exemplars_and_odd_spaces_are_read_past() -> None:
    page = parse('wanted { a = "x y" , b="}\\"" , } 5 1700000000000\nwanted 2 # {trace="1"} 0.5\r\n')
    assert [sample.value for sample in page.samples("wanted")] == [5, 2]
    assert page.samples("wanted")[0].labels == {"a": "x y", "b": '}"'}


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    page = parse("wanted{" + 'a="1"   ,   ' * 20_000 + "!} 1\n" + "wanted{" + 'a="1"   ' * 20_000 + "} 1\n")
    assert [math.isnan(sample.value) for sample in page.samples("wanted")] == [True, True]
