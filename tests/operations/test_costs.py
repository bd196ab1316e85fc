"""What fleets cost: the sum of prices by time, whatever it is cut into; and how `cost` tells it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.cli.main import main
from fleetctl.core.costs import accrued, first_hour, with_tokens
from fleetctl.errors import NotFoundError
from fleetctl.model.costs import CostHour, LaneCost
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot, TokenTotals
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.costs import cost_report
from fleetctl.operations.stored_status import stored_status
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.state.sqlite import SqliteStore

START = datetime(2026, 1, 5, 12, 50, tzinfo=UTC)


def gateway(prompt: int, output: int, *, started_at: datetime = START) -> GatewaySnapshot:
    tokens = TokenTotals(prompt=prompt, output=output)
    lane = LaneSnapshot(name="short", in_flight=0, queued=0, oldest_wait_s=0.0, windows=(), tokens=tokens)
    return GatewaySnapshot(
        fleet="demo",
        pid=1,
        started_at=started_at,
        at=started_at,
        table_version=1,
        table_generation=1,
        lanes=(lane,),
        replicas=(),
    )


@given(
    cuts=st.lists(st.integers(1, 9_000), min_size=1, max_size=6),
    born_s=st.integers(-500, 5_000), died_s=st.integers(0, 12_000), price=st.floats(0.1, 60.0), head=st.floats(0.0, 0.1),
)  # fmt: skip
def test_however_often_it_is_counted_it_is_price_times_the_time_it_was_there(cuts, born_s, died_s, price, head):
    born, died = START + timedelta(seconds=born_s), START + timedelta(seconds=born_s + died_s)
    hours, now = [first_hour(START)], START
    for seconds in cuts:
        now += timedelta(seconds=seconds)
        state, changed = (ReplicaState.GONE, died) if died <= now else (ReplicaState.READY, born)
        record = samples.replica(created_at=born, changed_at=changed, state=state, price_usd_per_hour=price)
        known = [record] if born <= now else []
        hours[-1:] = accrued(hours[-1], known, head_usd_per_hour=head, now=now)
    there_s = max(0.0, (min(died, now) - max(born, START)).total_seconds())
    assert sum(sum(h.usd for h in each.lanes.values()) for each in hours) == pytest.approx(price * there_s / 3600)
    assert sum(each.head_usd for each in hours) == pytest.approx(head * (now - START).total_seconds() / 3600)
    assert all(each.start.minute == 0 and each.counted_until - each.start <= timedelta(hours=1) for each in hours)
    assert len({each.key for each in hours}) == len(hours)


def test_a_gateways_tokens_count_once_and_from_zero_where_it_was_restarted():
    hour = with_tokens(first_hour(START), {1: gateway(100, 10)})
    hour = with_tokens(with_tokens(hour, {1: gateway(100, 10)}), {1: gateway(150, 20), 2: gateway(7, 3)})
    hour = with_tokens(hour, {1: gateway(5, 1, started_at=START + timedelta(minutes=1))})
    assert (hour.lanes["short"].prompt_tokens, hour.lanes["short"].output_tokens) == (162, 24)


def test_a_clock_that_goes_back_counts_nothing_twice():
    record = samples.replica(created_at=START, changed_at=START, state=ReplicaState.READY, price_usd_per_hour=6.0)
    there = START + timedelta(minutes=5)
    (hour,) = accrued(first_hour(START), [record], head_usd_per_hour=0.0, now=there)
    (back,) = accrued(hour, [record], head_usd_per_hour=0.0, now=START + timedelta(minutes=2))
    assert back.usd == hour.usd == pytest.approx(0.5)


def counted(store: SqliteStore, fleet: str, start: datetime, usd: float, **lane: int) -> None:
    hour = CostHour(
        start=start, counted_from=start, counted_until=start + timedelta(hours=1), head_usd=0.02,
        lanes={"short": LaneCost(usd=usd, replica_hours=1.0, **lane)},
    )  # fmt: skip
    store.put_record(StoredRecord.of(Collection.COSTS, hour.key, hour, at=start, fleet=fleet))


def test_it_says_what_the_status_says_now_and_sums_up_the_month(site, store, clock):
    capacity = CapacitySpec(max_cost_usd_per_hour=20.0)
    plan = replace(samples.plan(), head_usd_per_hour=0.02)
    desired = store.put_fleet(samples.profile(capacity=capacity), plan, now=clock.now())
    live = samples.replica(state=ReplicaState.READY, price_usd_per_hour=1.861)
    store.begin_replica(live, samples.node_request(), now=clock.now())
    month = clock.now().replace(day=1, hour=0)
    counted(store, "demo", month - timedelta(hours=1), 50.0)
    counted(store, "demo", month, 2.0, prompt_tokens=900_000, output_tokens=100_000)
    (found,) = cost_report(site).fleets
    assert found.usd_per_hour == pytest.approx(stored_status(site, desired).cost_usd_per_hour) == pytest.approx(1.881)
    assert found.max_usd_per_hour == 20.0
    assert found.usd == pytest.approx(2.02)
    assert found.usd_per_1m_tokens == pytest.approx(2.02)
    assert found.lanes[0].usd_per_1m_tokens == pytest.approx(2.0)
    (longer,) = cost_report(site, since=clock.now() - month + timedelta(hours=2)).fleets
    assert longer.usd == pytest.approx(52.04)


def test_a_fleet_that_is_down_is_listed_with_what_it_cost(site, store, clock, capsys):
    store.put_fleet(samples.profile("gone"), samples.plan("gone"), now=clock.now())
    store.begin_replica(samples.replica(fleet="gone"), samples.node_request(fleet="gone"), now=clock.now())
    store.put_replica(samples.replica(fleet="gone", state=ReplicaState.GONE))
    store.set_phase("gone", DesiredPhase.DOWN, now=clock.now())
    store.next_replica_number("gone")
    store.remove_fleet("gone")
    counted(store, "gone", clock.now() - timedelta(hours=3), 4.5)
    assert main(["--readonly", "cost"], site=site) == 0
    out = capsys.readouterr().out
    assert "gone: down, $4.52 since 2026-01-01 00:00 UTC" in out
    assert main(["cost", "gone", "-o", "json"], site=site) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["usd_per_hour"], found["fleets"][0]["is_there"]) == (0.0, False)
    assert main(["cost", "never"], site=site) == NotFoundError("").exit_code
    assert main(["cost", "--since", "1h"], site=site) == 0
    assert "Nothing has cost anything since" in capsys.readouterr().out
