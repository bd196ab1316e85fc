"""A replica's record when its node is requested, live and simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.plan.kv import replica_kv_tokens
from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.model.replica import Replica, ReplicaCapacity, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fleetctl.core.shares import MachineRoom
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.decision import LaunchReplica
    from fleetctl.model.desired import Desired


def pending_replica(  # noqa: PLR0913  # what a record is made of
    replica_id: str,
    desired: Desired,
    action: LaunchReplica,
    offerings: Sequence[Offering],
    *,
    continues_streams: bool,
    priority_sign: int = 0,
    vacancy: MachineRoom | None = None,
    now: datetime,
) -> Replica:
    """Return the PENDING record of a launch on the first of these. Raises KeyError for a lane the plan does not have.

    The provider may give any of them: until it has said which, the record holds the dearest one's price, for the caps.
    With `vacancy` it goes to a machine that others are on, which is paid for already. `continues_streams`: whether another replica of its engine may go on with a stream that it began; `priority_sign`: how
    it reads priorities, as in ReplicaCapacity.
    """
    lane = desired.plan.lane(action.lane)
    is_shared = lane.replicas_each_machine > 1
    offering, price = offerings[0], max(each.price_usd_per_hour for each in offerings)
    return Replica(
        id=replica_id,
        fleet=desired.fleet,
        lane=action.lane,
        engine=lane.engine,
        state=ReplicaState.PENDING,
        market=offering.market,
        offering=offering.key,
        gpu=offering.gpu,
        price_usd_per_hour=0.0 if vacancy is not None else price * lane.node_count,
        is_price_known=price == offering.price_usd_per_hour,
        node_count=lane.node_count,
        machine_id=vacancy.machine_id if vacancy is not None else "",
        gpu_indices=vacancy.gpu_indices if vacancy is not None else (),
        machine_usd_per_hour=(vacancy.usd_per_hour if vacancy is not None else price) if is_shared else 0.0,
        created_at=now,
        changed_at=now,
        reason=action.reason,
        capacity=ReplicaCapacity(
            max_model_len=lane.launch.max_model_len,
            max_num_seqs=lane.sequences_max,
            precision=lane.launch.quantization,
            continues_streams=continues_streams,
            priority_sign=priority_sign,
            caches_prefixes=lane.launch.prefix_caching,
            kv_tokens=replica_kv_tokens(desired.plan, lane),
        ),
        served_name=lane.launch.served_name,
        engine_version=desired.profile.lane(action.lane).engine_version,
        launch_digest=launch_digest(desired.profile.lane(action.lane), lane),
        replaces=action.replaces,
    )
