from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.cli.main import main
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import Memory
from fleetctl.model.hazard import OfferingRecord
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.operations.interruption_history import interruptions
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.testing import samples


def test_rates_are_by_zone_type_and_offering(site, fleet, store, clock):
    offering = samples.offering(zone="a", market=Market.SPOT)
    record = InterruptionRecord(
        at=clock.now(), fleet="demo", replica_id="r1", lane="short", node_id="n-1", offering=offering.key, zone="a",
        instance_type=offering.instance_type, market=Market.SPOT, warning_s=120.0,
    )  # fmt: skip
    for number, each in enumerate((record, replace(record, at=clock.now() - timedelta(days=2)))):
        store.put_record(StoredRecord.of(Collection.INTERRUPTIONS, f"k{number}", each, at=each.at, fleet="demo"))
    learned = OfferingRecord(as_of=clock.now(), held_h=10.0, losses=2.0)
    store.put_memory("demo", Memory(offerings={offering.key: learned}))
    found = interruptions(site, "demo")
    assert [(rate.name, rate.interruptions, rate.losses_per_h) for rate in found.zones] == [("a", 2, 0.2)]
    assert not found.zones[0].is_telling  # two losses: 0.036 to 0.63
    assert [rate.name for rate in found.types] == [offering.instance_type]
    assert found.offerings[0].hazard_per_h is not None
    assert len(interruptions(site, "demo", since=clock.now() - timedelta(hours=1)).interruptions) == 1


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"cut": 5, "lost": 2, "in_flight_at_end": 6}, "5, 2 lost"),
        ({"cut": 5, "lost": 0, "in_flight_at_end": 6}, "5, none lost"),
        ({"cut": 0, "lost": 0, "in_flight_at_end": 6}, "0"),
        ({"in_flight_at_end": 6}, "~6 lost"),
        ({"in_flight_at_end": 6, "continues_streams": True}, "~6 continued"),
        ({"in_flight_at_end": 0}, "0"),
        ({"cut": 0, "lost": 0, "ended_at": None}, "-"),
    ],
)
def test_what_was_cut_is_told_as_counted_and_else_as_about(site, fleet, store, capsys, given, shown):
    usual = {"ended_at": samples.EPOCH} | given
    record = InterruptionRecord(
        at=samples.EPOCH, fleet="demo", replica_id="r1", lane="short", node_id="n-1", offering=samples.offering().key,
        zone="a", instance_type="t", market=Market.SPOT, in_flight=777, **usual,
    )  # fmt: skip
    store.put_record(StoredRecord.of(Collection.INTERRUPTIONS, "k", record, at=record.at, fleet="demo"))
    assert main(["interruptions", "demo"], site=site) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "777" in line)
    assert re.split(r"\s{2,}", row.partition("777")[2].strip())[0] == shown


def test_two_notices_in_ten_minutes_tell_no_rate_and_twenty_in_a_day_do(site, fleet, store, clock, capsys):
    young, old = samples.offering(zone="a", market=Market.SPOT), samples.offering(zone="b", market=Market.SPOT)
    learned = {
        young.key: OfferingRecord(as_of=clock.now(), held_h=2 / 6, losses=2.0),
        old.key: OfferingRecord(as_of=clock.now(), held_h=100.0, losses=20.0),
    }
    store.put_memory("demo", Memory(offerings=learned))
    assert main(["interruptions", "demo"], site=site) == 0
    out = capsys.readouterr().out
    assert "too little seen; at most 19" in out
    assert "0.2 (0.13 to 0.29)" in out
    assert " 6 " not in out


def test_a_fleet_without_any_has_none(site, fleet):
    assert interruptions(site, "demo").interruptions == ()
