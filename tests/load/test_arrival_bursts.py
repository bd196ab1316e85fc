"""How bursty arrivals were: one measure for plan, load and simulation, beside what was planned for."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.dispersion import ArrivalCounts, index_of_dispersion, planned_dispersion, pooled_burst
from fleetctl.load.bursts import burst_times_s
from fleetctl.load.report import LoadSpec
from fleetctl.load.worker import LoadRun
from fleetctl.model.traffic import Dispersion
from fleetctl.model.verdict import Compliance
from fleetctl.operations.proving import prove
from fleetctl.views.bursts import burst_line
from tests.load.conftest import answer_well
from tests.operations.test_proving import searched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.load.conftest import Behaviour, Server

    Serve = Callable[[Behaviour], Awaitable[Server]]

PLANNED = Dispersion(over_1s=2.0, over_10s=2.0)


def drawn(rate: float, short: float, long: float, *, end_s: float, seed: int = 1) -> list[float]:
    """Return arrivals as bursty as is said."""
    times = burst_times_s(rate, dispersion_1s=short, dispersion_10s=long, rng=random.Random(seed))
    return list(itertools.takewhile(lambda at_s: at_s < end_s, times))


def counted(times: list[float]) -> ArrivalCounts:
    counts = ArrivalCounts()
    for at_s in random.Random(3).sample(times, len(times)):  # answers, which name a lane, come in any order
        counts.add(at_s)
    return counts


@pytest.mark.parametrize("end_s", [7.0, 99.0, 105.5, 400.0])
def test_counts_by_the_second_come_to_what_the_times_themselves_come_to(end_s: float) -> None:
    times = drawn(9.0, 2.0, 5.0, end_s=500.0)
    burst = counted(times).burst(end_s)
    stretch = [(0.0, end_s, [at_s for at_s in times if at_s < end_s])]
    assert burst.measured.over_1s == index_of_dispersion(stretch, 1.0)
    assert burst.measured.over_10s == index_of_dispersion(stretch, 10.0)
    assert burst.seconds == int(end_s)
    assert not burst.exceeds_plan, "without a plan there is nothing to exceed"


def test_parts_of_a_run_put_together_are_the_whole() -> None:
    times = drawn(6.0, 2.0, 4.0, end_s=300.0)
    whole = counted(times[::2])
    whole.merge(counted(times[1::2]))
    assert whole.burst(300.0) == counted(times).burst(300.0)


def test_traffic_as_planned_is_hardly_ever_said_to_be_burstier_and_burstier_traffic_is() -> None:
    measured = [counted(drawn(10.0, 2.0, 2.0, end_s=240.0, seed=seed)).burst(240.0, PLANNED) for seed in range(200)]
    assert sum(each.exceeds_plan for each in measured) <= 10, (
        "of 200; each of the two indices may err once in a hundred"
    )
    worse = [counted(drawn(10.0, 4.0, 8.0, end_s=240.0, seed=seed)).burst(240.0, PLANNED) for seed in range(40)]
    assert sum(each.exceeds_plan for each in worse) >= 38


def test_several_runs_say_together_what_one_alone_leaves_open() -> None:
    found = [counted(drawn(10.0, 2.6, 2.6, end_s=60.0, seed=seed)).burst(60.0, PLANNED) for seed in range(20)]
    assert sum(each.exceeds_plan for each in found) < 10
    pooled = pooled_burst(found)
    assert pooled.exceeds_plan
    assert pooled.seconds == 1200
    assert pooled.measured.over_1s == pytest.approx(2.6, rel=0.15)
    assert pooled.measured.over_10s is None, "60 s have six windows of ten seconds: too few to tell"


def test_a_lane_is_planned_with_the_workloads_burst_of_which_a_part_of_the_requests_leaves_a_part() -> None:
    workload = searched(rps=12, burst="dispersion_1s: 3\n  dispersion_10s: 5").profile.workload
    assert planned_dispersion(workload, 12.0) == Dispersion(over_1s=3.0, over_10s=5.0)
    assert planned_dispersion(workload, 3.0) == Dispersion(over_1s=1.5, over_10s=2.0)
    times = drawn(12.0, 3.0, 5.0, end_s=20_000.0)
    part = random.Random(5).sample(times, len(times) // 4)
    assert counted(part).burst(20_000.0).measured.over_10s == pytest.approx(2.0, rel=0.1)
    unknown = replace(workload, dispersion_1s=None, dispersion_10s=None)
    assert planned_dispersion(unknown, 12.0) == PLANNED, "who says nothing is planned with twice Poisson's"
    assert planned_dispersion(replace(unknown, trace="t.csv"), 12.0) is None


def test_a_plan_states_the_burst_it_stands_on_by_the_profile_or_by_what_its_proof_counted() -> None:
    stated = prove(searched(rps=12, burst="dispersion_1s: 3\n  dispersion_10s: 5"), None, requests=1500)
    assert stated.lanes[0].arrivals == Dispersion(over_1s=3.0, over_10s=5.0)
    gaps = searched(rps=12, burst="burst_cv: 2.0")
    assert gaps.plan().lanes[0].arrivals == Dispersion(over_1s=4.0, over_10s=4.0), "over long windows"
    (lane,) = prove(gaps, None, requests=1500).lanes
    assert lane.proof is not None
    assert lane.arrivals == Dispersion(over_1s=lane.proof.dispersion_1s, over_10s=lane.proof.dispersion_10s)


async def test_a_load_reports_when_requests_were_due_however_late_they_were_answered(
    serve: Serve, tmp_path: Path
) -> None:
    clumps = [second + 0.001 * number for second in range(0, 12, 4) for number in range(20)]
    trace = tmp_path / "clumps.csv"
    rows = [f"{at_s:.3f},8,2" for at_s in (*clumps, 12.2)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    server = await serve(functools.partial(answer_well, first_s=0.2))
    spec = LoadSpec(
        url=server.url, trace=str(trace), speed=4.0, timeout_s=20.0, planned={"short": PLANNED}, seed=1
    )  # the clumps come a second apart: as even, by the second, as can be
    even = await LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=lambda _: None).run()
    assert even.total.arrivals is not None
    assert even.total.arrivals.measured.over_1s is None, "three seconds are too few to tell"
    report = await LoadRun(replace(spec, speed=1.0), clock=SYSTEM_CLOCK, on_progress=lambda _: None).run()
    (lane,) = report.lanes
    assert lane.arrivals is not None
    expected = index_of_dispersion([(0.0, 12.0, clumps)], 1.0)
    assert expected is not None
    assert expected > 10
    assert lane.arrivals.measured.over_1s == expected
    assert lane.arrivals.planned == PLANNED
    assert lane.arrivals.exceeds_plan
    assert report.total.arrivals is not None
    assert report.total.arrivals.measured == lane.arrivals.measured
    line = burst_line("short", lane.arrivals, Compliance.KEPT)
    assert line.startswith("short: arrivals were burstier than planned")
    assert "planned for 2.0" in line
    assert line.endswith("its SLO was kept all the same")
