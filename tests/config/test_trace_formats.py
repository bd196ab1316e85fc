"""Published traces are read as they are, with this project's columns."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.config.trace import check_ends_by, read_rows
from fleetctl.config.trace_columns import columns_of, read_columns
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:00,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
2024-05-11 00:00:00.017335+00:00,76,15
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5270405,ChatGPT,472,18,490,Conversation log
5270405.5,GPT-4,1087,0,1087,API log
5270445,ChatGPT,417,276,693,Conversation log
"""


def rows_of(path: Path) -> list[tuple[float, int, int]]:
    return [(round(row.arrival_s, 6), row.prompt_tokens, row.output_tokens) for row in read_rows(path)]


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (AZURE_2023, [(0.0, 374, 44), (4.314579, 396, 109), (13.31941, 879, 55)]),
        (AZURE_2024, [(0.0, 2162, 5), (0.99007, 2399, 6), (86400.007405, 76, 15)]),
        (BURSTGPT, [(0.0, 472, 18), (0.5, 1087, 0), (40.0, 417, 276)]),
    ],
)
@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_published_csv_is_read_as_it_is(
    tmp_path: Path, text: str, wanted: list[tuple[float, int, int]], name: str
) -> None:
    path = written(tmp_path / name, text)
    assert rows_of(path) == wanted
    found, by_row = read_columns(path), columns_of(read_rows(path))
    assert (found.arrival_s, found.prompt_tokens) == (by_row.arrival_s, by_row.prompt_tokens)
    assert rows_of(written(tmp_path / f"dos-{name}", "\ufeff" + text.replace("\n", "\r\n"))) == wanted


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_blocks_that_came_before_are_cached_in_traces_of_mooncake_and_qwen(tmp_path: Path, name: str) -> None:
    mooncake = (
        {"timestamp": 27482, "input_length": 1300, "output_length": 52, "hash_ids": [46, 47, 48]},
        {"timestamp": 30482, "input_length": 1500, "output_length": 26, "hash_ids": [46, 47, 99]},
        {"timestamp": 33482, "input_length": 1024, "output_length": 3, "hash_ids": [46, 47]},
    )
    rows = list(read_rows(written(tmp_path / name, lines(*mooncake))))
    assert [row.arrival_s for row in rows] == [0.0, 3.0, 6.0]
    assert [row.cached_prefix_tokens for row in rows] == [0, 1024, 1023], "the last token is always computed"
    assert {row.prefix_group for row in rows} == {"46"}
    qwen = [{**row, "timestamp": 10.5 * at, "chat_id": at, "turn": 1} for at, row in enumerate(mooncake)]
    rows = list(read_rows(written(tmp_path / name, lines(*qwen))))
    assert [row.arrival_s for row in rows] == [0.0, 10.5, 21.0]
    assert [row.cached_prefix_tokens for row in rows] == [0, 32, 32]


def test_a_json_a_line_with_the_projects_own_names_is_read_and_one_without_hashes_says_nothing_of_caches(
    tmp_path: Path,
) -> None:
    own = {"arrival_s": 1.5, "prompt_tokens": 10, "output_tokens": 3, "client": "acme", "stream": False, "lane": None}
    row = next(read_rows(written(tmp_path / "own.jsonl", lines(own))))
    assert (row.arrival_s, row.client, row.stream, row.lane) == (1.5, "acme", False, None)
    bare = {"timestamp": 1, "input_length": 10, "output_length": 3}
    assert next(read_rows(written(tmp_path / "bare.jsonl", lines(bare)))).cached_prefix_tokens is None


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("t.csv", AZURE_2023 + "yesterday,1,1\n", 5, "'yesterday' is no date and time"),
        ("t.csv", AZURE_2023 + "2023-11-16 18:17:00+00:00,1,1\n", 5, "offset-naive"),
        ("t.csv", AZURE_2023 + "2023-11-16 18:15:47,1,1\n", 5, "is before the row above"),
        ("t.csv", BURSTGPT + "nan,ChatGPT,1,1,2,x\n", 5, "Timestamp 'nan' is no number"),
        ("t.csv", "time,in,out\n1,2,3\n", 1, "Azure, BurstGPT, Mooncake and Qwen-Bailian are read as they are published"),
        ("t.jsonl", '{"time": 1}\n', 1, "Azure, BurstGPT, Mooncake and Qwen-Bailian are read as they are published"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 10, "output_length": 3}\n{"timestamp": 2', 2, "is no JSON"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 10, "output_length": 3}\n\n{"timestamp": 2}\n', 3, "input_length is missing"),
        ("t.jsonl", '{"timestamp": 1, "input_length": [1], "output_length": 3}\n', 1, "input_length is no single value"),
        ("t.jsonl", '{"timestamp": 1, "input_length": 1, "output_length": 3, "hash_ids": "1"}\n', 1, "no list of whole numbers"),
    ],
)  # fmt: skip
def test_a_broken_row_is_named_by_its_line(tmp_path: Path, name: str, text: str, line: int, message: str) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(ConfigError) as caught:
        list(read_rows(path))
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_a_torn_archive_is_told_and_a_row_that_is_too_late_for_a_simulation_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "torn.jsonl.gz", lines({"timestamp": 1, "input_length": 1, "output_length": 1}) * 1000)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read_rows(path))
    with pytest.raises(ConfigError, match=r"late\.csv:4"):
        check_ends_by(written(tmp_path / "late.csv", AZURE_2024), 3600.0, rule="no more is simulated")
