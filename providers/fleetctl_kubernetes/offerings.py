"""What an existing cluster offers, in shares, by product, zone and market: the GPUs of its nodes, and of nodes that an autoscaler brings."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.catalogue import kubernetes_nodes
from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.node_gpus import node_gpus
from fleetctl.model.catalogue import Market, Offering
from fleetctl_kubernetes.node_gpus import gpus_of
from fleetctl_kubernetes.placement import ANY_ZONE, instance_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl_kubernetes.pools import GpuNodePool

Object = dict[str, Any]
# From the create call until the engine's process may start, where a node has room and the image.
_BOOT_S = 5.0
# And where the node has to come first: a GPU machine of a cloud, its driver and its device plugin. Measured ones replace it.
_NODE_BOOT_S = 240.0
# What an autoscaler without a limit may bring: the profile's own caps (capacity.max_nodes) end it long before.
_UNLIMITED_GPUS = 1_000_000


class _Kind(NamedTuple):
    product: str
    region: str
    zone: str
    market: Market


def offerings_of(
    nodes: Iterable[Object], pools: Iterable[GpuNodePool] = (), *, is_preemptive: bool = False
) -> tuple[Offering, ...]:
    """Return one, two, four ... of each kind of GPU, up to what its largest node has; `pools` can bring more of them.

    `is_preemptive`: the scheduler ends a later lane's pod for an earlier lane's that finds no room.
    """
    largest: dict[_Kind, int] = defaultdict(int)
    present: set[_Kind] = set()
    there: dict[str, int] = defaultdict(int)  # by product, of all zones and both markets: a lane takes from all of them
    in_zone: dict[_Kind, int] = defaultdict(int)  # and its pods each from one
    notices: dict[_Kind, float] = {}
    for node in nodes:
        labels, (product, count, _) = node["metadata"].get("labels") or {}, gpus_of(node)
        if not count:
            continue
        market, notice_s = kubernetes_nodes.market_of(labels)
        zone = labels.get(kubernetes_nodes.ZONE, ANY_ZONE)
        kind = _Kind(product, labels.get(kubernetes_nodes.REGION, ""), zone, market)
        largest[kind] = max(largest[kind], count)
        there[kind.product] += count
        in_zone[kind] += count
        notices[kind] = notice_s
        present.add(kind)
    _add(pools, largest, there, in_zone, notices)
    known = tuple(load_catalogue().gpus)
    return tuple(
        replace(offering, is_preemptive=is_preemptive)
        for kind, most in sorted(largest.items())
        for offering in _shares(
            kind,
            most,
            (there[kind.product], in_zone[kind]),
            notices[kind],
            known,
            boot_s=_BOOT_S if kind in present else _NODE_BOOT_S,
        )
    )


def _add(
    pools: Iterable[GpuNodePool],
    largest: dict[_Kind, int],
    there: dict[str, int],
    in_zone: dict[_Kind, int],
    notices: dict[_Kind, float],
) -> None:
    """Take in what may be brought: a pool's room counts once in all, and whole in each zone and market it is for."""
    counted: set[tuple[str, str]] = set()
    for pool in pools:
        kind = _Kind(pool.product, pool.region, pool.zone, pool.market)
        # A node that is there may say its region, and one that comes does not yet.
        kind = next((known for known in largest if known._replace(region="") == kind._replace(region="")), kind)
        largest[kind] = max(largest[kind], pool.gpus_max)
        notices.setdefault(kind, pool.notice_s)
        left = _UNLIMITED_GPUS if pool.gpus_left is None else pool.gpus_left
        in_zone[kind] = min(_UNLIMITED_GPUS, in_zone[kind] + left)
        if (pool.name, pool.product) not in counted:
            counted.add((pool.name, pool.product))
            there[pool.product] = min(_UNLIMITED_GPUS, there[pool.product] + left)


def gpu_name(product: str, known: Iterable[str]) -> str:
    """Return the catalogue's name for what discovery, a cloud or Karpenter calls a GPU; itself where it knows none."""
    if named := node_gpus().gpu_of(product):
        return named
    parts = set(re.split(r"[-_]", product.upper()))
    parts_of = {name: set(re.split(r"[\s-]", name.upper())) for name in known}
    fitting = [name for name in parts_of if parts_of[name] <= parts]
    return max(fitting, key=lambda name: (len(parts_of[name]), len(name)), default=product)


def _shares(  # of one kind; there: in all, and in its zone and market
    kind: _Kind, most: int, there: tuple[int, int], notice_s: float, known: tuple[str, ...], *, boot_s: float
) -> Iterator[Offering]:
    for count in sorted({1, most, *(2**n for n in range(most.bit_length()) if 2**n <= most)}):
        yield Offering(
            provider="kubernetes",
            instance_type=instance_type(count, kind.product),
            gpu=gpu_name(kind.product, known),
            gpu_count=count,
            region=kind.region,
            zone=kind.zone,
            market=kind.market,
            price_usd_per_hour=0.0,
            boot_s=boot_s,
            notice_s=notice_s,
            pool_gpus=there[0],
            is_pool_of_all_zones=True,
            zone_gpus=there[1],
        )
