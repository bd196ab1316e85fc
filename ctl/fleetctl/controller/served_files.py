"""Where the gateway finds its certificate on the machine that it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.tls import TlsFiles

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile
    from fleetctl.paths import FleetPaths


def served_files(profile: Profile, paths: FleetPaths) -> TlsFiles | None:
    """Return the files that clients are served by; None: they are served in clear.

    A profile names files of the machine that `up` runs on: on any other host they are where they were brought to.
    """
    tls = profile.gateway.tls
    if tls is None or tls.secret or profile.host_choice.is_local:
        return tls.files if tls is not None else None
    return TlsFiles(certificate=str(paths.certificate), key=str(paths.certificate))
