"""Logs of instances that have ended: what their script ships, run as it stands, and what is read of it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ProviderError
from fleetctl.model.log import LogChunk
from fleetctl.model.shared import SharedResource
from fleetctl.testing.samples import node_request
from fleetctl_aws import tags
from fleetctl_aws.connection import AwsConnection
from fleetctl_aws.settings import AwsSettings
from fleetctl_aws.shipped_logs import ShippedLogs
from fleetctl_aws.user_data import boot_files
from tests.aws.provider.test_orders import ORDER
from tests.providers.contract.cases import Account

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.aws.provider.conftest import Rented

BUCKET, OWNER, FLEET = "fleetctl-tests-logs", "o", "demo"
PIECE = 2**20
PLACE = f"engines/{tags.fleet_name(OWNER, FLEET)}"
GROUP = SharedResource(token="t", owner=OWNER, fleet=FLEET, kind="logs")  # noqa: S106  # of a resource


@pytest.fixture
def shipped(rented: Rented) -> ShippedLogs:
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    settings = rented.settings(logs=f"s3://{BUCKET}/engines")
    return ShippedLogs(AwsConnection(settings), settings)


def put(rented: Rented, key: str, text: bytes) -> None:
    rented.cloud.boto("s3").put_object(Bucket=BUCKET, Key=f"{PLACE}/{key}", Body=gzip.compress(text) if text else b"")


async def read(shipped: ShippedLogs, replica: str, *, after: int | None = None, most: int = 10**7) -> LogChunk:
    return await shipped.read(OWNER, FLEET, replica, after=after, bytes_max=most)


async def test_pieces_are_one_log_and_what_is_not_there_is_named(shipped: ShippedLogs, rented: Rented) -> None:
    first, third = b"a" * (PIECE - 2) + b"b\n", b"the end\n"
    put(rented, f"r1/i-1-0/{0:015}.gz", first)
    put(rented, f"r1/i-1-0/{2 * PIECE:015}.gz", third)
    put(rented, f"r1/i-1-0/{PIECE:015}.gz", b"")
    end = 2 * PIECE + len(third)
    assert await read(shipped, "r1", most=4) == LogChunk(text="end\n", end=end)
    assert await read(shipped, "r1", after=2 * PIECE + 4) == LogChunk(text="end\n", end=end)
    gap = f"\n[... {PIECE:,} bytes were not kept ...]\n"
    assert await read(shipped, "r1", after=PIECE - 2) == LogChunk(text=f"b\n{gap}the end\n", end=end)
    assert await read(shipped, "r1", after=PIECE - 2, most=1) == LogChunk(text="b", end=PIECE - 1)
    assert await read(shipped, "r1", after=end + 5) == LogChunk(text="", end=end)
    assert await read(shipped, "r2", after=7) == LogChunk(text="", end=7)


async def test_a_fleets_logs_go_with_it_unless_they_are_to_be_kept(shipped: ShippedLogs, rented: Rented) -> None:
    put(rented, f"r1/i-1-0/{0:015}.gz", b"one\n")
    s3 = rented.cloud.boto("s3")
    s3.put_object(Bucket=BUCKET, Key="engines/others/x", Body=b"theirs")
    kept = rented.settings(logs=f"s3://{BUCKET}/engines", logs_after_down="keep")
    await ShippedLogs(AwsConnection(kept), kept).teardown(GROUP)
    assert (await read(shipped, "r1")).text == "one\n"
    await shipped.teardown(GROUP)
    assert [each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["engines/others/x"]


async def test_it_stands_in_for_an_instance_that_is_not_reached_and_says_so(rented: Rented) -> None:
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    provider = rented.provider(logs=f"s3://{BUCKET}/engines")
    account = Account(provider, SYSTEM_CLOCK, "owner-of-logs", defaults=ORDER)
    await account.prepare()
    node = await account.node("t-1")
    logs = provider.capabilities.logs
    assert logs is not None
    rented.cloud.fault("error", action="SendCommand", code="InvalidInstanceId", times=None)
    wanted: Any = {"owner": node.owner, "fleet": node.fleet, "replica_id": node.replica_id, "bytes_max": 1000}
    with pytest.raises(ProviderError, match="does not reach"):
        await logs.read_log(**wanted, after=None)
    key = f"engines/{tags.fleet_name(node.owner, node.fleet)}/{node.replica_id}/{node.id}-0/{0:015}.gz"
    rented.cloud.boto("s3").put_object(Bucket=BUCKET, Key=key, Body=gzip.compress(b"one\n"))
    found = await logs.read_log(**wanted, after=None)
    assert found.text.startswith("one\n[... as shipped a while ago, since Systems Manager does not reach")
    assert found.end == 4


class Metadata(BaseHTTPRequestHandler):
    """An instance's metadata."""

    pages = {"/meta-data/tags/instance/fleetctl:replica-1": "r4", "/meta-data/instance-id": "i-9"}  # noqa: RUF012  # of a test

    def do_GET(self) -> None:
        text = self.pages.get(self.path, "" if self.command == "GET" else "token")
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write(text.encode())

    do_PUT = do_GET  # noqa: N815  # as http.server names them

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a machine whose journal is a file, and whose S3 is a directory that is there or not."""
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    programs = {
        "journalctl": f'begin=$(cat "$7" 2>/dev/null || echo 0)\ntail -c +$((begin + 1)) {tmp_path}/journal\n'
        f'wc -c <{tmp_path}/journal >"$7"',
        "aws": f'mkdir -p {tmp_path}/s3/"$(dirname "$8")" && cat "${{10}}" >{tmp_path}/s3/"$8"',
    }
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\nset -eu\n{text}\n")
        path.chmod(0o755)
    yield {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "FLEETCTL_DIRECTORY": str(tmp_path),
        "FLEETCTL_METADATA": f"http://127.0.0.1:{server.server_port}",
    }  # fmt: skip
    server.shutdown()
    server.server_close()


def ship(machine: dict[str, str], tmp_path: Path) -> dict[int, bytes]:
    """Run the script as the engine of slot 1 ends, and return what lies in S3 by its first byte."""
    settings = AwsSettings(image="x", logs=f"s3://{BUCKET}/engines/")
    request = node_request(port=8000, owner=OWNER, fleet=FLEET)
    files = boot_files(request, settings, region="us-east-1", secrets_path="")
    (script,) = (file.content for file in files if file.path.endswith("ship-logs"))
    path = tmp_path / "ship-logs"
    path.write_text(script)
    subprocess.run([sys.executable, path, "1"], env=machine, check=True, timeout=60)
    found = (tmp_path / "s3" / PLACE / "r4" / "i-9-1").glob("*.gz")
    return {int(each.name.removesuffix(".gz")): each.read_bytes() for each in found}


def test_what_is_new_is_shipped_and_the_last_piece_grows(machine: dict[str, str], tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(b"one\n")
    assert {key: gzip.decompress(each) for key, each in ship(machine, tmp_path).items()} == {0: b"one\n"}
    text = b"one\n" + b"x" * (2 * PIECE) + b"last\n"
    journal.write_bytes(text)
    found = {key: gzip.decompress(each) for key, each in ship(machine, tmp_path).items()}
    assert found == {0: text[:PIECE], PIECE: text[PIECE : 2 * PIECE], 2 * PIECE: text[2 * PIECE :]}
    assert ship(machine, tmp_path).keys() == found.keys()


def test_what_is_not_taken_waits_here_up_to_a_bound_and_so_does_what_lies_there(
    machine: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "s3").write_text("nobody makes a directory here")
    (tmp_path / "journal").write_bytes(b"y" * (20 * PIECE) + b"last\n")
    assert ship(machine, tmp_path) == {}
    kept = tmp_path / "logs" / "1"
    assert len(list(kept.glob("?" * 15))) == 16
    (tmp_path / "s3").unlink()
    found = ship(machine, tmp_path)
    assert sorted(found) == [number * PIECE for number in range(5, 21)]
    assert json.loads((kept / "state").read_text())["end"] == 20 * PIECE + 5
    # 64 pieces later what was first has been emptied.
    (tmp_path / "journal").write_bytes(b"y" * (70 * PIECE))
    for _ in range(2):
        found = ship(machine, tmp_path)
    emptied = [start for start, packed in found.items() if not packed]
    assert all(start <= 6 * PIECE for start in emptied)
    assert emptied
