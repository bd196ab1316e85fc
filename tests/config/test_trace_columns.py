"""A trace as columns is the trace that the reader of rows finds, however it is written down."""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from typing import TYPE_CHECKING

import pytest

from fleetctl.config.trace import read_rows
from fleetctl.config.trace_columns import columns_of, read_columns
from fleetctl.core.busiest import busiest_rps
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_ROWS = [
    "0,10,5,chat,true,7",
    "0.5,2000,1,,,0",
    "1.25,300,0,batch,false,100",
    "60,10.0,5,chat,true,7",
    "61.5,4,2, long ,TRUE,4",
]
_HEAD = "arrival_s,prompt_tokens,output_tokens,lane,stream,cached_prefix_tokens"


def _written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "\n".join([_HEAD, *_ROWS]) + "\n",
        "\n".join([_HEAD, *_ROWS]),  # no end to the last line
        "\r\n".join([_HEAD, *_ROWS, ""]),
        "\n\n".join([_HEAD, *_ROWS, ""]),  # blank lines
        "\n".join([_HEAD, *_ROWS[:2], *(f'"{row.replace(",", chr(34) + "," + chr(34))}"' for row in _ROWS[2:])]),
    ],
)
def test_columns_are_what_the_reader_of_rows_finds(tmp_path: Path, text: str) -> None:
    path = _written(tmp_path / "trace.csv", text)
    assert_same(path)


def assert_same(path: Path) -> None:
    found, wanted = read_columns(path), columns_of(read_rows(path))
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "cached_tokens", "peak_rps"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert [found.marks[place] for place in found.mark_of] == [wanted.marks[place] for place in wanted.mark_of]


def test_a_trace_of_lengths_alone_is_read_over_many_batches_and_past_a_quote(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [f"{n / 50:.2f},{rng.randint(1, 4000)},{rng.randint(0, 500)}" for n in range(80_000)]
    rows[70_000] = f'"{70_000 / 50:.2f}",7,"8"'
    assert_same(_written(tmp_path / "trace.csv", "\n".join(["arrival_s,prompt_tokens,output_tokens", *rows])))


@pytest.mark.parametrize("row", ["3,5", "3,5,6,7", '"3,5",6'])
def test_a_row_of_another_number_of_cells_is_named_with_its_line(tmp_path: Path, row: str) -> None:
    lines = ["arrival_s,prompt_tokens,output_tokens", "1,2,3", row, "4,5,6"]
    path = _written(tmp_path / "trace.csv", "\n".join(lines))
    with pytest.raises(ConfigError, match=r"trace\.csv:3"):
        read_columns(path)


def test_a_file_is_read_once_by_whatever_path_and_anew_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _written(tmp_path / "trace.csv", "\n".join([_HEAD, *_ROWS]))
    monkeypatch.chdir(tmp_path)
    found = read_columns(path)
    assert read_columns(path.relative_to(tmp_path)) is found
    _written(path, "\n".join([_HEAD, *_ROWS[:3]]))
    os.utime(path, ns=(1, 1))
    assert len(read_columns(path).arrival_s) == 3


def test_the_busiest_minute_is_that_of_every_minute_that_ends_with_a_request() -> None:
    rng = random.Random(7)
    for _ in range(60):
        rate, span = rng.choice((0.01, 0.5, 5.0)), rng.choice((3.0, 60.0, 900.0))
        times = sorted(
            rng.choice((rng.uniform(0, span), float(rng.randint(0, 900)))) for _ in range(int(rate * span) + 1)
        )
        busiest = max(bisect_right(times, at) - bisect_right(times, at - 60.0) for at in times)
        assert busiest_rps(times) == busiest / min(60.0, max(times[-1] - times[0], 1.0))
