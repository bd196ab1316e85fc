"""Which offerings of a cluster have no GPU left in their zone, as far as one's own replicas take them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import OfferingKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.model.catalogue import Offering
    from fleetctl.model.replica import Replica


def full_zones(
    fitting: Sequence[Offering], standing: Iterable[Replica], offerings: Iterable[Offering]
) -> dict[str, str]:
    """Return why each of these offerings finds no free GPU, by its key; nothing where none of them would.

    A pod is kept to its offering's zone and market, so one ordered where all are taken waits while there is room elsewhere.
    Where there is none anywhere it may still be had: by preemption, or of what other replicas are about to free. GPUs that
    others of the cluster hold are not seen, and a share that is not among `offerings` counts as one.
    """
    if all(offering.zone_gpus is None for offering in fitting):
        return {}
    counts = {offering.key: offering.gpu_count for offering in offerings}
    taken: Counter[tuple[str, str, str]] = Counter()
    for replica in standing:
        key = OfferingKey.parse(replica.offering)
        taken[replica.gpu, key.zone, key.market] += counts.get(replica.offering, 1) * replica.node_count
    full: dict[str, str] = {}
    for each in fitting:
        held = taken[each.gpu, each.zone, each.market.value]
        if each.zone_gpus is not None and held + each.gpu_count > each.zone_gpus:
            full[each.key] = (
                f"takes {each.gpu_count} of the {each.zone_gpus} {each.gpu} in its zone, and {held} are held"
            )
    return full if len(full) < len(fitting) else {}
