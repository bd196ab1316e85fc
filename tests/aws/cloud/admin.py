"""The tests' own controls, plain JSON over HTTP under /_cloud/: what the cloud has, and how it behaves."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.capacity import CapacityLimit
from tests.aws.cloud.faults import KINDS, FaultRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.aws.cloud.account import CloudAccount, LaunchRecord
    from tests.aws.cloud.faults import FaultRules
    from tests.aws.cloud.frontend import Frontend, Response
    from tests.aws.cloud.notices import EventBus

_NOTICE_S = 120.0
_SPOT_END = "Server.SpotInstanceTermination"


class AdminPages:
    """What a test may set and read; `frontend` is set once the frontend exists."""

    frontend: Frontend

    def __init__(self, account: CloudAccount, faults: FaultRules, bus: EventBus, facts: dict[str, Any]) -> None:
        self._account = account
        self._faults = faults
        self._bus = bus
        self._facts = facts
        self.on_notice: list[Callable[[LaunchRecord, str, float], None]] = []  # kind, seconds until the end
        self._pages: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
            ("GET", "state"): lambda _: self._state(),
            ("GET", "calls"): lambda _: self.frontend.calls(),
            ("GET", "facts"): lambda _: self._facts,
            ("POST", "behaviour"): self._behave,
            ("POST", "faults"): self._add_fault,
            ("DELETE", "faults"): lambda _: self._faults.rules.clear(),
            ("POST", "limits"): self._add_limit,
            ("DELETE", "limits"): lambda _: self._account.capacity.limits.clear(),
            ("POST", "quotas"): self._set_quotas,
            ("POST", "policies"): lambda wanted: self.frontend.access.set(wanted),  # noqa: PLW0108  # there is none yet
            ("POST", "prices"): self._set_prices,
            ("POST", "interrupt"): self._interrupt,
            ("POST", "rebalance"): self._rebalance,
            ("POST", "end"): self._end,
            ("POST", "reset"): self._reset,
        }

    def add(self, method: str, name: str, page: Callable[[dict[str, Any]], Any]) -> None:
        self._pages[method, name] = page

    def respond(self, environ: dict[str, Any], body: bytes) -> Response:
        """Answer one request: 200 with JSON, 400 with what is wrong, 404 for a page there is not."""
        name = environ["PATH_INFO"].removeprefix("/_cloud/").strip("/")
        page = self._pages.get((environ["REQUEST_METHOD"], name))
        if page is None:
            return _json("404 Not Found", {"error": f"no {environ['REQUEST_METHOD']} {name}"})
        self._account.advance()
        try:
            with self._account.lock:
                return _json("200 OK", page(json.loads(body or b"{}")))
        except (KeyError, TypeError, ValueError) as error:
            return _json("400 Bad Request", {"error": repr(error)})

    def _state(self) -> dict[str, Any]:
        instances = [_shown(each) for each in self._account.launches.values()]
        return {
            "instances": instances,
            "states": Counter(each["state"] for each in instances),
            "events": dict(self._bus.counts),
            "faults": [
                {"kind": each.kind, "action": each.action, "struck": each.struck} for each in self._faults.rules
            ],
        }

    def _behave(self, wanted: dict[str, Any]) -> None:
        unknown = set(wanted) - {"lag_s", "pending_s", "ending_s"}
        if unknown:
            raise ValueError(f"unknown behaviour: {sorted(unknown)}")
        for name, seconds in wanted.items():
            setattr(self._account, name, float(seconds))

    def _add_fault(self, wanted: dict[str, Any]) -> None:
        if wanted["kind"] not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, not {wanted['kind']}")
        self._faults.rules.append(FaultRule(**wanted))

    def _add_limit(self, wanted: dict[str, Any]) -> None:
        self._account.capacity.limits.append(CapacityLimit(**wanted))

    def _set_quotas(self, wanted: dict[str, Any]) -> None:
        self._account.capacity.quota_vcpus.update({code: int(vcpus) for code, vcpus in wanted.items()})

    def _set_prices(self, wanted: dict[str, Any]) -> None:
        key = (wanted["instance_type"], wanted.get("zone", "*"), wanted["market"])
        self._account.capacity.usd_per_hour[key] = float(wanted["usd_per_hour"])

    def _interrupt(self, wanted: dict[str, Any]) -> dict[str, float]:
        """Give notice of a spot instance's end, and end it when the notice is over, or earlier if it ends itself.

        Returns when its message was put, in seconds since the epoch.
        """
        record = self._account.launches[wanted["instance_id"]]
        if record.instance.lifecycle != "spot":
            raise ValueError(f"{record.instance.id} is no spot instance")
        notice_s = float(wanted.get("notice_s", _NOTICE_S))
        if wanted.get("metadata", True):
            self._notify(record, "interruption", notice_s)
        put_at_s = SYSTEM_CLOCK.now().timestamp()
        if wanted.get("event", True):
            self._bus.interruption(record, age_s=float(wanted.get("age_s", 0.0)))
        self._account.after(notice_s, lambda: self._reclaim(record))
        return {"put_at_s": put_at_s}

    def _reclaim(self, record: LaunchRecord) -> None:
        self._account.end(
            record, code=_SPOT_END, message="Spot instance termination", transition="Server.SpotInstanceTermination"
        )

    def _rebalance(self, wanted: dict[str, Any]) -> None:
        record = self._account.launches[wanted["instance_id"]]
        self._notify(record, "rebalance", 0.0)
        self._bus.rebalance(record)

    def _notify(self, record: LaunchRecord, kind: str, end_s: float) -> None:
        for observe in self.on_notice:
            observe(record, kind, end_s)

    def _end(self, wanted: dict[str, Any]) -> None:
        """End an instance as the cloud or the instance itself does: the code and message are its StateReason's."""
        record = self._account.launches[wanted["instance_id"]]
        self._account.end(
            record, code=wanted["code"], message=wanted.get("message", ""), transition=wanted.get("transition", "")
        )

    def _reset(self, _: dict[str, Any]) -> None:
        """Behave again as at the start; what runs ends, and what buckets hold goes with them."""
        account = self._account
        account.lag_s = account.pending_s = account.ending_s = 0.0
        account.capacity.limits.clear()
        account.capacity.quota_vcpus.clear()
        account.capacity.usd_per_hour.clear()
        self._faults.rules.clear()
        self.frontend.access.set({})
        for record in account.launches.values():
            account.end(record, code="Client.UserInitiatedShutdown", message="the test is over", transition="")
        account.launches.clear()
        account.tokens.clear()
        _clear_buckets()
        self.frontend.journal.clear()


def _clear_buckets() -> None:
    """Have no bucket: a state that an earlier test has left there would be the next one's."""
    from moto.s3.models import s3_backends

    for of_account in s3_backends.values():
        for backend in of_account.values():
            backend.reset()


def _shown(record: LaunchRecord) -> dict[str, Any]:
    instance = record.instance
    return {
        "id": instance.id,
        "region": record.region,
        "type": instance.instance_type,
        "zone": instance.placement.zone,
        "lifecycle": instance.lifecycle or "on-demand",
        "state": instance.state,
        "reason": instance.state_reason.code,
        "token": record.token,
        "tags": {each["key"]: each["value"] for each in instance.get_tags()},
        "address": instance.private_ip if instance.nics else "",
    }


def _json(status: str, value: Any) -> Response:
    content = json.dumps(value, default=asdict).encode()
    return status, [("Content-Type", "application/json")], content
