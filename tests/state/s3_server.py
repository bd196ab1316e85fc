"""S3 on loopback: moto's server, a process of its own that a test may also talk to through a faulty proxy."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pathlib import Path

BUCKET = "fleet-states"
_STARTED_S = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A running server, with the bucket in it."""

    process: subprocess.Popen[bytes]
    port: int

    @classmethod
    def start(cls, log: Path) -> S3Server:
        """Start it, and return it once it answers and has the bucket."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        server = cls(process=process, port=port)
        until_s = SYSTEM_CLOCK.monotonic_s() + _STARTED_S
        while not server._answers():
            assert process.poll() is None, log.read_text()
            assert SYSTEM_CLOCK.monotonic_s() < until_s, log.read_text()
            SYSTEM_CLOCK.sleep_blocking(0.05)
        client = boto3.session.Session().client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
            aws_access_key_id="test", aws_secret_access_key="test",  # noqa: S106  # moto takes any
        )  # fmt: skip
        client.create_bucket(Bucket=BUCKET)
        client.close()
        return server

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which boto3 finds it."""
        return environment_to(self.port)

    def stop(self) -> None:
        """End it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=10)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/moto-api/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()


def environment_to(port: int) -> dict[str, str]:
    """Return the variables by which boto3 finds an S3 on loopback."""
    return {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }
