"""What a replica was started as, so that one started by an older profile can be told."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import TYPE_CHECKING

from fleetctl.codec import encode, to_plain
from fleetctl.core.identity_cache import cached_by_identity
from fleetctl.model.plan import LaunchSettings

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.replica import Replica

_DIGITS = 16
# Launch settings that came after replicas were first recorded with what they were started with.
_LATER = frozenset(
    {
        "priority_scheduling", "tool_call_parser", "reasoning_parser", "stream_interval", "performance_mode",
        "long_prefill_tokens", "max_queued_requests", "expert_parallel", "speculation", "pipeline_parallel_local",
        "data_parallel", "adapter_rank", "adapter_slots", "image", "machine_image",
    }
)  # fmt: skip
# A decision asks for every lane's, and for each replica that might be moved; a fleet has a few lanes, in two revisions.
_KNOWN = 64


@cached_by_identity(_KNOWN)
def launch_digest(spec: LaneSpec, planned: LanePlan) -> str:
    """Return the sha256, in short, of everything a lane's replicas are started with: equal digests, equal engines."""
    emulator = to_plain(spec.emulator)
    # What came to the profile later counts only where it is given: replicas of before keep their digest.
    later: dict[str, object] = {
        "version": spec.engine_version,
        "executable": spec.engine_executable,
        "played": emulator.pop("version"),
        "image": spec.launch.image,
        "volumes": spec.launch.volumes,
    }
    given = {key: value for key, value in later.items() if value}
    launch = to_plain(planned.launch)
    for field in fields(LaunchSettings):
        if field.name in _LATER and getattr(planned.launch, field.name) == field.default:
            del launch[field.name]
    for key, image in (("image", planned.launch.image), ("machine_image", planned.launch.machine_image)):
        if image is not None:
            launch[key] = image.id  # by which name it was found changes nothing of it
    if not launch["adapters"]:
        del launch["adapters"]
    started_with = [planned.engine, emulator, launch, planned.gpu, planned.offering.instance_type]
    return hashlib.sha256(encode([*started_with, given] if given else started_with)).hexdigest()[:_DIGITS]


def launched_as(record: Replica, desired: Desired) -> LanePlan | None:
    """Return the lane's plan by which a replica was started, its own lane's first. None: no lane is started so today."""
    if not record.launch_digest:
        return None
    for spec in sorted(desired.profile.lanes, key=lambda lane: lane.name != record.lane):
        planned = desired.plan.lane(spec.name)
        if record.launch_digest == launch_digest(spec, planned):
            return planned
    return None


def is_outdated(record: Replica, desired: Desired) -> bool:
    """Whether a live replica runs with other settings than its lane's next one would.

    One that was moved to its lane from another keeps what it was started with, as long as some lane is started so; one of
    which it was never recorded cannot be judged.
    """
    lanes = {lane.name for lane in desired.profile.lanes}
    if not (record.state.is_live and record.launch_digest and record.lane in lanes):
        return False
    if record.assigned_at is not None:
        return launched_as(record, desired) is None
    return record.launch_digest != launch_digest(desired.profile.lane(record.lane), desired.plan.lane(record.lane))
