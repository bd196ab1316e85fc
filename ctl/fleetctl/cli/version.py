"""`fleetctl version`."""

import platform
from importlib.metadata import version as installed_version

from fleetctl.cli.options import Output
from fleetctl.cli.output import Format, View, emit, lines


def version(output: Output = Format.TABLE) -> None:
    """Print the version."""
    value = {
        "fleetctl": installed_version("fleetctl"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    text = f"fleetctl {value['fleetctl']} (Python {value['python']}, {value['platform']})"
    emit(View(value=value, names=(value["fleetctl"],), sections=(lines(text),)), output)
