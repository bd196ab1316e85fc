"""How an engine's command becomes that of a container of its image, and what it sees of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.node import ContainerLaunch, Mount
from fleetctl.model.serving import HUB_CACHE_ENV

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import Engine, LaunchCommand


def container_launch(engine: Engine, command: LaunchCommand, lane: LaneSpec, *, model: str) -> ContainerLaunch | None:
    """Return the image, the arguments in it and its mounts; None for an engine that has no image.

    `model` is what it loads: a directory of weights is seen under its own path, as the hub's cache is.
    """
    container = engine.container
    if container is None:
        return None
    return ContainerLaunch(
        image=lane.launch.image or container.at(lane.engine_version),
        entrypoint=container.entrypoint,
        args=command.argv[container.replaces + command.host_words :],
        mounts=tuple(_mounts(command, lane, model)),
        member_args=command.member_argv[container.replaces + command.host_words :],
    )


def _mounts(command: LaunchCommand, lane: LaneSpec, model: str) -> Iterator[Mount]:
    if model.startswith("/"):
        yield Mount(source=model, target=model, read_only=True)
    if cache := command.env.get(HUB_CACHE_ENV, ""):
        yield Mount(source=cache, target=cache, read_only=False)
    yield from map(Mount.parse, lane.launch.volumes)
