"""QuantileSketch keeps its stated error, merges exactly and stays bounded."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.sketch import RELATIVE_ERROR, QuantileSketch
from fleetctl.model.slo import Validity

EVERY = tuple(i / 50 for i in range(51))
durations = st.floats(min_value=2e-6, max_value=9e5, allow_nan=False)


def sketch_of(values: list[float]) -> QuantileSketch:
    sketch = QuantileSketch()
    for value in values:
        sketch.add(value)
    return sketch


@given(st.lists(durations, min_size=1, max_size=200), st.floats(min_value=0, max_value=1))
def test_every_quantile_is_within_the_stated_error(values, q):
    true = sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]
    assert sketch_of(values).quantile(q) == pytest.approx(true, rel=RELATIVE_ERROR * 1.001)


@given(st.lists(durations, max_size=60), st.lists(durations, max_size=60))
def test_merging_equals_adding_everything_to_one(left, right):
    merged = sketch_of(left)
    merged.merge(sketch_of(right))
    whole = sketch_of(left + right)
    if whole.count:
        assert merged.quantiles(EVERY) == whole.quantiles(EVERY)
    assert (merged.count, merged.min_s, merged.max_s) == (whole.count, whole.min_s, whole.max_s)
    assert merged.sum_s == pytest.approx(whole.sum_s)


def test_lognormal_latencies_keep_p99_within_one_percent():
    rng = random.Random(7)
    values = [rng.lognormvariate(-1.5, 1.0) for _ in range(50_000)]
    assert sketch_of(values).quantile(0.99) == pytest.approx(sorted(values)[49_499], rel=0.0101)


def test_memory_is_bounded_whatever_is_added():
    rng = random.Random(1)
    sketch = sketch_of([10 ** rng.uniform(-12, 12) for _ in range(100_000)])
    assert len(set(sketch.quantiles(i / 50_000 for i in range(50_001)))) <= 1_400
    assert sketch.count == 100_000


def test_a_count_adds_as_many_times():
    weighted, single = QuantileSketch(), sketch_of([0.2] * 5)
    weighted.add(0.2, count=5)
    assert (weighted.summary(), weighted.sum_s) == (single.summary(), single.sum_s)


def test_zero_and_out_of_range_values_count_at_the_edges():
    sketch = sketch_of([0.0, 1e9])
    assert sketch.quantile(0) <= 1.01e-6
    assert sketch.quantile(1) == pytest.approx(1e6, rel=0.01)


def test_share_at_most_a_limit():
    sketch = sketch_of([0.1] * 90 + [0.5] * 10)
    assert sketch.count_at_most(0.3) == 90
    assert sketch.count_at_most(0.5) == 100
    assert sketch.count_at_most(0.05) == 0


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="cannot count"):
        QuantileSketch().add(value)


def test_an_empty_sketch_has_no_figures():
    with pytest.raises(ValueError, match="no quantiles"):
        QuantileSketch().quantile(0.5)
    assert QuantileSketch().summary().validity is Validity.NONE
