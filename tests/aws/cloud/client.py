"""How tests start a cloud, and what they do to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = Path(__file__).resolve().parents[3]
_REQUEST_S = 120.0


@dataclass
class Cloud:
    """A running cloud of tests."""

    process: subprocess.Popen[str]
    url: str
    region: str = "us-east-1"
    _clients: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to work on this cloud."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "of-the-tests",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def boto(self, service: str, **config: Any) -> Any:
        """Return boto3's client of a service; one attempt a call unless `config` says otherwise."""
        import boto3
        from botocore.config import Config

        key = (service, *sorted(config.items()))
        if key in self._clients:
            return self._clients[key]
        keys = self.environment
        settings = {"retries": {"total_max_attempts": 1}, "read_timeout": _REQUEST_S, **config}
        self._clients[key] = boto3.session.Session().client(
            service,
            region_name=self.region,
            endpoint_url=self.url,
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
            config=Config(**settings),
        )
        return self._clients[key]

    def fault(self, kind: str, **fields: Any) -> None:
        """Set a fault; see FaultRule."""
        self.control("POST", "faults", kind=kind, **fields)

    def clear_faults(self) -> None:
        self.control("DELETE", "faults")

    def limit(self, instances: int = 0, **fields: Any) -> None:
        """Limit what the pools that match sell; see CapacityLimit."""
        self.control("POST", "limits", instances=instances, **fields)

    def clear_limits(self) -> None:
        self.control("DELETE", "limits")

    def quota(self, code: str, vcpus: int) -> None:
        self.control("POST", "quotas", **{code: vcpus})

    def price(self, instance_type: str, market: str, usd_per_hour: float, *, zone: str = "*") -> None:
        self.control("POST", "prices", instance_type=instance_type, market=market, usd_per_hour=usd_per_hour, zone=zone)

    def behave(self, **seconds: float) -> None:
        """Set lag_s, pending_s, ending_s."""
        self.control("POST", "behaviour", **seconds)

    def interrupt(self, instance_id: str, *, notice_s: float = 120.0, event: bool = True) -> None:
        """Give a spot instance notice; it ends `notice_s` later."""
        self.control("POST", "interrupt", instance_id=instance_id, notice_s=notice_s, event=event)

    def rebalance(self, instance_id: str) -> None:
        self.control("POST", "rebalance", instance_id=instance_id)

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """Return what was ever launched, in these states where some are named: the truth, without lag."""
        found = self.control("GET", "state")["instances"]
        return [each for each in found if not states or each["state"] in states]

    def calls(self, action: str = "") -> list[dict[str, Any]]:
        """Return the calls that came in, oldest first."""
        return [each for each in self.control("GET", "calls") if not action or each["action"] == action]

    def console(self, instance_id: str) -> str:
        """Return what an instance that boots has written."""
        return str(self.control("POST", "console", instance_id=instance_id))

    def crash(self, instance_id: str) -> None:
        """Have an instance's machine vanish; EC2 shows it as running."""
        self.control("POST", "crash", instance_id=instance_id)

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.control("GET", "facts")
        return found

    def image(self) -> str:
        """Return the id of a deep learning image."""
        return str(next(iter(self.control("GET", "facts")["images"][self.region].values())))

    def control(self, method: str, page: str, **fields: Any) -> Any:
        """Call the cloud's own controls. Raises HTTPError with what was wrong."""
        body = json.dumps(fields).encode() if fields else None
        request = Request(f"{self.url}/_cloud/{page}", data=body, method=method)  # noqa: S310  # http on loopback
        with urlopen(request, timeout=_REQUEST_S) as response:  # noqa: S310  # as above
            return json.load(response)

    def until(self, holds: Callable[[], Any], what: str, *, seconds: float = 30.0) -> Any:
        """Wait until something holds, and return what it returned."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + seconds
        while not (found := holds()):
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, f"not within {seconds:g} s: {what}"
            SYSTEM_CLOCK.sleep_blocking(0.05)
        return found


@contextmanager
def running_cloud(*options: str) -> Iterator[Cloud]:
    """Run a cloud of one's own, and end it."""
    command = [sys.executable, "-m", "tests.aws.cloud", *options]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            assert port, "the cloud did not start: its reason is above"
            yield Cloud(process, f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(timeout=20)
