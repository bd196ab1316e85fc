"""What clients may call each model: one rule for the gateway, the load generator and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Named(Protocol):
    """A model as far as its names go."""

    @property
    def name(self) -> str:
        """Return its own, by which lanes name it."""
        ...

    @property
    def root(self) -> str:
        """Return its hub id."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return its further names."""
        ...

    @property
    def adapters(self) -> Mapping[str, str]:
        """Return its LoRA adapters: by name, where they lie."""
        ...


def models_by_name(models: Iterable[Named]) -> dict[str, str]:
    """Return for every name that clients may use the own name of its model; a hub id of several is the first one's."""
    known = tuple(models)
    found = {name: model.name for model in known for name in (model.name, *model.adapters)}
    for model in known:
        for name in (*model.aliases, model.root):
            found.setdefault(name, model.name)
    return found
