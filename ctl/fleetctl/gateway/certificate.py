"""The certificate that the gateway serves, read again when its files change."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.certificates import Certificate, read_certificate, server_context
from fleetctl.errors import ConfigError
from fleetctl.model.tls import ServedCertificate, files_of_secret

if TYPE_CHECKING:
    import ssl

    from fleetctl.model.tls import TlsFiles

_log = logging.getLogger("fleetctl.gateway")
_LOOK_S = 1.0


class GatewayCertificate:
    """What new connections are served by: the newest pair of files that could be used."""

    def __init__(self) -> None:
        self.context: ssl.SSLContext | None = None
        self.directory = ""  # that has a Secret's two files, in place of those that tables name
        self.is_awaited = False  # clients are served by TLS, and no table has said by which certificate
        self._files: TlsFiles | None = None
        self._certificate: Certificate | None = None
        self._fault = ""
        self._seen: tuple[object, ...] = ()
        self._looked_s = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether clients are to be served by TLS."""
        return self._files is not None

    def apply(self, files: TlsFiles | None) -> None:
        """Serve by these files; None: without TLS. What was served by stays until others can be."""
        self.is_awaited = False
        if files is not None and self.directory:
            files = files_of_secret(self.directory)
        if files == self._files:
            return
        self._files, self._seen, self._fault = files, (), ""
        if files is None:
            self.context = self._certificate = None
        else:
            self._look(files)

    def check(self, now_s: float) -> None:
        """Read the files where they have changed; looked at once a second."""
        if self._files is not None and now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._look(self._files)

    def read(self) -> ServedCertificate | None:
        """Return what is served; None: it is not TLS."""
        if self._files is None:
            return None
        served = self._certificate
        if served is None:
            return ServedCertificate(fault=self._fault)
        return ServedCertificate(not_after=served.not_after, fault=self._fault, pem=served.pem)

    def _look(self, files: TlsFiles) -> None:
        # Taken before they are read: of two files that are replaced one after the other, the second is a change again.
        seen = (_mark(files.certificate), _mark(files.key))
        if seen == self._seen:
            return
        self._seen = seen
        try:
            context, certificate = server_context(files.certificate, files.key), read_certificate(files.certificate)
        except ConfigError as exc:
            self._fault = exc.message
            served = "the one before is served on" if self.context is not None else "nobody is served"
            _log.error("%s; %s", exc.message, served)
            return
        self.context, self._certificate, self._fault = context, certificate, ""
        _log.info("serving by the certificate %s, valid until %s", files.certificate, certificate.not_after.isoformat())


def _mark(path: str) -> tuple[object, ...]:
    """Return what is another once a file was replaced, written, or its rights were changed."""
    try:
        found = Path(path).stat()
    except OSError as exc:
        return (exc.errno,)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
