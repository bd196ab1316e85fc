"""Writes a plan's launch configurations into a directory."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from fleetctl import codec, plugins
from fleetctl.errors import ConfigError
from fleetctl.files import write_whole
from fleetctl.model.kubernetes_addition import NO_ADDITIONS
from fleetctl.render.helm import render_helm
from fleetctl.render.kubernetes import kubernetes_files, render_manifests
from fleetctl.render.kustomize import render_kustomize
from fleetctl.render.plan import render_plan
from fleetctl.render.prometheus import render_rules
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.kubernetes_addition import KubernetesAdditions
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site
    from fleetctl.render.kubernetes import ObjectFile


class RenderTarget(StrEnum):
    """What launch configurations are written for."""

    MACHINES = "machines"  # argv, environment, a systemd unit, a compose file
    KUBERNETES = "kubernetes"  # manifests
    KUSTOMIZE = "kustomize"  # the same as a base for overlays
    HELM = "helm"  # the same as a chart


MANIFEST = ".fleetctl-render.json"  # which files were written here, and what was in them


def render(
    site: Site,
    profile: Profile,
    plan: Plan,
    *,
    engine: str = "",
    target: RenderTarget = RenderTarget.MACHINES,
    additions: KubernetesAdditions = NO_ADDITIONS,
) -> dict[str, str]:
    """Return every launch file of the plan, and the rules for Prometheus, by relative path.

    They are for the profile's engines, or for `engine` everywhere. An emulated lane is rendered for the engine it plays: its
    header says so. Raises ConfigError, NotFoundError.
    """
    installed = plugins.installed(plugins.ENGINES)
    if engine and engine not in installed:
        raise ConfigError(
            f"cannot render for {engine!r}{suggest(engine, installed)}", hint=f"installed: {', '.join(installed)}"
        )
    if target is RenderTarget.MACHINES:
        if additions.kinds:
            chosen = ", ".join(sorted(additions.kinds))
            raise ConfigError(f"no {chosen} on machines", hint="--with is for --target kubernetes, kustomize or helm")
        files = render_plan(profile, plan, lru_cache(site.engines), override=engine)
    else:
        objects = kubernetes_files(profile, plan, lru_cache(site.engines), override=engine, additions=additions)
        files = _of_target(plan, objects, target)
    files |= render_rules(profile)
    return dict(sorted(files.items()))


def _of_target(plan: Plan, objects: dict[str, ObjectFile], target: RenderTarget) -> dict[str, str]:
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
    force: bool = False,
) -> list[Path]:
    """Write the launch files below `directory`, each atomically; return their paths, sorted.

    A file that is there and is not as this wrote it (somebody else's, or changed since) is left alone unless `force`;
    then nothing is written at all. Raises ConfigError naming every such file.
    """
    files = render(site, profile, plan, engine=engine, target=target, additions=additions)
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
