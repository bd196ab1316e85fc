"""The requests that cases are made of: as many as asked for, as bursty, in order of time."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, stdev

import pytest

from tests.bench.policies.traffic import arrivals, fixed, real_gaps, steps


@pytest.mark.parametrize("cv", [0.5, 1.0, 4.0, 13.0])
def test_gaps_have_the_burstiness_that_is_asked_for(cv):
    # So bursty gaps are mostly next to nothing, and must not keep the generator for ever.
    times = [row.at_s for row in arrivals(steps((40_000.0, 2.0)), 40_000.0, fixed(10, 10), seed=3, cv=cv)]
    gaps = [after - before for before, after in pairwise(times)]

    assert times == sorted(times)
    assert len(times) / 40_000.0 == pytest.approx(2.0, rel=0.15)
    assert stdev(gaps) / mean(gaps) == pytest.approx(cv, rel=0.15)


def test_the_rate_follows_its_levels():
    times = [row.at_s for row in arrivals(steps((1000.0, 1.0), (1000.0, 5.0)), 2000.0, fixed(10, 10), seed=3)]

    assert sum(at_s < 1000.0 for at_s in times) == pytest.approx(1000, rel=0.1)
    assert sum(at_s >= 1000.0 for at_s in times) == pytest.approx(5000, rel=0.1)


def test_real_gaps_are_a_stretch_of_the_trace_at_the_rate_asked_for_another_by_each_seed(tmp_path):
    trace = tmp_path / "bursty.csv"
    instants = [10.0 * (number // 50) + 0.01 * (number % 50) for number in range(2000)]
    lines = "".join(f"{instant:.2f},100,10\n" for instant in instants)
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{lines}")

    times, others = ([r.at_s for r in real_gaps(str(trace), 4.0, 100.0, fixed(10, 10), seed=seed)] for seed in (1, 2))

    assert times[0] == 0.0
    assert times[-1] == pytest.approx(100.0)
    assert len(times) == 400
    gaps = [after - before for before, after in pairwise(times)]
    assert stdev(gaps) / mean(gaps) > 5.0
    assert others != times
