"""What is kept by identity is looked up by which objects are given, and never mistaken for another's."""

from __future__ import annotations

from fleetctl.core.identity_cache import cached_by_identity


def test_the_same_objects_are_computed_once_and_equal_ones_anew() -> None:
    calls: list[list[int]] = []

    @cached_by_identity(4)
    def total(numbers: list[int]) -> int:
        calls.append(numbers)
        return sum(numbers)

    one, other = [1, 2], [1, 2]
    assert [total(one), total(one), total(other)] == [3, 3, 3]
    assert [id(each) for each in calls] == [id(one), id(other)]


def test_a_bounded_number_is_kept_and_no_object_is_taken_for_one_that_is_gone() -> None:
    @cached_by_identity(2)
    def total(numbers: list[int], *, more: int = 0) -> int:
        return sum(numbers) + more

    # Each list is given up at once, so that its memory, and with it its id, would be used again.
    assert [total([number]) for number in range(50)] == list(range(50))
    kept = [5]
    assert [total(kept), total(kept, more=1), total(kept)] == [5, 6, 5]
