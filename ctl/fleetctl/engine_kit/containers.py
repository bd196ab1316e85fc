"""How an engine's command becomes that of a container of its image, and what it sees of the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.node import ContainerLaunch, Mount
from fleetctl.model.remote_weights import remote_weights
from fleetctl.model.serving import HUB_CACHE_ENV

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import LaunchSettings
    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import Engine, LaunchCommand


def container_image(engine: Engine, lane: LaneSpec) -> str:
    """Return the image that a lane's replicas are started out of, as the profile or the engine's package names it; empty: neither does."""
    return "" if engine.container is None else lane.launch.image or engine.container.at(lane.engine_version)


def container_launch(
    engine: Engine, command: LaunchCommand, lane: LaneSpec, launch: LaunchSettings
) -> ContainerLaunch | None:
    """Return the image, the arguments in it and its mounts; None for an engine that has no image.

    An image that was pinned is the one. A directory of weights is seen under its own path, as the hub's cache is, and so is
    one that its node fetches: its command names that directory already (`local_command`).
    """
    container = engine.container
    if container is None:
        return None
    return ContainerLaunch(
        image=launch.image.id if launch.image is not None else container_image(engine, lane),
        entrypoint=container.entrypoint,
        args=command.argv[container.replaces + command.host_words :],
        mounts=tuple(_mounts(command, lane, launch.model)),
        member_args=command.member_argv[container.replaces + command.host_words :],
    )


def local_command(command: LaunchCommand, *, model: str) -> LaunchCommand:
    """Return an engine's command with the directory that its node fetches a model to, in place of where it is from."""
    fetched = remote_weights(model)
    if fetched is None:
        return command
    argv, member_argv = (
        tuple(fetched.directory if part == model else part for part in parts)
        for parts in (command.argv, command.member_argv)
    )
    return replace(command, argv=argv, member_argv=member_argv)


def _mounts(command: LaunchCommand, lane: LaneSpec, model: str) -> Iterator[Mount]:
    fetched = remote_weights(model)
    directory = fetched.directory if fetched is not None else model
    if directory.startswith("/"):
        yield Mount(source=directory, target=directory, read_only=True)
    if cache := command.env.get(HUB_CACHE_ENV, ""):
        yield Mount(source=cache, target=cache, read_only=False)
    yield from map(Mount.parse, lane.launch.volumes)
