"""The gateway's TLS: where its certificate lies, and which one it serves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

# certbot renews 30 days before the end, cert-manager after two thirds of the time: whoever comes to less has failed to.
EXPIRES_SOON = timedelta(days=14)
SECRET_AT = "/etc/fleetctl-tls"  # noqa: S105  # where a gateway's pod has its Secret
SECRET_CERTIFICATE, SECRET_KEY = "tls.crt", "tls.key"  # the keys of a Secret of type kubernetes.io/tls


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """A certificate chain and its key as PEM files of the gateway's machine; paths, never what is in them."""

    certificate: str
    key: str


def files_of_secret(directory: str) -> TlsFiles:
    """Return the files of a Secret of type kubernetes.io/tls that is mounted there."""
    return TlsFiles(certificate=f"{directory}/{SECRET_CERTIFICATE}", key=f"{directory}/{SECRET_KEY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSpec:
    """Where a profile says that the gateway's certificate and key lie: in two files, or in a Secret of its cluster."""

    certificate: str = ""
    key: str = ""
    secret: str = ""

    @property
    def files(self) -> TlsFiles:
        """Return where the gateway finds them."""
        if self.secret:
            return files_of_secret(SECRET_AT)
        return TlsFiles(certificate=self.certificate, key=self.key)


def base_url(host: str, port: int, tls: TlsSpec | None) -> str:
    """Return the base URL of a gateway at an address."""
    return f"{scheme_of(tls)}://{f'[{host}]' if ':' in host else host}:{port}"


def scheme_of(tls: TlsSpec | None) -> str:
    """Return the scheme that its clients use."""
    return "http" if tls is None else "https"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCertificate:
    """What a gateway serves; of several the one that ends first, with what is wrong with any."""

    not_after: datetime | None = None  # None: it has none yet, and closes every connection
    fault: str = ""  # why what the files have now is not taken; the one before is served on
    pem: str = ""  # what is served, without its chain: by this our own clients know it; of several all there are

    def ends_soon(self, now: datetime) -> bool:
        """Whether it has ended or is about to."""
        return self.not_after is not None and self.not_after - now < EXPIRES_SOON
