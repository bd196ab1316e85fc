"""The packaged starting points: what `fleetctl init` writes."""

from __future__ import annotations

import re

from fleetctl import resources
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.spelling import is_name, suggest

QUICKSTART = "quickstart"
_FOLDER = "use-cases/"


def use_cases() -> tuple[str, ...]:
    """Return the names `starter` knows: quickstart first, then the use cases, those of the user's own included."""
    found = (name for name in resources.available("profiles") if name.startswith(_FOLDER) and name.endswith(".yaml"))
    return (QUICKSTART, *(name.removeprefix(_FOLDER).removesuffix(".yaml") for name in found))


def starter(use_case: str = QUICKSTART, *, name: str = "") -> str:
    """Return the commented YAML of a use case, under another fleet name if one is given.

    Raises NotFoundError naming the nearest use case, and ConfigError for a name no fleet can have.
    """
    known = use_cases()
    if use_case not in known:
        near = suggest(use_case, known)
        raise NotFoundError(f"no use case is called {use_case!r}{near}", hint=f"use cases: {', '.join(known)}")
    file = f"{use_case}.yaml" if use_case == QUICKSTART else f"{_FOLDER}{use_case}.yaml"
    text = resources.find("profiles", file).read_text(encoding="utf-8")
    if not name:
        return text
    if not is_name(name):
        raise ConfigError(
            f"{name!r} is not a fleet name",
            hint="write lower-case letters, digits and dashes, a letter first, 40 at most",
        )
    return re.sub(r"(?m)^name:.*$", f"name: {name}", text, count=1)
