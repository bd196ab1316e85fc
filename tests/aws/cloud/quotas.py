"""Service Quotas of EC2, which moto has for VPC alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.aws.cloud.account import ACCOUNT
from tests.aws.cloud.capacity import QUOTAS

if TYPE_CHECKING:
    from tests.aws.cloud.calls import AwsCall
    from tests.aws.cloud.capacity import CapacityModel, Quota


def quota_response(call: AwsCall, capacity: CapacityModel) -> dict[str, Any] | None:
    """Return the response to a call of Service Quotas about EC2; None: it is not one."""
    if call.service != "servicequotas" or call.parameters.get("ServiceCode") != "ec2":
        return None
    if call.action in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas"):
        return {"Quotas": [_shown(each, capacity, call.region) for each in QUOTAS]}
    if call.action in ("GetServiceQuota", "GetAWSDefaultServiceQuota"):
        wanted = call.parameters.get("QuotaCode")
        found = next((each for each in QUOTAS if each.code == wanted), None)
        if found is None:
            return {
                "__type": "NoSuchResourceException",
                "Message": f"The request failed because the quota {wanted} is unknown.",
            }
        return {"Quota": _shown(found, capacity, call.region)}
    return None


def _shown(quota: Quota, capacity: CapacityModel, region: str) -> dict[str, Any]:
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": float(capacity.quota_value(quota)),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
