"""CreateFleet of type instant: pools chosen by price and capacity, and errors beside (or in place of) instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import random_fleet_id

from tests.aws.cloud.capacity import Pool, running_pools
from tests.aws.cloud.launches import LaunchResponses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moto.core.responses import ActionResult

    from tests.aws.cloud.capacity import Market, Shortage

_MANY = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOffer:
    """One override of one launch template: a pool, and how it is launched."""

    pool: Pool
    specification: dict[str, Any]
    override: dict[str, Any]
    index: int

    @property
    def priority(self) -> float:
        return float(self.override.get("Priority", _MANY))

    def shown(self) -> dict[str, Any]:
        return {"LaunchTemplateSpecification": self.specification, "Overrides": self.override}


class FleetResponses(LaunchResponses):
    """CreateFleet, which moto answers with override 0 whatever there is."""

    def create_fleet(self) -> ActionResult:
        self._dry_run()
        if self._get_param("Type", "maintain") != "instant":
            raise EC2ClientError("UnsupportedOperation", "this cloud of tests makes fleets of type instant alone")
        return self.once("CreateFleet", "", self._create)

    def _create(self) -> tuple[dict[str, Any], list[str]]:
        fleet_id = random_fleet_id()
        instances: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        ids: list[str] = []
        for market, count in self._targets():
            for offer, launched in self._filled(market, count, fleet_id, errors):
                ids.extend(launched)
                instances.append(
                    {
                        "LaunchTemplateAndOverrides": offer.shown(),
                        "Lifecycle": market,
                        "InstanceIds": launched,
                        "InstanceType": offer.pool.instance_type,
                    }
                )
        return {"FleetId": fleet_id, "Errors": errors, "Instances": instances}, ids

    def _targets(self) -> list[tuple[Market, int]]:
        target = self._get_param("TargetCapacitySpecification", {})
        total = int(target["TotalTargetCapacity"])
        on_demand, spot = int(target.get("OnDemandTargetCapacity", 0)), int(target.get("SpotTargetCapacity", 0))
        rest = total - on_demand - spot
        if target.get("DefaultTargetCapacityType", "on-demand") == "spot":
            spot += rest
        else:
            on_demand += rest
        wanted: list[tuple[Market, int]] = [("on-demand", on_demand), ("spot", spot)]
        return [each for each in wanted if each[1] > 0]

    def _filled(
        self, market: Market, count: int, fleet_id: str, errors: list[dict[str, Any]]
    ) -> Iterable[tuple[FleetOffer, list[str]]]:
        """Launch up to `count` instances, the best pool first; what each pool lacks goes to `errors`."""
        options = self._get_param("SpotOptions" if market == "spot" else "OnDemandOptions", {})
        filled: list[tuple[FleetOffer, list[str]]] = []
        left = count
        for offer in self._ranked(market, count, options.get("AllocationStrategy", "lowest-price")):
            launched: list[str] = []
            try:
                while left:
                    launched.append(self._launched(offer, fleet_id))
                    left -= 1
            except EC2ClientError as error:
                errors.append(_shown_error(offer, market, error))
            if launched:
                filled.append((offer, launched))
            if not left:
                break
        least = int(options.get("MinTargetCapacity", 0))
        if count - left < least:
            self._undo([self.account.launches[each].instance for _, launched in filled for each in launched])
            return []
        return filled

    def _ranked(self, market: Market, count: int, strategy: str) -> list[FleetOffer]:
        running, capacity = running_pools(self.account.instances(self.region)), self.account.capacity

        def depth(offer: FleetOffer) -> int:
            shortage: Shortage | None = capacity.shortage(offer.pool, running)
            left = capacity.left(offer.pool, running)
            return 0 if shortage else min(_MANY if left is None else left, count)

        def rank(offer: FleetOffer) -> tuple[float, ...]:
            price = capacity.price(offer.pool)
            match strategy:
                case "prioritized":
                    return (offer.priority, offer.index)
                case "capacity-optimized":
                    return (-depth(offer), offer.index)
                case "capacity-optimized-prioritized":
                    return (-depth(offer), offer.priority)
                case "price-capacity-optimized":
                    return (-depth(offer), price, offer.index)
                case _:
                    return (price, offer.index)

        return sorted(self._offers(market), key=rank)

    def _offers(self, market: Market) -> list[FleetOffer]:
        found: list[FleetOffer] = []
        for config in self._get_param("LaunchTemplateConfigs", []):
            specification = config["LaunchTemplateSpecification"]
            data = self.ec2_backend._get_template_from_args(specification).data
            for override in config.get("Overrides") or [{}]:
                instance_type = override.get("InstanceType") or data.get("InstanceType", "m1.small")
                zone = self._zone_of(self._placed(data, override))
                pool = Pool(instance_type=instance_type, zone=zone, market=market)
                found.append(FleetOffer(pool=pool, specification=specification, override=override, index=len(found)))
        return found

    def _launched(self, offer: FleetOffer, fleet_id: str) -> str:
        own = [each for each in self._get_param("TagSpecifications", []) if each["ResourceType"] != "fleet"]
        base = self.with_template({"LaunchTemplate": offer.specification, "TagSpecifications": own})
        params = self._placed(base, offer.override)
        params["InstanceType"] = offer.pool.instance_type
        params["_tags"] = {**base.get("_tags", {}), "aws:ec2:fleet-id": fleet_id}
        if offer.override.get("ImageId"):
            params["ImageId"] = offer.override["ImageId"]
        return str(self.launch(params, market=offer.pool.market, zone=offer.pool.zone, token="").id)

    def _placed(self, params: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
        """Return parameters with an override's subnet or zone; a network interface takes it where there is one."""
        placed = dict(params)
        zone = override.get("AvailabilityZone") or (override.get("Placement") or {}).get("AvailabilityZone")
        subnet = override.get("SubnetId")
        interfaces = placed.get("NetworkInterfaces") or []
        if zone and not subnet and interfaces:
            subnet = self.ec2_backend.get_default_subnets()[zone].id
        if subnet and interfaces:
            placed["NetworkInterfaces"] = [{**interfaces[0], "SubnetId": subnet}, *interfaces[1:]]
        elif subnet:
            placed["SubnetId"] = subnet
        elif zone:
            placed["Placement"] = {**(placed.get("Placement") or {}), "AvailabilityZone": zone}
        return placed


def _shown_error(offer: FleetOffer, market: Market, error: EC2ClientError) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": offer.shown(),
        "Lifecycle": market,
        "ErrorCode": error.code,
        "ErrorMessage": error.message,
    }
