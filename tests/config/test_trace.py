"""Traces are read row by row; what is wrong is told with file and line."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from fleetctl.config.trace import TraceRow, read_rows
from fleetctl.config.trace_summary import summarize
from fleetctl.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def test_rows_are_read_with_optional_columns_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    header = "output_tokens,arrival_s,prompt_tokens,client,prefix_group,cached_prefix_tokens_inf,lane,stream,batch,tier,model\n"
    with gzip.open(path, "wt") as trace:
        trace.write(header + "5,0.5,100,a,7,64,long,false,true,free,gpt-4o\n6,1.0,200,,,,,,,,\n")
    first, second = read_rows(path)
    assert first == TraceRow(
        arrival_s=0.5,
        prompt_tokens=100,
        output_tokens=5,
        client="a",
        tier="free",
        model="gpt-4o",
        prefix_group="7",
        cached_prefix_tokens=64,
        lane="long",
        stream=False,
        batch=True,
    )
    assert second == TraceRow(arrival_s=1.0, prompt_tokens=200, output_tokens=6, cached_prefix_tokens=0)


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("0,1\n", 2, "another number of cells"),
        ("0,1,2,3\n", 2, "another number of cells"),
        ("0,1,2\nx,1,2\n", 3, "arrival_s 'x'"),
        ("nan,1,2\n", 2, "arrival_s 'nan'"),
        ("-1,1,2\n", 2, "arrival_s '-1'"),
        ("0,0,2\n", 2, "prompt_tokens '0'"),
        ("0,1.5,2\n", 2, "prompt_tokens '1.5'"),
        ("0,1,-2\n", 2, "output_tokens '-2'"),
        ("0,1,1e30\n", 2, "output_tokens '1e30'"),
        ("5,1,2\n4,1,2\n", 3, "is before the row above"),
    ],
)
def test_a_broken_row_is_named_by_its_line(body: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + body)
    with pytest.raises(ConfigError) as caught:
        list(read_rows(path))
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert message in caught.value.message


def test_a_missing_column_an_empty_file_and_a_torn_archive_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt\n")
    with pytest.raises(ConfigError, match="no column prompt_tokens, output_tokens"):
        list(read_rows(path))
    path.write_text(HEADER)
    with pytest.raises(ConfigError, match="holds no requests"):
        summarize(path)
    torn = tmp_path / "t.csv.gz"
    torn.write_bytes(gzip.compress((HEADER + "0,1,2\n" * 1000).encode())[:-20])
    with pytest.raises(ConfigError, match="cannot be read as CSV"):
        list(read_rows(torn))
    with pytest.raises(NotFoundError):
        list(read_rows(tmp_path / "none.csv"))


def test_the_summary_finds_the_busiest_minute_and_the_lengths(tmp_path: Path) -> None:
    calm = [f"{second}.0,100,10" for second in range(0, 600, 10)]
    burst = [f"{600 + index / 10},{1000 + index},{50}" for index in range(600)]
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "\n".join([*calm, *burst]) + "\n")
    summary = summarize(path)
    assert summary.requests == 660
    assert summary.peak_rps == pytest.approx(10.0, rel=0.02)
    assert summary.prompt_tokens.p50 == pytest.approx(1270, abs=2)
    assert summary.output_tokens.p99 == 50


def test_one_row_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "3.5,100,0\n")
    summary = summarize(path)
    assert summary.peak_rps == 1.0
    assert summary.output_tokens.p50 == 1.0


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("caf\u00e9,", "client 'caf\u00e9' is no name"),
        ("a" * 129 + ",", "is no name"),
        (",fre", "no tier 'fre' (did you mean 'free'?)"),
    ],
)
def test_a_client_or_tier_that_cannot_be_one_is_named_by_its_line(cells: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"arrival_s,prompt_tokens,output_tokens,client,tier\n0,1,1,acme,\n1,1,1,{cells}\n")
    with pytest.raises(ConfigError) as caught:
        list(read_rows(path, tiers=("premium", "free")))
    assert caught.value.message.startswith(f"{path}:3: ")
    assert message in caught.value.message
