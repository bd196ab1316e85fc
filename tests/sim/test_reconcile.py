"""Seeded lives of a toy fleet: full of misfortune, then calm, then down. A failure names its seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.replica import ReplicaState
from tests.sim.toy import Toy

SEEDS = range(16)
ROOT = Path(__file__).resolve().parents[2]


def live_a_life(seed: int) -> Toy:
    """Ten minutes of misfortune, five of calm, then down."""
    toy = Toy(seed)
    try:
        for _ in range(600):
            toy.step()
        toy.is_calm = True
        toy.listing_out_until = 0.0
        toy.load = {}
        for node in toy.nodes.values():
            node.unhealthy_until_s = 0.0
        toy.desired = replace(toy.desired, overrides=Overrides(replicas={"short": 2, "long": 2, "batch": 1}))
        for _ in range(300):
            toy.step()
        check_it_is_whole(toy)
        toy.desired = replace(toy.desired, phase=DesiredPhase.DOWN)
        for _ in range(90):
            toy.step()
            if toy.is_down:
                break
        check_nothing_is_left(toy)
    except AssertionError as exc:
        last = "\n".join(toy.log[-40:])
        raise AssertionError(f"seed {seed}, second {toy.now_s:.0f}: {exc}\n{last}") from exc
    return toy


def check_it_is_whole(toy: Toy) -> None:
    ready = [record.lane for record in toy.in_rotation()]
    assert {lane: ready.count(lane) for lane in ("short", "long", "batch")} == {"short": 2, "long": 2, "batch": 1}
    assert len(toy.live()) == 5
    assert {node.replica_id for node in toy.living_nodes()} == {record.id for record in toy.live()}
    assert toy.gateway_up_at is not None


def check_nothing_is_left(toy: Toy) -> None:
    assert toy.is_down
    assert toy.living_nodes() == []
    assert toy.gateway_up_at is None
    assert all(record.state in (ReplicaState.GONE, ReplicaState.FAILED) for record in toy.records.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_survives_every_misfortune_and_leaves_nothing(seed):
    known_life(seed)


def fingerprint(seed: int) -> str:
    return hashlib.sha256("\n".join(live_a_life(seed).log).encode()).hexdigest()


@cache
def known_life(seed: int) -> str:
    """A life's fingerprint, and it was lived once."""
    return fingerprint(seed)


def test_one_seed_lives_one_life():
    assert known_life(3) == fingerprint(3)
    assert known_life(3) != known_life(4)


def test_a_life_does_not_depend_on_the_hash_seed():
    code = "from tests.sim.test_reconcile import fingerprint; print(fingerprint(3))"
    lives = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert lives[0] == lives[1] == known_life(3) + "\n"
