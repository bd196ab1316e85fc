"""What the local provider offers: the GPUs of this machine for real engines, AWS's instance types for emulated ones.

Prices are AWS's public on-demand list prices for us-east-1, Linux, July 2026 (aws.amazon.com/ec2/pricing/on-demand).
They make plans and cost figures comparable with a cloud's; nothing is billed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.catalogue import CPU_ZONE, Market, Offering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.catalogue import GpuSpec

# instance type: (GPU, how many, USD per hour). Of types with the same GPUs the cheapest; what rents out parts of a GPU (g6f),
# has Arm's T4g (g5g) or no list price (p5e) is left out.
_TYPES: dict[str, tuple[str, int, float]] = {
    "p6-b300.48xlarge": ("B300", 8, 142.416),
    "p6-b200.48xlarge": ("B200", 8, 113.9328),
    "p5.4xlarge": ("H100", 1, 6.88),
    "p5.48xlarge": ("H100", 8, 55.04),
    "p5en.48xlarge": ("H200", 8, 63.296),
    "p4d.24xlarge": ("A100-40GB", 8, 21.957642),
    "p4de.24xlarge": ("A100-80GB", 8, 27.44705),
    "g7e.2xlarge": ("RTX PRO 6000 Server", 1, 3.36312),
    "g7e.12xlarge": ("RTX PRO 6000 Server", 2, 8.28608),
    "g7e.24xlarge": ("RTX PRO 6000 Server", 4, 16.57216),
    "g7e.48xlarge": ("RTX PRO 6000 Server", 8, 33.14432),
    "g7.2xlarge": ("RTX PRO 4500", 1, 2.52),
    "g7.12xlarge": ("RTX PRO 4500", 2, 7.12832),
    "g7.24xlarge": ("RTX PRO 4500", 4, 14.25664),
    "g7.48xlarge": ("RTX PRO 4500", 8, 28.51328),
    "g6e.xlarge": ("L40S", 1, 1.861),
    "g6e.12xlarge": ("L40S", 4, 10.49264),
    "g6e.48xlarge": ("L40S", 8, 30.13118),
    "g6.xlarge": ("L4", 1, 0.8048),
    "g6.12xlarge": ("L4", 4, 4.6016),
    "g6.48xlarge": ("L4", 8, 13.3504),
    "g5.xlarge": ("A10G", 1, 1.006),
    "g5.12xlarge": ("A10G", 4, 5.672),
    "g5.48xlarge": ("A10G", 8, 16.288),
    "g4dn.xlarge": ("T4", 1, 0.526),
    "g4dn.12xlarge": ("T4", 4, 3.912),
    "g4dn.metal": ("T4", 8, 7.824),
    "p3dn.24xlarge": ("V100-32GB", 8, 31.212),
}
REGION = "local"
HERE = "this-machine"
ZONES = ("local-a", "local-b", "local-c")
# An emulated figure, not a quote: real spot prices move by type, zone and hour.
SPOT_PRICE_FRACTION = 0.4
# A process is there in milliseconds; the engine's own start (weights, compile) comes on top and is not a node's.
BOOT_S = 0.1
NOTICE_S = 120.0  # as EC2 gives


def offerings(here: dict[str, tuple[GpuSpec, int, bool]] | None = None) -> tuple[Offering, ...]:
    """Return every emulated type in every zone, on-demand and spot, and the shares of this machine's own GPUs.

    `here` are those by name: what each is, how many there are, and whether several can work for one replica.
    """
    return (*_emulated(), *(offering for name in here or {} for offering in _shares(name, *(here or {})[name])))


def on_cpu() -> tuple[Offering, ...]:
    """Return what real engines run on where this machine has no GPU: its CPU, which costs nothing.

    A plan needs a GPU's memory and speed to size batches by; each known type lends its own, and its forecast is not shown.
    """
    return tuple(_free(f"{HERE}-as-{count}x{gpu}", gpu, count, CPU_ZONE) for gpu, count, _ in _TYPES.values())


def _shares(name: str, spec: GpuSpec, there: int, is_joinable: bool) -> Iterator[Offering]:  # one of three figures
    """Yield one, two, four ... of a kind of GPU, and all of them. They are there, so they cost nothing."""
    counts = {1, there, *(2**n for n in range(there.bit_length()) if 2**n <= there)} if is_joinable else {1}
    for count in sorted(counts):
        yield _free(f"{HERE}-{count}x{name}", name, count, HERE, pool_gpus=there, gpu_spec=spec)


def _free(
    instance_type: str,
    gpu: str,
    count: int,
    zone: str,
    *,
    pool_gpus: int | None = None,
    gpu_spec: GpuSpec | None = None,
) -> Offering:
    """Return a part of this machine."""
    return Offering(
        provider="local",
        instance_type=instance_type,
        gpu=gpu,
        gpu_count=count,
        region=REGION,
        zone=zone,
        market=Market.ON_DEMAND,
        price_usd_per_hour=0.0,
        boot_s=BOOT_S,
        pool_gpus=pool_gpus,
        gpu_spec=gpu_spec,
    )


def _emulated() -> tuple[Offering, ...]:
    return tuple(
        Offering(
            provider="local",
            instance_type=name,
            gpu=gpu,
            gpu_count=count,
            region=REGION,
            zone=zone,
            market=market,
            price_usd_per_hour=price if market is Market.ON_DEMAND else round(price * SPOT_PRICE_FRACTION, 6),
            boot_s=BOOT_S,
            notice_s=NOTICE_S if market is Market.SPOT else 0.0,
            is_emulated=True,
        )
        for name, (gpu, count, price) in _TYPES.items()
        for zone in ZONES
        for market in Market
    )
