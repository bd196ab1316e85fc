"""Which of the whole fleets are begun where there is no time for all of them."""

from __future__ import annotations

from pathlib import Path

from tests.time_limit import in_turn

FILES = [Path(name) for name in "abcdef"]
ESSENTIAL = {Path("c"), Path("e")}


def names(turn: int) -> str:
    return "".join(str(path) for path in in_turn([each for path in FILES for each in (path, path)], ESSENTIAL, turn))


def test_essential_files_come_first_and_each_of_the_others_has_its_turn_to() -> None:
    assert names(0) == "ceabdf"
    assert names(3) == "cefabd"
    assert {names(turn)[2] for turn in range(100, 104)} == set("abdf")
    assert all(sorted(names(turn)) == list("abcdef") for turn in range(8))


def test_where_all_are_essential_or_none_is_all_are_begun() -> None:
    assert in_turn(FILES, set(FILES), 7) == FILES
    assert sorted(in_turn(FILES, set(), 7)) == FILES
    assert in_turn([], set(), 7) == []
