"""Images are kept with a fleet's plan by their digests: what is up stays, and what is named otherwise, or asked for, is looked up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.errors import ProviderError
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.profile import LaunchOverrides
from fleetctl.operations.image_pins import pin_images
from fleetctl.operations.pending import pending_changes
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from tests.image_registry import ImageRegistry, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site
    from tests.sites import FakeSite

NAME = "engines/vllm"


@dataclass
class SetImages:
    """A provider whose own image is set, and whose own registry is `own/`."""

    container_image: str = ""
    machine_image: str = ""
    newest: str = "ami-1"

    async def machine_image_id(self) -> str:
        if not self.newest:
            raise ProviderError("there is none under this name")
        return self.newest

    async def digest_of(self, image: str) -> str:
        return f"sha256:{'0' * 64}" if image.startswith("own/") else ""


@pytest.fixture
def registry() -> Iterator[ImageRegistry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def images(fakes: FakeSite) -> SetImages:
    """The images of the site's provider, which runs containers."""
    images = SetImages()
    fakes.provider.capabilities = replace(fakes.provider.capabilities, images=images)
    return images


@pytest.fixture
def site(fakes: FakeSite, images: SetImages) -> Site:
    return replace(fakes.site, engines=load_engine)


def of_vllm(image: str) -> tuple[Profile, Plan]:
    """Return a profile whose first lane names an image, and its plan; the second's engine names none."""
    profile, plan = samples.profile(), samples.plan()
    short = replace(profile.lanes[0], engine="vllm", launch=LaunchOverrides(image=image))
    planned = replace(plan.lanes[0], engine="vllm")
    return replace(profile, lanes=(short, profile.lanes[1])), replace(plan, lanes=(planned, plan.lanes[1]))


async def pinned(site: Site, image: str, *, refreshes: bool = False) -> tuple[Profile, Plan, tuple[str, ...]]:
    profile, plan = of_vllm(image)
    found = await pin_images(site, profile, plan, refreshes=refreshes)
    return profile, found.plan, found.cautions


def brought_up(site: Site, profile: Profile, plan: Plan) -> None:
    site.store.put_fleet(profile, plan, now=samples.EPOCH)


async def test_a_tag_that_moves_moves_no_fleet_that_is_up_until_it_is_asked_to(
    site: Site, registry: ImageRegistry, images: SetImages
) -> None:
    image = f"{registry.host}/{NAME}:v1"
    first = registry.push(NAME, "v1", "first")
    profile, plan, cautions = await pinned(site, image)
    kept = PinnedImage(source=image, id=f"{registry.host}/{NAME}@{first}")
    assert (plan.lane("short").launch.image, plan.lane("long").launch.image, cautions) == (kept, None, ())
    brought_up(site, profile, plan)

    second = registry.push(NAME, "v1", "second")
    _, again, _ = await pinned(site, image)
    assert again == plan, "the same profile changes nothing"
    assert pending_changes(site, profile, again).is_empty

    _, fresh, _ = await pinned(site, image, refreshes=True)
    assert fresh.lane("short").launch.image == replace(kept, id=f"{registry.host}/{NAME}@{second}")
    changes = pending_changes(site, profile, fresh).plan
    assert [(each.lane, each.field.value) for each in changes] == [("short", "image")]
    assert launch_digest(profile.lane("short"), fresh.lane("short")) != launch_digest(
        profile.lane("short"), plan.lane("short")
    )


async def test_another_image_in_the_profile_is_looked_up(site: Site, registry: ImageRegistry) -> None:
    registry.push(NAME, "v1", "first")
    brought_up(site, *(await pinned(site, f"{registry.host}/{NAME}:v1"))[:2])
    digest = registry.push(NAME, "v2", "second")
    _, plan, _ = await pinned(site, f"{registry.host}/{NAME}:v2")
    image = plan.lane("short").launch.image
    assert image is not None
    assert image.id == f"{registry.host}/{NAME}@{digest}"


async def test_an_image_by_its_digest_is_left_alone(site: Site, registry: ImageRegistry) -> None:
    _, plan, cautions = await pinned(site, f"{registry.host}/{NAME}@sha256:{'a' * 64}")
    assert (plan.lane("short").launch.image, cautions, registry.seen) == (None, (), [])


async def test_without_an_answer_an_image_goes_by_its_tag_or_stays_as_it_was(
    site: Site, registry: ImageRegistry
) -> None:
    image = f"{registry.host}/{NAME}:v1"
    profile, plan, cautions = await pinned(site, image)
    assert plan.lane("short").launch.image is None
    assert cautions == (
        f"{image} is started by its tag, and is not pinned: {registry.host} has no {NAME} with tag v1 (404)",
    )
    brought_up(site, profile, plan)

    # Once there is an answer nothing that runs is replaced for that alone, but with what is replaced anyway.
    digest = registry.push(NAME, "v1", "first")
    _, again, cautions = await pinned(site, image)
    assert again == plan
    assert cautions == (f"{image} is started by its tag, as before: --refresh-images pins it, by a rollout",)
    flag = replace(plan.lanes[0], launch=replace(plan.lanes[0].launch, extra_args=("--seed", "1")))
    changed = await pin_images(site, profile, replace(plan, lanes=(flag, plan.lanes[1])))
    kept = changed.plan.lane("short").launch.image
    assert kept is not None
    assert kept.id.endswith(digest)

    brought_up(site, profile, changed.plan)
    registry.status = 503
    refreshed = await pin_images(site, profile, changed.plan, refreshes=True)
    assert refreshed.plan == changed.plan
    assert refreshed.cautions == (f"{image} stays at {kept.id}: {registry.host} answers 503 for {NAME}",)


async def test_a_saved_plan_is_applied_with_the_images_it_was_saved_with(site: Site, registry: ImageRegistry) -> None:
    image = f"{registry.host}/{NAME}:v1"
    registry.push(NAME, "v1", "first")
    profile, saved, _ = await pinned(site, image)
    registry.push(NAME, "v1", "second")
    assert (await pin_images(site, profile, saved)).plan == saved


async def test_engines_without_an_image_of_their_own_have_the_providers(
    site: Site, registry: ImageRegistry, images: SetImages
) -> None:
    images.container_image = f"{registry.host}/emulator:1"
    digest = registry.push("emulator", "1", "emulated")
    _, plan, _ = await pinned(site, "own/vllm:1")
    short, long = (plan.lane(name).launch.image for name in ("short", "long"))
    assert short == PinnedImage(source="own/vllm:1", id=f"own/vllm@sha256:{'0' * 64}")
    assert long == PinnedImage(source=images.container_image, id=f"{registry.host}/emulator@{digest}")
    assert len([path for _, path, _ in registry.seen if path.startswith("/v2/")]) == 2, "once, and with its token"


async def test_a_machine_image_stays_too_though_a_newer_one_is_published(
    site: Site, registry: ImageRegistry, images: SetImages
) -> None:
    digested = f"{NAME}@sha256:{'a' * 64}"
    images.machine_image, images.newest = "ssm:/images/latest", ""
    _, plan, cautions = await pinned(site, digested)
    assert [lane.launch.machine_image for lane in plan.lanes] == [None, None]
    assert cautions == ("ssm:/images/latest is looked up at the first order: there is none under this name",)

    images.newest = "ami-1"
    profile, plan, _ = await pinned(site, digested)
    first = PinnedImage(source="ssm:/images/latest", id="ami-1")
    assert {lane.launch.machine_image for lane in plan.lanes} == {first}
    brought_up(site, profile, plan)

    images.newest = "ami-2"
    assert (await pinned(site, digested))[1:] == (plan, ())
    _, fresh, _ = await pinned(site, digested, refreshes=True)
    assert {lane.launch.machine_image for lane in fresh.lanes} == {replace(first, id="ami-2")}
    changes = pending_changes(site, profile, fresh).plan
    assert [(each.field.value, each.old, each.new) for each in changes if each.lane == "short"] == [
        ("machine image", "ami-1 (ssm:/images/latest)", "ami-2 (ssm:/images/latest)")
    ]
    images.machine_image = images.newest = "ami-3"
    _, named, _ = await pinned(site, digested)
    assert {str(lane.launch.machine_image) for lane in named.lanes} == {"ami-3"}


async def test_a_fleet_of_an_earlier_version_is_not_replaced_for_its_machine_image(
    site: Site, images: SetImages
) -> None:
    digested = f"{NAME}@sha256:{'a' * 64}"
    profile, plan, _ = await pinned(site, digested)
    brought_up(site, profile, plan)
    images.machine_image = "ssm:/images/latest"
    assert (await pinned(site, digested))[1:] == (plan, ())


async def test_providers_that_run_no_containers_have_none_looked_up(fakes: FakeSite, registry: ImageRegistry) -> None:
    profile, plan = of_vllm(f"{registry.host}/{NAME}:v1")
    found = await pin_images(replace(fakes.site, engines=load_engine), profile, plan)
    assert (found.plan, found.cautions, registry.seen) == (plan, (), [])
