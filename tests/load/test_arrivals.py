"""Arrivals come when the trace or the workload says, at the run's own speed."""

from __future__ import annotations

import itertools
import random
import statistics
from dataclasses import replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.dispersion import index_of_dispersion
from fleetctl.errors import ConfigError
from fleetctl.load.bursts import burst_times_s
from fleetctl.load.prompts import Prompts, request_body
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import Arrival, arrivals, check_spec, uncached
from fleetctl.model.profile import Distribution, WorkloadSpec

if TYPE_CHECKING:
    from pathlib import Path

WORKLOAD = WorkloadSpec(
    peak_rps=50, prompt_tokens=Distribution(p50=1000, p99=4000), output_tokens=Distribution(p50=100, p99=500)
)


def trace_file(path: Path, rows: list[str], header: str = "arrival_s,prompt_tokens,output_tokens") -> str:
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def played(spec: LoadSpec, seed: int = 1) -> list[Arrival]:
    return list(arrivals(spec, random.Random(seed)))


def spec_of(**wanted: object) -> LoadSpec:
    return LoadSpec(url="http://127.0.0.1:1", **wanted)  # type: ignore[arg-type]  # each test gives fields by name


def test_a_trace_is_replayed_in_full_at_its_own_times(tmp_path: Path) -> None:
    trace = trace_file(tmp_path / "t.csv", ["0,10,5", "1.5,20,0", "3,30,7"])
    found = played(spec_of(trace=trace))
    assert [(a.at_s, a.prompt_tokens, a.output_tokens) for a in found] == [(0, 10, 5), (1.5, 20, 1), (3, 30, 7)]
    assert all(a.stream and not a.batch for a in found)


def test_speed_offset_and_duration_select_a_window(tmp_path: Path) -> None:
    trace = trace_file(tmp_path / "t.csv", [f"{second},10,5" for second in range(100)])
    found = played(spec_of(trace=trace, speed=2.0, offset_s=10, duration_s=5))
    assert [a.at_s for a in found] == [second / 2 for second in range(10)]


def test_a_short_trace_is_looped_to_fill_the_duration(tmp_path: Path) -> None:
    trace = trace_file(tmp_path / "t.csv", ["0,10,5", "1,20,5", "2,30,5"])
    times = [a.at_s for a in played(spec_of(trace=trace, duration_s=10))]
    assert len(times) >= 9
    assert times == sorted(times)
    assert times[-1] < 10


def test_the_workloads_stream_share_streams_and_batch_requests_do_not() -> None:
    workload = replace(WORKLOAD, stream_share=0.6, batch_share=0.25)
    found = played(spec_of(workload=workload, duration_s=60))
    unhinted = [a.stream for a in found if not a.batch]
    assert statistics.mean(unhinted) == pytest.approx(0.6, abs=0.05)
    assert not any(a.stream for a in found if a.batch)


def test_a_rate_cap_thins_a_fast_trace_and_leaves_a_slow_one(tmp_path: Path) -> None:
    trace = trace_file(tmp_path / "t.csv", [f"{index / 100},10,5" for index in range(6000)])
    assert len(played(spec_of(trace=trace, rps=10))) == pytest.approx(600, rel=0.15)
    assert len(played(spec_of(trace=trace, rps=1000))) == 6000


def test_lane_stream_batch_and_prefix_columns_are_kept(tmp_path: Path) -> None:
    header = "arrival_s,prompt_tokens,output_tokens,lane,stream,batch,prefix_group,cached_prefix_tokens_inf"
    trace = trace_file(tmp_path / "t.csv", ["0,10,5,long,false,yes,g1,8"], header)
    assert played(spec_of(trace=trace)) == [
        Arrival(
            at_s=0,
            prompt_tokens=10,
            output_tokens=5,
            stream=False,
            batch=True,
            lane="long",
            prefix_group="g1",
            prefix_tokens=8,
        )
    ]


def test_what_is_cached_of_prompts_without_a_group_is_the_same_for_all_of_them(tmp_path: Path) -> None:
    header = "arrival_s,prompt_tokens,output_tokens,cached_prefix_tokens_inf"
    trace = trace_file(tmp_path / "t.csv", ["0,400,5,300", "1,400,5,300", "2,400,5,0"], header)
    prompts = Prompts(seed=1, bytes_per_token=4.0)
    first, second, cold = (prompts.text(each) for each in played(spec_of(trace=trace)))
    assert first[:1200] == second[:1200]
    assert first[1200:1264] != second[1200:1264]
    assert cold[:64] != first[:64]


def test_of_a_trace_that_does_not_say_what_is_cached_so_much_is_as_the_workload_says(tmp_path: Path) -> None:
    workload = replace(WORKLOAD, prefix_hit=0.25)
    silent = trace_file(tmp_path / "silent.csv", ["0,400,5", "1,800,5"])
    assert [a.prefix_tokens for a in played(spec_of(trace=silent, workload=workload))] == [100, 200]
    assert [a.prompt_tokens for a in map(uncached, played(spec_of(trace=silent, workload=workload)))] == [300, 600]
    header = "arrival_s,prompt_tokens,output_tokens,cached_prefix_tokens_inf"
    telling = trace_file(tmp_path / "telling.csv", ["0,400,5,300", "1,400,5,0"], header)
    assert [a.prefix_tokens for a in played(spec_of(trace=telling, workload=workload))] == [300, 0]


def test_a_broken_row_ends_the_replay_at_that_row(tmp_path: Path) -> None:
    trace = trace_file(tmp_path / "t.csv", ["0,10,5", "1,ten,5"])
    replay = arrivals(spec_of(trace=trace), random.Random(1))
    assert next(replay).prompt_tokens == 10
    with pytest.raises(ConfigError, match=r"t\.csv:3: prompt_tokens 'ten'"):
        next(replay)


def test_an_offset_beyond_the_trace_and_a_loop_of_one_instant_are_told(tmp_path: Path) -> None:
    trace = trace_file(tmp_path / "t.csv", ["0,10,5"])
    with pytest.raises(ConfigError, match="no requests from 5 s on"):
        played(spec_of(trace=trace, offset_s=5))
    with pytest.raises(ConfigError, match="cannot be looped"):
        played(spec_of(trace=trace, duration_s=5))


def test_generated_load_has_the_workloads_rate_lengths_and_batch_share() -> None:
    workload = WorkloadSpec(
        peak_rps=50,
        prompt_tokens=WORKLOAD.prompt_tokens,
        output_tokens=WORKLOAD.output_tokens,
        batch_share=0.2,
        prefix_hit=0.5,
    )
    found = played(spec_of(workload=workload, duration_s=200))
    assert len(found) == pytest.approx(10_000, rel=0.05)
    prompts = sorted(a.prompt_tokens for a in found)
    assert prompts[len(prompts) // 2] == pytest.approx(1000, rel=0.05)
    assert prompts[int(len(prompts) * 0.99)] == pytest.approx(4000, rel=0.15)
    assert sum(a.batch for a in found) / len(found) == pytest.approx(0.2, abs=0.02)
    assert all(a.stream is not a.batch for a in found)
    assert all(a.prefix_tokens == pytest.approx(a.prompt_tokens / 2, abs=1) for a in found)


@pytest.mark.parametrize("burst_cv", [0.5, 1.0, 3.0])
def test_generated_gaps_have_the_workloads_burstiness(burst_cv: float) -> None:
    workload = WorkloadSpec(
        peak_rps=50,
        prompt_tokens=Distribution(p50=10, p99=10),
        output_tokens=Distribution(p50=5, p99=5),
        burst_cv=burst_cv,
    )
    times = [a.at_s for a in islice(arrivals(spec_of(workload=workload, duration_s=1e6), random.Random(3)), 20_000)]
    gaps = [after - before for before, after in pairwise(times)]
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(burst_cv, rel=0.1)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    spec = spec_of(workload=WORKLOAD, duration_s=5)
    assert played(spec) == played(spec)
    assert played(spec) != played(spec, seed=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"speed": 0.0},
        {"duration_s": -1.0},
        {"rps": 0.0},
        {"offset_s": -1.0},
        {"batch_share": 2.0},
        {"in_flight_max": 0},
    ],
)
def test_what_no_run_can_do_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        check_spec(spec_of(**wrong))


def arrival(prompt_tokens: int, group: str = "", prefix_tokens: int = 0) -> Arrival:
    return Arrival(
        at_s=0,
        prompt_tokens=prompt_tokens,
        output_tokens=5,
        stream=True,
        prefix_group=group,
        prefix_tokens=prefix_tokens,
    )


def test_prompts_have_the_wanted_length_and_no_two_are_alike() -> None:
    prompts = Prompts(seed=1, bytes_per_token=4.0)
    texts = [prompts.text(arrival(250)) for _ in range(200)]
    assert {len(text) for text in texts} == {1000}
    assert len({text[:16] for text in texts}) == 200
    assert len(Prompts(seed=1, bytes_per_token=3.0).text(arrival(400_000))) == 1_200_000


def test_a_prefix_group_shares_its_prefix_and_nothing_more() -> None:
    prompts = Prompts(seed=1, bytes_per_token=4.0)
    opener = prompts.text(arrival(500, "a"))
    first, second = prompts.text(arrival(500, "a", 100)), prompts.text(arrival(600, "a", 200))
    stranger = prompts.text(arrival(500, "b", 100))
    assert first[:400] == second[:400] == opener[:400]
    assert second[:800] == opener[:800]
    assert first[400:420] != second[400:420]
    assert stranger[:400] != first[:400]


def test_bodies_ask_for_an_exact_number_of_tokens() -> None:
    import json

    body = json.loads(request_body(arrival(10), model="tiny", text="hello"))
    assert body["max_tokens"] == 5
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True}
    batch = Arrival(at_s=0, prompt_tokens=10, output_tokens=5, stream=False, batch=True)
    whole = json.loads(request_body(batch, model="tiny", text="hello"))
    assert whole["service_tier"] == "flex"
    assert "stream_options" not in whole


def test_an_unsorted_trace_is_an_error_with_a_duration_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n100,8,8\n1,8,8\n")
    with pytest.raises(ConfigError, match="is before the row above"):
        list(arrivals(spec_of(trace=str(path), duration_s=60.0), random.Random(1)))


@pytest.mark.parametrize(("rate", "short", "long"), [(5.0, 1.0, 1.0), (20.0, 3.0, 8.0), (0.5, 2.0, 4.0)])
def test_arrivals_have_the_dispersion_that_the_workload_says(rate: float, short: float, long: float) -> None:
    end_s = 20_000.0
    times = burst_times_s(rate, dispersion_1s=short, dispersion_10s=long, rng=random.Random(4))
    arrived = list(itertools.takewhile(lambda at_s: at_s < end_s, times))
    assert len(arrived) / end_s == pytest.approx(rate, rel=0.03)
    stretch = [(0.0, end_s, arrived)]
    assert index_of_dispersion(stretch, 1.0) == pytest.approx(short, rel=0.1)
    assert index_of_dispersion(stretch, 10.0) == pytest.approx(long, rel=0.15)


def test_generated_load_is_as_bursty_as_its_dispersion_says() -> None:
    workload = WorkloadSpec(
        peak_rps=20.0, prompt_tokens=Distribution(p50=10, p99=20), output_tokens=Distribution(p50=10, p99=20),
        dispersion_1s=2.0, dispersion_10s=6.0,
    )  # fmt: skip
    spec = LoadSpec(url="", workload=workload, duration_s=6000.0)
    arrived = [row.at_s for row in arrivals(spec, random.Random(1))]
    assert index_of_dispersion([(0.0, 6000.0, arrived)], 10.0) == pytest.approx(6.0, rel=0.2)
