"""The models and the GPUs of a profile: open names, checked against what is known."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.known import load_catalogue
from fleetctl.config.faults import ProfileFault
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from fleetctl.errors import KeyPath

_SHOWN_MAX = 6
# What a driver calls a part of a GPU: "H100-80GB-HBM3-MIG-3g.40gb". Of whichever GPU, its provider has the figures.
_MIG_INSTANCE = re.compile(r".+-MIG-\d+[gc][\w.+-]*")


def name_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield a fault for every such name in the raw tree; what is no text is the shape's to refuse.

    Raises ConfigError for a catalogue of the user's own that cannot be read.
    """
    catalogue = load_catalogue()
    models: list[tuple[KeyPath, dict[str, Any]]] = [(("model",), _section(tree, "model"))]
    several = _section(tree, "models")
    models += [(("models", name), _section(several, name)) for name in several]
    for path, model in models:
        if model.get("path"):  # of that the weights' own config.json says everything, and planning reads it
            continue
        mend = f"add it with `fleetctl model add ID` (or a directory with its config.json), or give {'.'.join(map(str, path))}.path"
        yield from _unknown((*path, "id"), model.get("id"), catalogue.models, "a known model", mend)
    gpus = _section(tree, "capacity").get("gpus")
    for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
        mend = "add it to gpus.yaml in your profiles directory"
        if not (isinstance(gpu, str) and may_be_named(gpu, catalogue.gpus)):
            yield from _unknown(("capacity", "gpus", index), gpu, catalogue.gpus, "a known GPU", mend)


def may_be_named(gpu: str, known: Collection[str]) -> bool:
    """Whether a profile may name this GPU: the catalogue knows it, or it is a MIG instance."""
    return gpu in known or _MIG_INSTANCE.fullmatch(gpu) is not None


def _unknown(path: KeyPath, named: object, known: Collection[str], what: str, mend: str = "") -> Iterator[ProfileFault]:
    if isinstance(named, str) and named and named not in known:
        verb = what.split()[1]
        message = f"{named!r} is not {what}{suggest(named, known)}; {verb}: {_nearest(named, known)}"
        yield ProfileFault(path=path, message=f"{message}; {mend}" if mend else message)


def _nearest(named: str, known: Collection[str]) -> str:
    """Return the known names, or where they are many those most like this one."""
    if len(known) <= _SHOWN_MAX:
        return ", ".join(sorted(known))
    near = difflib.get_close_matches(named, known, n=_SHOWN_MAX, cutoff=0.0)
    return f"{', '.join(near)} and {len(known) - len(near)} more"


def _section(tree: dict[str, Any], key: str) -> dict[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, dict) else {}
