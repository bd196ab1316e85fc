"""What undo goes back to, and what is said to whoever waits for a revision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.codec import from_plain, to_plain
from fleetctl.errors import NotFoundError, RolloutFailedError
from fleetctl.model.decision import Memory
from fleetctl.model.rollout import Revision, Rollout
from fleetctl.operations import rollouts
from fleetctl.operations.fleets import status
from fleetctl.operations.readiness import refuse_failed_rollout, refuse_superseded
from fleetctl.ports.records import Collection, revision_key
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.operations.site import Site
    from fleetctl.state.sqlite import SqliteStore


def put(store: SqliteStore, max_nodes: int, *, by: str = "alice") -> None:
    """Put a revision in force that is told by its cap."""
    profile = samples.profile()
    changed = replace(profile, capacity=replace(profile.capacity, max_nodes=max_nodes))
    known = store.fleet("demo")
    why = "" if by or known is None else f"revision {known.revision} failed, {known.revision - 1} takes its place: r5"
    over = known.revision if why and known is not None else None
    store.put_fleet(changed, samples.plan(), now=samples.EPOCH, by=by, why=why, over=over)


def rolled(store: SqliteStore, revision: int, *, stable: int, is_over: bool = True, undoes: int | None = None) -> None:
    """Have the controller know of a rollout between two revisions."""
    rollout = Rollout(
        revision=revision, stable=stable, undoes=undoes, started_at=samples.EPOCH, progressed_at=samples.EPOCH,
        ended_at=samples.EPOCH if is_over else None,
    )  # fmt: skip
    store.put_memory("demo", Memory(rollout=rollout))


def undone(site: Site) -> int:
    earlier, _ = rollouts.undo(site, "demo", dry_run=True)
    return earlier.number


def test_undo_goes_back_to_the_revision_before(site, store):
    put(store, 10)
    put(store, 11)
    rolled(store, 2, stable=1)
    assert undone(site) == 1


def test_undo_after_a_rollback_never_puts_the_revision_that_failed_in_force_again(site, store):
    put(store, 10)
    put(store, 11)
    put(store, 12)
    put(store, 11, by="")
    rolled(store, 4, stable=2, undoes=3)
    assert undone(site) == 1


def test_undo_finds_nothing_where_only_a_revision_that_failed_is_otherwise(site, store):
    put(store, 10)
    put(store, 11)
    put(store, 10, by="")
    rolled(store, 3, stable=1, undoes=2)
    with pytest.raises(NotFoundError, match="no earlier revision"):
        rollouts.undo(site, "demo", dry_run=True)


@pytest.mark.parametrize("is_over", [True, False], ids=["complete", "under way"])
def test_undo_passes_over_a_revision_that_another_took_the_place_of_before_it_was_complete(site, store, is_over):
    put(store, 10)
    put(store, 11)
    put(store, 12)
    rolled(store, 3, stable=1, is_over=is_over)
    assert undone(site) == 1


def test_undo_right_after_an_up_goes_back_to_what_was_complete_then(site, store):
    put(store, 10)
    put(store, 11)
    put(store, 12)
    put(store, 13)
    rolled(store, 3, stable=1)
    assert undone(site) == 3


def test_whoever_waits_for_a_revision_is_told_that_another_took_its_place(site, store):
    put(store, 10)
    put(store, 11)
    refuse_superseded(site, status(site, "demo"), revision=2)
    put(store, 12, by="bob")
    with pytest.raises(RolloutFailedError, match=r"revision 2 is no longer wanted: revision 3 took its place, by bob"):
        refuse_superseded(site, status(site, "demo"), revision=2)


def test_a_rollback_is_told_as_a_failure_and_not_as_a_newer_revision(site, store):
    put(store, 10)
    put(store, 11)
    before = status(site, "demo")
    put(store, 10, by="")
    refuse_superseded(site, before, revision=2)
    with pytest.raises(RolloutFailedError, match=r"revision 2 failed: r5; revision 3 took its place"):
        refuse_superseded(site, status(site, "demo"), revision=2)


def test_the_commands_that_a_rollback_points_to_take_the_fleet_as_they_are_typed(site, store):
    put(store, 10)
    put(store, 11)
    put(store, 10, by="")
    rolled(store, 3, stable=1, undoes=2)
    with pytest.raises(RolloutFailedError) as raised:
        refuse_failed_rollout(status(site, "demo"), revision=2)
    assert raised.value.hint == "see why: fleetctl rollout status demo; fleetctl events demo"


@pytest.mark.parametrize("hold", [rollouts.pause, rollouts.resume])
def test_a_rollout_that_never_was_or_is_over_cannot_be_held(site, store, hold):
    put(store, 10)
    with pytest.raises(NotFoundError, match="no rollout under way"):
        hold(site, "demo")
    put(store, 11)
    rolled(store, 2, stable=1)
    with pytest.raises(NotFoundError, match=r"no rollout under way to (pause|resume): revision 2 is in force"):
        hold(site, "demo")
    desired = store.fleet("demo")
    assert desired is not None
    assert not desired.overrides.is_rollout_paused


def test_what_an_up_has_just_asked_for_can_be_paused_before_it_begins_and_resumed_whatever_has_become_of_it(
    site, store
):
    put(store, 10)
    rolled(store, 1, stable=1)
    put(store, 11)
    assert rollouts.pause(site, "demo").is_paused
    rolled(store, 2, stable=1)
    assert not rollouts.resume(site, "demo").is_paused


def test_a_rollback_that_was_recorded_before_it_named_what_failed_is_known_as_one(store):
    put(store, 10)
    put(store, 11)
    why = "revision 2 failed, 1 takes its place: r5"
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH, why=why, over=2)
    kept = store.find_record(Collection.ROLLOUTS, revision_key(3), fleet="demo")
    assert kept is not None
    revision = kept.value_as(Revision)
    assert (revision.undoes, revision.failed) == (2, 2)
    earlier = from_plain(Revision, {key: value for key, value in to_plain(revision).items() if key != "undoes"})
    assert earlier.failed == 2
    assert replace(earlier, by="alice").failed is None


def test_a_revision_that_a_person_asked_for_is_no_rollback_whatever_its_reason_says(store):
    put(store, 10)
    store.put_fleet(
        samples.profile(), samples.plan(), now=samples.EPOCH, by="", why="revision 1 failed, says the night shift"
    )
    kept = store.find_record(Collection.ROLLOUTS, revision_key(2), fleet="demo")
    assert kept is not None
    assert kept.value_as(Revision).failed is None
