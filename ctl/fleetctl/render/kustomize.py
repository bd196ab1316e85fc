"""The objects of a plan as a kustomize base: overlays of one's own set namespace, images and replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.render.object_file import yaml_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.render.object_file import ObjectFile

DIRECTORY = "kustomize/base"


def render_kustomize(files: Mapping[str, ObjectFile]) -> dict[str, str]:
    """Return the base by relative paths: the files, and a kustomization that names each."""
    # Labels are the objects' own, and selectors hang on them: none are added here.
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(files),
    }
    written = {f"{DIRECTORY}/{name}": each.text for name, each in files.items()}
    return dict(sorted({f"{DIRECTORY}/kustomization.yaml": yaml_of((kustomization,)), **written}.items()))
