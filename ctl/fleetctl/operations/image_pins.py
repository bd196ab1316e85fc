"""Keeps with a fleet's plan what the names of its images stood for, so that its last replica starts what its first did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.engine_kit.containers import container_image
from fleetctl.engine_kit.image_registry import ImageName, image_digest
from fleetctl.errors import FleetctlError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.plan import LaunchSettings, Plan
from fleetctl.ports.images import NodeImages

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

_LOOK_S = 15.0  # for a provider's own credentials first, and then for the registry
_BY_DIGEST = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPlan:
    """A plan with the images of its lanes, and what is to be said of those that go by their names."""

    plan: Plan
    cautions: tuple[str, ...] = ()


async def pin_images(site: Site, profile: Profile, plan: Plan, *, refreshes: bool = False) -> PinnedPlan:
    """Return a plan with each lane's image by its digest, and its machine's by its id.

    What a fleet that is up has stays, as long as the image is named as it was; `refreshes` looks all of them up anew. A
    lane that is up by its image's tag goes on by it while nothing else of its start changes: what runs is not replaced for
    the pin alone. An image that cannot be looked up goes by its tag, and a caution says why.
    """
    images = site.provider_of(profile).capabilities.images
    if images is None:
        return PinnedPlan(plan=plan)
    desired = site.store.fleet(profile.name)
    before = desired if desired is not None and desired.phase is DesiredPhase.UP else None
    pins = _Pins(site, profile, images, before, refreshes=refreshes)
    lanes = [await pins.pinned(lane) for lane in plan.lanes]
    return PinnedPlan(plan=replace(plan, lanes=tuple(lanes)), cautions=tuple(dict.fromkeys(pins.cautions)))


class _Pins:
    """The images of one plan: each name is looked up once."""

    def __init__(
        self, site: Site, profile: Profile, images: NodeImages, before: Desired | None, *, refreshes: bool
    ) -> None:
        self._site = site
        self._profile = profile
        self._images = images
        self._before = before
        self._refreshes = refreshes
        launches = [lane.launch for lane in before.plan.lanes] if before is not None else []
        pinned = [image for each in launches for image in (each.image, each.machine_image) if image is not None]
        self._kept = {image.source: image for image in pinned}
        self._found: dict[str, PinnedImage | None] = {}
        self.cautions: list[str] = []

    async def pinned(self, lane: LanePlan) -> LanePlan:
        """Return a lane's plan with its images; None of one that goes by its name, or has its digest in it."""
        engine, spec = self._site.engines(lane.engine), self._profile.lane(lane.lane)
        source = container_image(engine, spec) or ("" if engine.container is not None else self._images.container_image)
        given, was = lane.launch, self._same_before(lane)
        image = await self._image("" if _BY_DIGEST in source else source, given.image, was, _OF_CONTAINER)
        machine = await self._image(self._images.machine_image, given.machine_image, was, _OF_MACHINE)
        return replace(lane, launch=replace(given, image=image, machine_image=machine))

    async def _image(
        self, source: str, given: PinnedImage | None, was: LaunchSettings | None, kind: _ImageKind
    ) -> PinnedImage | None:
        """Return the image that a name stands for; `given` is a saved plan's, `was` what a lane is up by that is to stay."""
        if not source:
            return None
        if self._refreshes:
            return await self._looked_up(source, kind)
        if given is not None and given.source == source:
            return given
        if was is not None and kind.of(was) is None:
            if kind.goes_on:
                self.cautions.append(kind.goes_on.format(source=source))
            return None
        return self._kept.get(source) or await self._looked_up(source, kind)

    def _same_before(self, lane: LanePlan) -> LaunchSettings | None:
        """Return what a lane is up by, where nothing of its start but the images may change; None: it is new, or changes."""
        before = self._before
        was = next((each for each in before.plan.lanes if each.lane == lane.lane), None) if before is not None else None
        if before is None or was is None:
            return None
        old = launch_digest(before.profile.lane(lane.lane), _without_images(was))
        return was.launch if old == launch_digest(self._profile.lane(lane.lane), _without_images(lane)) else None

    async def _looked_up(self, source: str, kind: _ImageKind) -> PinnedImage | None:
        if source not in self._found:
            self._found[source] = await self._found_now(source, kind)
        return self._found[source]

    async def _found_now(self, source: str, kind: _ImageKind) -> PinnedImage | None:
        try:
            async with asyncio.timeout(_LOOK_S):
                return PinnedImage(source=source, id=await kind.look(self._images, source))
        except TimeoutError:
            fault = f"it was not found within {_LOOK_S:g} s"
        except FleetctlError as exc:
            fault = exc.message
        kept = self._kept.get(source)
        goes_on = f"stays at {kept.id}" if kept is not None else kind.without
        self.cautions.append(f"{source} {goes_on}: {fault}")
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImageKind:
    """What is said and done of containers' images, and of machines'."""

    of: Callable[[LaunchSettings], PinnedImage | None]
    look: Callable[[NodeImages, str], Awaitable[str]]  # what a name stands for
    without: str  # what follows where that cannot be found
    goes_on: str  # what is said of one that is up by its name; empty: nothing


async def _container(images: NodeImages, source: str) -> str:
    digest = await images.digest_of(source) or await image_digest(source)
    return f"{ImageName.parse(source).name}@{digest}"


async def _machine(images: NodeImages, source: str) -> str:
    del source  # it is the provider's own
    return await images.machine_image_id()


_OF_CONTAINER = _ImageKind(
    of=lambda launch: launch.image,
    look=_container,
    without="is started by its tag, and is not pinned",
    goes_on="{source} is started by its tag, as before: --refresh-images pins it, by a rollout",
)
# The provider goes on by the image that the fleet's nodes have.
_OF_MACHINE = _ImageKind(
    of=lambda launch: launch.machine_image, look=_machine, without="is looked up at the first order", goes_on=""
)


def _without_images(lane: LanePlan) -> LanePlan:
    return replace(lane, launch=replace(lane.launch, image=None, machine_image=None))
