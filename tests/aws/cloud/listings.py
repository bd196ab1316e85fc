"""What EC2 lists: new instances late, tokens and life cycles as filters, spot requests, price history."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import InvalidInstanceIdError

from tests.aws.cloud.capacity import Pool
from tests.aws.cloud.fleets import FleetResponses

if TYPE_CHECKING:
    from collections.abc import Callable

# Filters that moto does not know, by the instance's value.
_OWN_FILTERS: dict[str, Callable[[Any], str | None]] = {
    "client-token": lambda instance: instance.client_token,
    "instance-lifecycle": lambda instance: instance.lifecycle,
    "spot-instance-request-id": lambda instance: getattr(instance, "spot_instance_request_id", None),
}


class ListingResponses(FleetResponses):
    """Describe calls."""

    def describe_instances(self) -> ActionResult:
        self._dry_run()
        hidden = self._none_hidden()
        own, rest = self._split_filters()
        found: Any = self._with({"Filters": rest}, super().describe_instances)
        shown = []
        for reservation in found["Reservations"]:
            kept = [
                each
                for each in reservation.instances
                if each.id not in hidden and all(_OWN_FILTERS[name](each) in values for name, values in own.items())
            ]
            if kept:
                view = copy.copy(reservation)
                view.instances = kept
                shown.append(view)
        return ActionResult({**found, "Reservations": shown})

    def describe_instance_types(self) -> Any:  # as moto says it
        self._dry_run()  # which moto answers with all there is, seconds of its CPU time
        return super().describe_instance_types()

    def describe_instance_type_offerings(self) -> Any:
        self._dry_run()
        return super().describe_instance_type_offerings()

    def describe_launch_templates(self) -> Any:
        self._dry_run()
        return super().describe_launch_templates()

    def describe_security_groups(self) -> Any:
        self._dry_run()
        return super().describe_security_groups()

    def describe_instance_status(self) -> ActionResult:
        hidden = self._none_hidden()
        found: Any = super().describe_instance_status().result
        return ActionResult({"InstanceStatuses": [each for each in found["InstanceStatuses"] if each.id not in hidden]})

    def describe_spot_instance_requests(self) -> ActionResult:
        wanted = set(self._get_param("SpotInstanceRequestIds", []))
        hidden = self.account.hidden()
        shown = []
        for record in self.account.launches.values():
            request_id = getattr(record.instance, "spot_instance_request_id", None)
            if request_id is None or record.region != self.region or record.instance.id in hidden:
                continue
            if not wanted or request_id in wanted:
                shown.append(_spot_request(request_id, record.instance))
        return ActionResult({"SpotInstanceRequests": shown})

    def describe_spot_price_history(self) -> ActionResult:
        found: Any = super().describe_spot_price_history().result
        history = []
        for each in found["SpotPriceHistory"]:
            pool = Pool(instance_type=each["InstanceType"], zone=each["AvailabilityZone"], market="spot")
            price = f"{self.account.capacity.price(pool):.6f}"
            history.append({**each, "ProductDescription": "Linux/UNIX", "SpotPrice": price, "Timestamp": utcnow()})
        return ActionResult({"SpotPriceHistory": history})

    def _none_hidden(self) -> set[str]:
        """Return what no listing shows yet. Raises InvalidInstanceID.NotFound where one of those is asked for by id."""
        hidden = self.account.hidden()
        unseen = [each for each in self._get_param("InstanceIds", []) if each in hidden]
        if unseen:
            raise InvalidInstanceIdError(unseen)
        return hidden

    def _split_filters(self) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
        filters = self._get_param("Filters", [])
        own = {each["Name"]: each.get("Values", []) for each in filters if each["Name"] in _OWN_FILTERS}
        return own, [each for each in filters if each["Name"] not in _OWN_FILTERS]

    def _with(self, changed: dict[str, Any], act: Callable[[], ActionResult]) -> Any:
        before, self.params = self.params, {**self.params, **changed}
        try:
            return act().result
        finally:
            self.params = before


def _spot_request(request_id: str, instance: Any) -> dict[str, Any]:
    is_live = instance.state in ("pending", "running")
    if is_live:
        state, code = "active", "fulfilled"
    elif instance.state_reason.code == "Server.SpotInstanceTermination":
        state, code = "closed", "instance-terminated-by-service"
    else:
        state, code = "closed", "instance-terminated-by-user"
    return {
        "SpotInstanceRequestId": request_id,
        "InstanceId": instance.id,
        "State": state,
        "Status": {"Code": code, "UpdateTime": utcnow()},
        "Type": "one-time",
        "LaunchedAvailabilityZone": instance.placement.zone,
        "CreateTime": instance.launch_time,
    }
