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

from tests.aws.cloud.iam_policy import USER
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = Path(__file__).resolve().parents[3]
_REQUEST_S = 120.0
_ROOT_KEY = "AKIAI44QH8DHBEXAMPLE"


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
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": "of-the-tests",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def boto(self, service: str, **config: Any) -> Any:
        """Return boto3's client of a service, which may do everything; one attempt a call unless `config` says otherwise."""
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
            aws_access_key_id=_ROOT_KEY,
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

    def hold_to(self, *policies: dict[str, Any], roles: bool = False) -> None:
        """Allow whoever has the environment's key what these policies do, and instances what their roles' do where `roles`."""
        self.control("POST", "policies", user=policies, roles=roles)

    def behave(self, **seconds: float) -> None:
        """Set lag_s, pending_s, ending_s."""
        self.control("POST", "behaviour", **seconds)

    def interrupt(
        self,
        instance_id: str,
        *,
        notice_s: float = 120.0,
        event: bool = True,
        metadata: bool = True,
        age_s: float = 0.0,
    ) -> float:
        """Give a spot instance notice, by EventBridge and by its metadata; it ends `notice_s` later. The event says
        that it was given `age_s` ago.

        Returns when the message was put, in seconds since the epoch.
        """
        wanted = {"instance_id": instance_id, "notice_s": notice_s, "event": event, "metadata": metadata}
        wanted |= {"age_s": age_s}
        return float(self.control("POST", "interrupt", **wanted)["put_at_s"])

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

    def until(self, holds: Callable[[], Any], what: str, *, seconds: float = 60.0) -> Any:
        """Wait until something holds, and return what it returned."""
        return until(holds, what, within_s=seconds)


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
