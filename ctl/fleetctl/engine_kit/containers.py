"""How an engine's command becomes that of a container of its publisher's image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.node import ContainerLaunch

if TYPE_CHECKING:
    from fleetctl.ports.engine import Engine, LaunchCommand


def container_launch(engine: Engine, command: LaunchCommand, *, version: str) -> ContainerLaunch | None:
    """Return the image and the arguments in it; None for an engine that has none. `version` empty: the image's newest known."""
    container = engine.container
    if container is None:
        return None
    return ContainerLaunch(
        image=container.at(version),
        entrypoint=container.entrypoint,
        args=command.argv[container.replaces + command.host_words :],
    )
