"""The metrics page's figures of the certificate that clients are served by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.gateway.certificate import GatewayCertificate
    from fleetctl.telemetry.page import MetricsPage


def certificate_families(page: MetricsPage, certificate: GatewayCertificate) -> None:
    """Write when it ends and whether its files can be used; nothing of a gateway that serves in clear."""
    found = certificate.read()
    if found is None:
        return
    if found.not_after is not None:
        text = "When the certificate that is served ends, in seconds since the epoch."
        page.family("certificate_not_after_timestamp_seconds", "gauge", text, [({}, found.not_after.timestamp())])
    text = "1 where what the certificate's files have now is not taken."
    page.family("certificate_fault", "gauge", text, [({}, float(bool(found.fault)))])
