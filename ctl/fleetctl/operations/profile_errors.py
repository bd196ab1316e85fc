"""What `plan` and `up` refuse of a profile by itself, before anything is sized: engines, flags, precisions, secrets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import resolve_model
from fleetctl.engine_kit import flags
from fleetctl.engine_kit.flags import flag_errors, planned_errors, reserved_errors
from fleetctl.engine_kit.serving import serving_errors
from fleetctl.engine_kit.weights import precision_errors
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.operations.engine_options import extra_argument_errors
from fleetctl.operations.engine_versions import engine_errors
from fleetctl.operations.multi_node import layout_errors, multi_node_errors
from fleetctl.operations.weights_errors import (
    adapter_errors,
    file_precision_errors,
    format_errors,
    model_key,
    other_model_errors,
    remote_weights_errors,
)
from fleetctl.ports.engine import visible_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fleetctl.errors import KeyPath
    from fleetctl.model.catalogue import Catalogue
    from fleetctl.model.profile import ModelSpec, Profile
    from fleetctl.operations.engine_options import InstalledOptions
    from fleetctl.operations.site import Site


def profile_errors(
    site: Site, profile: Profile, catalogue: Catalogue, installed: Mapping[tuple[str, str], InstalledOptions]
) -> tuple[FleetctlError, ...]:
    """Return everything of a profile that its engines, its provider and its model refuse, whatever the plan."""
    errors = (
        *_collected(("provider",), lambda: _provider_errors(site, profile)),
        *_collected(("provider",), lambda: multi_node_errors(site, profile)),
        *_collected(("provider",), lambda: remote_weights_errors(site, profile)),
        *_collected(("lanes",), lambda: layout_errors(site, profile)),
        *_collected(("lanes",), lambda: _flag_errors(profile, installed)),
        *_collected(("lanes",), lambda: _launch_errors(site, profile, installed)),
        *_collected(("engine",), lambda: engine_errors(site, profile)),
        *(
            error
            for model in profile.models
            for error in _collected(
                (*model_key(profile, model), "path" if model.path else "id"),
                partial(_model_errors, site, profile, model, catalogue),
            )
        ),
    )
    return tuple({(error.key, error.message): error for error in errors}.values())


def keyring_errors(profile: Profile) -> Iterator[ConfigError]:
    """Yield references nothing here can follow yet, now and not when the gateway or an engine needs them."""
    for key, reference in _references(profile):
        if reference.startswith("keyring:"):
            yield ConfigError(
                f"{reference!r} cannot be followed: running fleets read env: and file: references only",
                hint="write env:NAME or file:PATH; keyring: is for rendered files",
                key=key,
            )


def _references(profile: Profile) -> Iterator[tuple[KeyPath, str]]:
    for index, reference in enumerate(profile.gateway.api_keys):
        yield ("gateway", "api_keys", index), reference
    for lane in profile.lanes:
        for name, value in lane.launch.env.items():
            yield ("lanes", lane.name, "launch", "env", name), value


def _collected(key: KeyPath, look: Callable[[], Iterable[FleetctlError]]) -> Iterator[FleetctlError]:
    """Yield what a look finds, and what it raises as a fault of this key."""
    try:
        yield from look()
    except FleetctlError as error:
        error.key = error.key or key
        yield error


def _provider_errors(site: Site, profile: Profile) -> Iterator[FleetctlError]:
    site.provider_of(profile)  # raises, where its package does not load
    yield from ()


def _flag_errors(profile: Profile, installed: Mapping[tuple[str, str], InstalledOptions]) -> Iterator[FleetctlError]:
    """Yield the extra arguments that engines refuse: by their own parsers where they are here, else by the kept lists."""
    for lane in profile.lanes:
        found = installed.get((lane.engine, lane.engine_executable))
        known = found is not None and found.options is not None
        yield from extra_argument_errors(lane, found) if known and found is not None else flag_errors(lane)


def _launch_errors(
    site: Site, profile: Profile, installed: Mapping[tuple[str, str], InstalledOptions]
) -> Iterator[FleetctlError]:
    for lane in profile.lanes:
        capabilities = site.engines(lane.engine).capabilities
        yield from reserved_errors(lane, capabilities)
        yield from planned_errors(lane, capabilities)
        yield from flags.format_errors(lane, profile.model_of(lane).quantization, capabilities)
        found = installed.get((lane.engine, lane.engine_executable))
        yield from serving_errors(lane, site.engines, is_consulted=found is not None and found.options is not None)
        if lane.launch.image and visible_engine(site.engines, lane).container is None:
            yield ConfigError(
                f"lane {lane.name}: fleetctl knows of no container to run {lane.engine} in, so it cannot use {lane.launch.image}",
                hint="leave launch.image out; the other rendered files need none",
                key=("lanes", lane.name, "launch", "image"),
            )


def _model_errors(site: Site, profile: Profile, model: ModelSpec, catalogue: Catalogue) -> Iterator[FleetctlError]:
    card, key = resolve_model(model, catalogue), model_key(profile, model)
    for lane in profile.lanes:
        if profile.model_of(lane) is not model:
            continue
        engine = site.engines(lane.engine)
        own, own_card = lane.own_model(model), card
        if lane.weights is not None:
            own_card = resolve_model(own, catalogue)
            yield from other_model_errors(lane, card, own_card)
        if engine.emulation(lane) is None:
            yield from format_errors(lane, own, engine.capabilities, key)
        yield from file_precision_errors(lane, own, own_card, key)
        yield from precision_errors(lane, own, own_card, engine.capabilities, key)
        yield from adapter_errors(lane, own, visible_engine(site.engines, lane), key)
