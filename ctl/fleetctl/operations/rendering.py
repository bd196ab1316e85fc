"""Writes a plan's launch configurations into a directory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fleetctl import codec, plugins
from fleetctl.errors import ConfigError
from fleetctl.files import write_whole
from fleetctl.model.kubernetes_addition import NO_ADDITIONS
from fleetctl.operations.rocm_builds import rocm_cautions
from fleetctl.render.helm import render_helm
from fleetctl.render.in_cluster import ClusterPlace, render_in_cluster
from fleetctl.render.kubernetes import kubernetes_files, render_manifests
from fleetctl.render.kustomize import render_kustomize
from fleetctl.render.lane import rendered_engine
from fleetctl.render.plan import render_plan
from fleetctl.render.prometheus import render_rules
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.model.kubernetes_addition import KubernetesAdditions
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site
    from fleetctl.ports.engine import Engine
    from fleetctl.render.object_file import ObjectFile


class RenderTarget(StrEnum):
    """What launch configurations are written for."""

    MACHINES = "machines"  # argv, environment, a systemd unit, a compose file
    KUBERNETES = "kubernetes"  # manifests
    KUSTOMIZE = "kustomize"  # the same as a base for overlays
    HELM = "helm"  # the same as a chart
    CLOUDFORMATION = "cloudformation"  # what a fleet's nodes share, for whoever may make it
    TERRAFORM = "terraform"  # the same
    IN_CLUSTER = "in-cluster"  # controller and gateway, which make the engines' pods themselves


SHARED_PARTS = frozenset({RenderTarget.CLOUDFORMATION, RenderTarget.TERRAFORM})
_ObjectTarget = Literal[RenderTarget.KUBERNETES, RenderTarget.KUSTOMIZE, RenderTarget.HELM]
MANIFEST = ".fleetctl-render.json"  # which files were written here, and what was in them


@dataclass(frozen=True, slots=True, kw_only=True)
class InCluster:
    """What manifests of a fleet's own processes need beside its plan."""

    written: Mapping[str, Any]  # the profile, as its file says it
    namespace: str
    image: str
    is_state_on_claim: bool = False


def render(  # noqa: PLR0913  # what is written, and for what
    site: Site,
    profile: Profile,
    plan: Plan,
    *,
    engine: str = "",
    target: RenderTarget = RenderTarget.MACHINES,
    additions: KubernetesAdditions = NO_ADDITIONS,
    cluster: InCluster | None = None,
) -> dict[str, str]:
    """Return every launch file of the plan, and the rules for Prometheus, by relative path.

    They are for the profile's engines, or for `engine` everywhere. An emulated lane is rendered for the engine it plays: its
    header says so. RenderTarget.IN_CLUSTER needs `cluster`. Raises ConfigError, NotFoundError.
    """
    installed = plugins.installed(plugins.ENGINES)
    if engine and engine not in installed:
        raise ConfigError(
            f"cannot render for {engine!r}{suggest(engine, installed)}", hint=f"installed: {', '.join(installed)}"
        )
    if target in (RenderTarget.MACHINES, RenderTarget.IN_CLUSTER) and additions.kinds:
        chosen = ", ".join(sorted(additions.kinds))
        raise ConfigError(f"no {chosen} on {target.value}", hint="--with is for --target kubernetes, kustomize or helm")
    if target is RenderTarget.MACHINES:
        files = render_plan(profile, plan, lru_cache(site.engines), override=engine)
    elif target is RenderTarget.IN_CLUSTER:
        files = _in_cluster(profile, plan, lru_cache(site.engines), engine, cluster)
    elif target in (RenderTarget.CLOUDFORMATION, RenderTarget.TERRAFORM):
        raise ConfigError(f"{target.value} is written of no plan", hint="call shared_parts_to")
    else:
        objects = kubernetes_files(profile, plan, lru_cache(site.engines), override=engine, additions=additions)
        files = _of_target(plan, objects, target)
    files |= render_rules(profile)
    return dict(sorted(files.items()))


def render_cautions(site: Site, profile: Profile, plan: Plan, *, engine: str = "") -> tuple[str, ...]:
    """Return what is to be seen to before the files are used, a sentence each."""
    engine_of = lru_cache(site.engines)
    return (*rocm_cautions(profile, plan, lambda lane: rendered_engine(engine_of, lane, engine)),)


def shared_parts_to(
    site: Site, profile: Profile, target: RenderTarget, directory: Path, *, force: bool = False
) -> list[Path]:
    """Write what a tool makes what a fleet's nodes share of; return the paths, sorted. It takes no plan, and no call.

    As `render_to` writes. Raises ConfigError where the provider has nothing to write for this tool.
    """
    infrastructure = site.provider_of(profile).capabilities.infrastructure
    if infrastructure is None or target.value not in infrastructure.tools:
        raise ConfigError(
            f"provider {profile.provider} has no shared parts to write for {target.value}",
            hint="its nodes share nothing that somebody else could make, or it makes all of it itself",
        )
    return _written_to(infrastructure.files(target.value, profile), directory, force=force)


def _in_cluster(
    profile: Profile, plan: Plan, engine_of: Callable[[str], Engine], engine: str, cluster: InCluster | None
) -> dict[str, str]:
    if engine or cluster is None:
        raise ConfigError(
            "the engines of a fleet that a cluster keeps are its profile's own", hint="leave --engine out"
        )
    place = ClusterPlace(namespace=cluster.namespace, image=cluster.image, is_state_on_claim=cluster.is_state_on_claim)
    return render_in_cluster(profile, plan, engine_of, written=cluster.written, place=place)


def _of_target(plan: Plan, objects: dict[str, ObjectFile], target: _ObjectTarget) -> dict[str, str]:
    match target:
        case RenderTarget.KUSTOMIZE:
            return render_kustomize(objects)
        case RenderTarget.HELM:
            return render_helm(plan, objects)
        case _:
            return render_manifests(objects)


def render_to(  # noqa: PLR0913  # what it writes, where and how
    site: Site,
    profile: Profile,
    plan: Plan,
    directory: Path,
    *,
    engine: str = "",
    target: RenderTarget = RenderTarget.MACHINES,
    additions: KubernetesAdditions = NO_ADDITIONS,
    cluster: InCluster | None = None,
    force: bool = False,
) -> list[Path]:
    """Write the launch files below `directory`, each atomically; return their paths, sorted.

    A file that is there and is not as this wrote it (somebody else's, or changed since) is left alone unless `force`;
    then nothing is written at all. Raises ConfigError naming every such file.
    """
    files = render(site, profile, plan, engine=engine, target=target, additions=additions, cluster=cluster)
    return _written_to(files, directory, force=force)


def _written_to(files: dict[str, str], directory: Path, *, force: bool) -> list[Path]:
    try:
        return _write_all(files, directory, force=force)
    except OSError as exc:
        raise ConfigError(f"cannot write to {directory}: {exc}", hint="name a directory you may write to") from exc


def _write_all(files: dict[str, str], directory: Path, *, force: bool) -> list[Path]:
    written = _manifest(directory)
    strange = [path for path in files if _is_strange(directory / path, written.get(path), files[path])]
    if strange and not force:
        raise ConfigError(
            f"not overwritten, since fleetctl did not write them or they were changed: {', '.join(strange)}",
            hint=f"render into another directory than {directory}, or force it",
        )
    for path, text in files.items():
        _write(directory / path, text, executable=path.endswith(".sh"))
    # Files of lanes that are gone stay known: a later render still recognises them as its own.
    hashes = written | {path: _digest(text.encode()) for path, text in files.items()}
    _write(directory / MANIFEST, codec.encode(dict(sorted(hashes.items()))).decode() + "\n", executable=False)
    return [directory / path for path in files]


def _manifest(directory: Path) -> dict[str, str]:
    path = directory / MANIFEST
    try:
        return codec.decode(dict[str, str], path.read_bytes())
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as exc:
        raise ConfigError(f"{path} is damaged: {exc}", hint="remove it, and force the next render") from exc


def _is_strange(path: Path, known: str | None, wanted: str) -> bool:
    try:
        found = _digest(path.read_bytes())
    except FileNotFoundError:
        return False
    return found not in (known, _digest(wanted.encode()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, text: str, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode(), mode=0o755 if executable else 0o644, is_durable=True)
