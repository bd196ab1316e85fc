"""`fleetctl version`."""

import platform
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, lines


def version(output: Output = Format.TABLE) -> None:
    """Print the version."""
    value = {
        "fleetctl": installed_version("fleetctl"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "compiled": _is_compiled(),
    }
    compiled = ", compiled" if value["compiled"] else ""
    text = f"fleetctl {value['fleetctl']} (Python {value['python']}, {value['platform']}{compiled})"
    emit(View(value=value, names=(str(value["fleetctl"]),), sections=(lines(text),)), output)


def _is_compiled() -> bool:
    """Whether this is the build of `./install.sh --compiled`, told without loading what it compiles."""
    found = find_spec("fleetctl.core.routing")
    places = found.submodule_search_locations if found is not None else None
    return any(Path(place, f"picker{suffix}").exists() for place in places or () for suffix in EXTENSION_SUFFIXES)
