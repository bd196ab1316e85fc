"""The gateway's certificate as a profile names it: whether it can be served, and what is trusted by our own clients."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.certificates import read_certificate, server_context
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.model.tls import EXPIRES_SOON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from fleetctl.errors import KeyPath
    from fleetctl.model.profile import Profile
    from fleetctl.model.tls import TlsSpec
    from fleetctl.operations.site import Site

_KEY: KeyPath = ("gateway", "tls")
_RENEW = "have it renewed: the gateway takes the new one as soon as it is there"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def tls_errors(profile: Profile, now: datetime) -> Iterator[ConfigError]:
    """Yield why no client could be served by the certificate that a profile names."""
    tls = _of_files(profile)
    if tls is None:
        return
    try:
        server_context(tls.certificate, tls.key)
        found = read_certificate(tls.certificate)
    except ConfigError as exc:
        exc.key = _KEY
        yield exc
        return
    wrong = ""
    if now < found.not_before:
        wrong = f"is valid from {found.not_before:%Y-%m-%d %H:%M} UTC on only"
    elif now >= found.not_after:
        wrong = f"ended at {found.not_after:%Y-%m-%d %H:%M} UTC"
    if wrong:
        yield ConfigError(
            f"the gateway's certificate {tls.certificate} {wrong}: no client takes it", hint=_RENEW, key=_KEY
        )


def tls_findings(profile: Profile, now: datetime) -> Iterator[Finding]:
    """Yield what is to be said of a certificate that can be served. Nothing where its files are not here."""
    tls = _of_files(profile)
    if tls is None:
        yield from _of_secret(profile)
        return
    try:
        found, mode = read_certificate(tls.certificate), Path(tls.key).stat().st_mode
    except (ConfigError, OSError):
        return  # an error of `tls_errors`
    text = f"{tls.certificate} is valid until {found.not_after:%Y-%m-%d %H:%M} UTC"
    if found.not_after - now < EXPIRES_SOON:
        yield Finding(name="certificate", verdict=Verdict.WARN, detail=text, hint=_RENEW)
    else:
        yield Finding(name="certificate", verdict=Verdict.OK, detail=text)
    if mode & _OTHERS:
        detail, hint = f"others than its owner have rights on {tls.key} ({stat.filemode(mode)})", f"chmod 600 {tls.key}"
        yield Finding(name="certificate's key", verdict=Verdict.WARN, detail=detail, hint=hint)


def _of_secret(profile: Profile) -> Iterator[Finding]:
    """Yield that a gateway of this machine has nothing of a Secret, which is in a pod alone."""
    tls = profile.gateway.tls
    if tls is not None and profile.host_choice.is_local and not Path(tls.files.certificate).exists():
        detail = (
            f"the Secret {tls.secret} is not at {tls.files.certificate}: a gateway that runs here would serve nobody"
        )
        hint = "write `host: kubernetes`, render --target in-cluster, or name certificate and key"
        yield Finding(name="certificate", verdict=Verdict.WARN, detail=detail, hint=hint)


def trusted_certificate(profile: Profile) -> str:
    """Return the PEM of the one certificate that our own clients take of a gateway of this machine; empty: it serves in clear.

    Raises ConfigError where it cannot be read here.
    """
    tls = profile.gateway.tls
    if tls is None or not profile.host_choice.is_local:
        return ""
    return read_certificate(tls.files.certificate).pem


def served_certificate(site: Site, profile: Profile) -> str:
    """Return the same of a gateway wherever it runs: of one elsewhere what its controller says of it, over a way of its own.

    Raises UnavailableError, ConfigError.
    """
    if profile.gateway.tls is None or profile.host_choice.is_local:
        return trusted_certificate(profile)
    found = site.host.status(profile.name).certificate
    if found is None or not found.pem:
        raise UnavailableError(
            f"the gateway of {profile.name} has no certificate to be known by", hint=f"fleetctl status {profile.name}"
        )
    return found.pem


def _of_files(profile: Profile) -> TlsSpec | None:
    """Return the certificate of a profile that names files: those of a Secret are in the gateway's pod alone."""
    tls = profile.gateway.tls
    return tls if tls is not None and not tls.secret else None
