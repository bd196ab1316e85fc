"""RunInstances and TerminateInstances: tokens, capacity, quotas, launch templates, spot requests, end reasons."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import DryRunClientError, EC2ClientError, InvalidInstanceIdError
from moto.ec2.models.instances import Reservation
from moto.ec2.responses import EC2Response
from moto.ec2.utils import random_spot_request_id

from tests.aws.cloud.account import CloudAccount, TokenUse
from tests.aws.cloud.capacity import Pool, running_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.aws.cloud.capacity import Market

# Of a launch template's keys, those that RunInstances merges instead of replacing.
_TAGS = "TagSpecifications"
_END_CODE = "Client.UserInitiatedShutdown"


class LaunchResponses(EC2Response):
    """moto's EC2 with launches as EC2 makes them; `account` is the server's one."""

    account: CloudAccount

    def run_instances(self) -> ActionResult:
        params = self.params
        self._dry_run()
        merged = self.with_template(params)
        zone = self._zone_of(merged)
        return self.once("RunInstances", zone, lambda: self._run(merged, zone))

    def terminate_instances(self) -> ActionResult:
        ids = self._get_param("InstanceIds", [])
        self._dry_run()
        unknown = [each for each in ids if each not in self.account.launches or each in self.account.hidden()]
        if unknown:
            raise InvalidInstanceIdError(unknown)
        ending = []
        for instance_id in ids:
            record = self.account.launches[instance_id]
            before = {"Code": record.instance.state_code, "Name": record.instance.state}
            self.account.end(record, code=_END_CODE, message="User initiated shutdown", transition="User initiated")
            now = {"Code": record.instance.state_code, "Name": record.instance.state}
            ending.append({"InstanceId": instance_id, "PreviousState": before, "CurrentState": now})
        return ActionResult({"TerminatingInstances": ending})

    def once(self, action: str, zone: str, act: Callable[[], tuple[Any, list[str]]]) -> ActionResult:
        """Act, or repeat the response to the first call with this token.

        Raises IdempotentParameterMismatch where the parameters differ, IdempotentInstanceTerminated where what it launched
        is gone. A call that failed has used up nothing.
        """
        token = self._get_param("ClientToken", "")
        if not token:
            return ActionResult(act()[0])
        key, digest = (action, self.region, zone, token), _digest(self.params)
        use = self.account.tokens.get(key)
        if use is None:
            result, ids = act()
            self.account.tokens[key] = TokenUse(digest=digest, result=result, instance_ids=tuple(ids))
            return ActionResult(result)
        if use.digest != digest:
            message = (
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            )
            raise EC2ClientError("IdempotentParameterMismatch", message)
        states = [self.account.launches[each].instance.state for each in use.instance_ids]
        if action == "RunInstances" and states and all(state == "terminated" for state in states):
            message = "The instances launched by the original request with this client token have been terminated."
            raise EC2ClientError("IdempotentInstanceTerminated", message)
        return ActionResult(use.result)

    def with_template(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return RunInstances' parameters with those of its launch template below them, the template itself resolved."""
        named = params.get("LaunchTemplate")
        if not named:
            return dict(params)
        version = self.ec2_backend._get_template_from_args(named)
        merged = {**version.data, **{key: value for key, value in params.items() if key != "LaunchTemplate"}}
        merged[_TAGS] = _joined(version.data.get(_TAGS, []), params.get(_TAGS, []))
        if merged.get("UserData") is not None:
            merged["UserData"] = str(merged["UserData"])
        template_tags = {
            "aws:ec2launchtemplate:id": version.template.id,
            "aws:ec2launchtemplate:version": str(version.number),
        }
        return {**merged, "_tags": template_tags}

    def launch(self, params: Mapping[str, Any], *, market: Market, zone: str, token: str) -> Any:
        """Launch one instance that capacity and quota allow, and return it. Raises an EC2ClientError."""
        pool = Pool(instance_type=params.get("InstanceType", "m1.small"), zone=zone, market=market)
        self._check_type(pool)
        shortage = self.account.capacity.shortage(pool, running_pools(self.account.instances(self.region)))
        if shortage is not None:
            raise EC2ClientError(shortage.code, shortage.message)
        wanted = {**self._in_subnet(params, zone), "MinCount": 1, "MaxCount": 1, "ClientToken": token}
        own_tags = wanted.pop("_tags", {})
        wanted.pop("InstanceMarketOptions", None)
        if market == "spot":
            wanted["InstanceMarketOptions"] = {"MarketType": "spot"}
        before, self.params = self.params, wanted
        try:
            reservation: Any = EC2Response.run_instances(self).result
        finally:
            self.params = before
        instance = reservation.instances[0]
        instance.add_tags(own_tags)
        if market == "spot":
            instance.spot_instance_request_id = random_spot_request_id()
        self.account.record(self.region, instance, token=token)
        return instance

    def _run(self, params: Mapping[str, Any], zone: str) -> tuple[Reservation, list[str]]:
        options = params.get("InstanceMarketOptions") or {}
        market: Market = "spot" if options.get("MarketType") == "spot" else "on-demand"
        least, most = int(params.get("MinCount", 1)), int(params.get("MaxCount", 1))
        launched: list[Any] = []
        try:
            while len(launched) < most:
                launched.append(self.launch(params, market=market, zone=zone, token=self._get_param("ClientToken", "")))
        except EC2ClientError:
            if len(launched) < least:
                self._undo(launched)
                raise
        return self.joined(launched), [each.id for each in launched]

    def joined(self, launched: list[Any]) -> Reservation:
        """Return one reservation of instances that were launched one by one, as EC2 shows them."""
        reservations = self.ec2_backend.reservations
        found = Reservation(reservation_id=_reservation_id(reservations, launched), owner_id=self.current_account)
        for reservation in [each for each in reservations.values() if set(each.instances) & set(launched)]:
            del reservations[reservation.id]
        found.instances = list(launched)
        reservations[found.id] = found
        return found

    def _undo(self, launched: list[Any]) -> None:
        for instance in launched:
            self.account.end(
                self.account.launches[instance.id], code="Server.InternalError", message="launch failed", transition=""
            )
            self.account.launches.pop(instance.id)
        for reservation in [
            each for each in self.ec2_backend.reservations.values() if set(each.instances) & set(launched)
        ]:
            del self.ec2_backend.reservations[reservation.id]

    def _zone_of(self, params: Mapping[str, Any]) -> str:
        subnet = params.get("SubnetId") or next(
            (nic["SubnetId"] for nic in params.get("NetworkInterfaces", []) if "SubnetId" in nic), None
        )
        if subnet:
            return str(self.ec2_backend.get_subnet(subnet).availability_zone)
        return str((params.get("Placement") or {}).get("AvailabilityZone") or f"{self.region}a")

    def _in_subnet(self, params: Mapping[str, Any], zone: str) -> dict[str, Any]:
        """Return parameters with the default subnet of a zone where they name none, as EC2 takes it."""
        interfaces = params.get("NetworkInterfaces") or []
        if params.get("SubnetId") or any("SubnetId" in each or "NetworkInterfaceId" in each for each in interfaces):
            return dict(params)
        subnet = self.ec2_backend.get_default_subnets().get(zone)
        if subnet is None:
            raise EC2ClientError("MissingInput", f"No default subnet for availability zone: '{zone}'.")
        if interfaces:
            return {**params, "NetworkInterfaces": [{**interfaces[0], "SubnetId": subnet.id}, *interfaces[1:]]}
        return {**params, "SubnetId": subnet.id}

    def _check_type(self, pool: Pool) -> None:
        offered = self.ec2_backend.describe_instance_type_offerings(
            "availability-zone", {"instance-type": [pool.instance_type]}
        )
        if not offered:
            raise EC2ClientError("InvalidParameterValue", f"Invalid value '{pool.instance_type}' for InstanceType.")
        if pool.zone not in {each["Location"] for each in offered}:
            message = (
                f"Your requested instance type ({pool.instance_type}) is not supported in your requested Availability Zone "
                f"({pool.zone})."
            )
            raise EC2ClientError("Unsupported", message)

    def _dry_run(self) -> None:
        if self._get_param("DryRun", if_none=False):
            raise DryRunClientError


def _digest(params: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in params.items() if key not in ("ClientToken", "DryRun")}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def _joined(under: list[dict[str, Any]], over: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tag specifications by resource type, the later ones' tags before the earlier."""
    kinds: dict[str, dict[str, str]] = {}
    for each in (*under, *over):
        kinds.setdefault(each["ResourceType"], {}).update({tag["Key"]: tag["Value"] for tag in each.get("Tags", [])})
    return [
        {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        for kind, tags in kinds.items()
    ]


def _reservation_id(reservations: Mapping[str, Any], launched: list[Any]) -> str:
    return next(str(each.id) for each in reservations.values() if launched[0] in each.instances)
