"""Which GPUs a Kubernetes node has by what discovery, clouds and Karpenter say of it, from profiles/node-gpus.yaml and EC2's types."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from fleetctl import codec, resources
from fleetctl.catalogue.kubernetes_nodes import (
    AMD_GPU,
    AMD_PRODUCT,
    GKE_ACCELERATOR,
    GPU,
    GPU_NAME,
    INSTANCE_TYPE,
    PRODUCT,
)
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import GpuVendor
from fleetctl.yaml_text import load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE, _EC2_FILE = "node-gpus.yaml", "aws-prices.yaml"
_OF_AMD = "AMD_"  # begins what its node labeller calls its GPUs


class NodeGpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The catalogue's GPU by what a label of a node says."""

    products: dict[str, str] = {}  # discovery's; it has others too, whose words have to be read
    amd_products: dict[str, str] = {}  # of AMD's node labeller, which has others too
    gke_accelerators: dict[str, str] = {}
    gpu_names: dict[str, str] = {}
    instance_types: dict[str, tuple[str, int]] = {}  # with how many of them a machine has

    def product_of(self, labels: Mapping[str, str], *, gpus: str = GPU) -> str:
        """Return which label's value stands for a node's GPUs of a resource, discovery's own first; empty: no label says which they are."""
        for key in (AMD_PRODUCT if gpus == AMD_GPU else PRODUCT, GKE_ACCELERATOR, GPU_NAME, INSTANCE_TYPE):
            value = labels.get(key, "")
            if value and self.label_of(value) == key:
                return value
        return ""

    def label_of(self, product: str) -> str:
        """Return the label whose value this is, by which a pod is kept to nodes with such GPUs."""
        if product in self.gke_accelerators:
            return GKE_ACCELERATOR
        if product in self.gpu_names:
            return GPU_NAME
        if product in self.amd_products or product.startswith(_OF_AMD):
            return AMD_PRODUCT
        return INSTANCE_TYPE if product in self.instance_types else PRODUCT

    def gpu_of(self, product: str) -> str:
        """Return the catalogue's name; empty: it is a product of discovery's in no list, whose words have to be read."""
        of_type = self.instance_types.get(product, ("", 0))[0]
        named = self.gke_accelerators.get(product) or self.gpu_names.get(product) or of_type
        return named or self.products.get(product) or self.amd_products.get(product, "")

    def labels_of(self, gpu: str) -> dict[str, tuple[str, ...]]:
        """Return the labels by any of which a node is known to have this GPU of the catalogue, each with its values."""
        named = {
            PRODUCT: self.products,
            AMD_PRODUCT: self.amd_products,
            GKE_ACCELERATOR: self.gke_accelerators,
            GPU_NAME: self.gpu_names,
            INSTANCE_TYPE: {name: of_type for name, (of_type, _) in self.instance_types.items()},
        }
        values = {key: tuple(sorted(value for value in each if each[value] == gpu)) for key, each in named.items()}
        return {key: found for key, found in values.items() if found}

    def count_of(self, product: str) -> int:
        """Return how many GPUs a machine of an instance type has; 0: it is no instance type that is known."""
        return self.instance_types.get(product, ("", 0))[1]


def resource_of(product: str) -> str:
    """Return what a pod asks for to have GPUs of a product: the resource of its vendor's device plugin."""
    known = node_gpus()
    label = known.label_of(product)
    # All other labels are NVIDIA's own, or of clouds that have none but NVIDIA's there.
    return gpu_resource(known.gpu_of(product)) if label == INSTANCE_TYPE else AMD_GPU if label == AMD_PRODUCT else GPU


def gpu_resource(gpu: str) -> str:
    """Return the same of a GPU of the catalogue; of one that it lacks NVIDIA's."""
    from fleetctl.catalogue.known import load_catalogue  # YAML, which not every command that opens the provider needs

    known = load_catalogue().gpus.get(gpu)
    return AMD_GPU if known is not None and known.vendor is GpuVendor.AMD else GPU


def node_gpus() -> NodeGpus:
    """Return all that is known; the user's own file adds to the shipped one. Raises ConfigError."""
    # The release's own: a price list of somebody's own need not have the GPUs of each type.
    ec2 = resources.packaged("profiles") / _EC2_FILE
    own = [path for root in reversed(list(resources.roots("profiles"))) if (path := root / _FILE).is_file()]
    return _read((ec2, *own), tuple(path.stat().st_mtime_ns for path in (ec2, *own)))


@lru_cache(maxsize=4)
def _read(paths: tuple[Path, ...], changed_ns: tuple[int, ...]) -> NodeGpus:
    """Return what files say in all, the later over the earlier; `changed_ns` has a changed one read again."""
    del changed_ns
    found = NodeGpus()
    for path in paths:
        tree = _tree(path)
        more = _decoded({"instance_types": tree.get("gpus") or {}} if path.name == _EC2_FILE else tree, path)
        found = NodeGpus(
            products=found.products | more.products,
            amd_products=found.amd_products | more.amd_products,
            gke_accelerators=found.gke_accelerators | more.gke_accelerators,
            gpu_names=found.gpu_names | more.gpu_names,
            instance_types=found.instance_types | more.instance_types,
        )
    return found


def _tree(path: Path) -> dict[str, object]:
    import yaml

    try:
        tree = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ConfigError(f"{path}: cannot be read as YAML: {exc}") from exc
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: is not a section of entries by name")
    return tree


def _decoded(tree: dict[str, object], path: Path) -> NodeGpus:
    try:
        return codec.from_plain(NodeGpus, tree)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"{path}: {exc}") from exc
