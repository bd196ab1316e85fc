"""What the cloud has to sell: instances by type, zone and market, vCPU quotas, and prices."""

from __future__ import annotations

import fnmatch
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from moto.ec2.models.instance_types import INSTANCE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

Market = Literal["on-demand", "spot"]
# A vCPU quota so high that only a test which sets one meets it.
_QUOTA_VCPUS = 8192
# Nominal prices, in dollars an hour: they order types by size. A test that is of money sets its own.
_USD_PER_VCPU_HOUR = 0.04
_USD_PER_GPU_GIB_HOUR = 0.02
_SPOT_SHARE = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Instances of one type in one zone, sold in one market."""

    instance_type: str
    zone: str
    market: Market


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLimit:
    """How many instances may run at a time in the pools that match; fields are glob patterns."""

    instance_type: str = "*"
    zone: str = "*"
    market: str = "*"
    instances: int = 0
    error: str = ""  # the code of the error; empty: the market's own

    def covers(self, pool: Pool) -> bool:
        pairs = ((pool.instance_type, self.instance_type), (pool.zone, self.zone), (pool.market, self.market))
        return all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One of EC2's limits on running vCPUs: families by the letters that a type begins with."""

    code: str
    name: str
    market: Market
    families: tuple[str, ...]


# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
QUOTAS = (
    Quota(code="L-417A185B", name="Running On-Demand P instances", market="on-demand", families=("p",)),
    Quota(code="L-DB2E81BA", name="Running On-Demand G and VT instances", market="on-demand", families=("g", "vt")),
    Quota(
        code="L-1216C47A",
        name="Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        market="on-demand",
        families=("a", "c", "d", "h", "i", "m", "r", "t", "z"),
    ),
    Quota(code="L-C4BD4855", name="All P5 Spot Instance Requests", market="spot", families=("p5",)),
    Quota(code="L-7212CCBC", name="All P4, P3 and P2 Spot Instance Requests", market="spot", families=("p",)),
    Quota(code="L-3819A6DF", name="All G and VT Spot Instance Requests", market="spot", families=("g", "vt")),
    Quota(
        code="L-34B43A08",
        name="All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
        market="spot",
        families=("a", "c", "d", "h", "i", "m", "r", "t", "z"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a pool sells nothing more now."""

    code: str
    message: str


@dataclass
class CapacityModel:
    """Limits, quotas and prices as the test has set them; without any, everything is to be had."""

    limits: list[CapacityLimit] = field(default_factory=list)  # the last that covers a pool holds
    quota_vcpus: dict[str, int] = field(default_factory=dict)  # by quota code
    usd_per_hour: dict[tuple[str, str, str], float] = field(default_factory=dict)  # by type, zone ("*": all), market

    def left(self, pool: Pool, running: Counter[Pool]) -> int | None:
        """Return how many more instances a pool sells; None: any number."""
        limit = self._limit(pool)
        if limit is None:
            return None
        return max(0, limit.instances - sum(count for each, count in running.items() if limit.covers(each)))

    def shortage(self, pool: Pool, running: Counter[Pool]) -> Shortage | None:
        """Return why one more instance of a pool cannot be launched; None: it can."""
        quota = quota_of(pool)
        limit_vcpus = self.quota_vcpus.get(quota.code, _QUOTA_VCPUS)
        used = sum(vcpus(each) * count for each, count in running.items() if quota_of(each) == quota)
        if used + vcpus(pool) > limit_vcpus:
            return _over_quota(pool, limit_vcpus)
        if self.left(pool, running) == 0:
            limit = self._limit(pool)
            return _sold_out(pool, limit.error if limit else "")
        return None

    def quota_value(self, quota: Quota) -> int:
        return self.quota_vcpus.get(quota.code, _QUOTA_VCPUS)

    def price(self, pool: Pool) -> float:
        """Return what an instance costs, in dollars an hour."""
        for zone in (pool.zone, "*"):
            found = self.usd_per_hour.get((pool.instance_type, zone, pool.market))
            if found is not None:
                return found
        nominal = _USD_PER_VCPU_HOUR * vcpus(pool) + _USD_PER_GPU_GIB_HOUR * _gpu_gib(pool)
        return nominal * (_SPOT_SHARE if pool.market == "spot" else 1.0)

    def _limit(self, pool: Pool) -> CapacityLimit | None:
        return next((limit for limit in reversed(self.limits) if limit.covers(pool)), None)


def running_pools(instances: Iterable[Any]) -> Counter[Pool]:
    """Count what runs by pool, given moto's instances."""
    return Counter(pool_of(each) for each in instances if each.state in ("pending", "running"))


def pool_of(instance: Any) -> Pool:
    market: Market = "spot" if instance.lifecycle == "spot" else "on-demand"
    return Pool(instance_type=instance.instance_type, zone=instance.placement.zone, market=market)


def quota_of(pool: Pool) -> Quota:
    """Return the quota that counts a pool's vCPUs: the longest family first, so P5 before P."""
    matching = [
        (len(family), quota)
        for quota in QUOTAS
        for family in quota.families
        if quota.market == pool.market and pool.instance_type.startswith(family)
    ]
    return max(matching, key=lambda pair: pair[0])[1] if matching else QUOTAS[2]


def vcpus(pool: Pool) -> int:
    return int(INSTANCE_TYPES[pool.instance_type]["VCpuInfo"]["DefaultVCpus"])


def _gpu_gib(pool: Pool) -> float:
    found = INSTANCE_TYPES[pool.instance_type].get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0)
    return float(found) / 1024


def _over_quota(pool: Pool, limit_vcpus: int) -> Shortage:
    if pool.market == "spot":
        return Shortage(code="MaxSpotInstanceCountExceeded", message="Max spot instance count exceeded")
    return Shortage(
        code="VcpuLimitExceeded",
        message=(
            f"You have requested more vCPU capacity than your current vCPU limit of {limit_vcpus} allows for the instance "
            "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request "
            "to request an adjustment to this limit."
        ),
    )


def _sold_out(pool: Pool, error: str) -> Shortage:
    if pool.market == "spot":
        text = "There is no Spot capacity available that matches your request."
    else:
        text = (
            f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you requested "
            f"({pool.zone}). Our system will be working on provisioning additional capacity."
        )
    return Shortage(code=error or "InsufficientInstanceCapacity", message=text)
