"""Certificates and their keys as files: read, judged, served by, and trusted."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.errors import ConfigError

_BYTES_MAX = 1024 * 1024
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags of DER
_HINT = "name PEM files: the certificate with its chain (certbot's fullchain.pem), and its key without a passphrase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A chain's first certificate, the server's own."""

    pem: str
    not_before: datetime
    not_after: datetime


def read_certificate(path: str) -> Certificate:
    """Return the first certificate of a PEM file. Raises ConfigError."""
    text = _read(path, "certificate").decode("ascii", "replace")
    start = text.find(_BEGIN)
    end = text.find(_END, start)
    if start < 0 or end < 0:
        raise ConfigError(f"the gateway's certificate {path} has no certificate in PEM", hint=_HINT)
    pem = text[start : end + len(_END)] + "\n"
    try:
        not_before, not_after = _validity(ssl.PEM_cert_to_DER_cert(pem))
    except (ValueError, IndexError) as exc:
        raise ConfigError(f"the gateway's certificate {path} is no certificate: {exc}", hint=_HINT) from exc
    return Certificate(pem=pem, not_before=not_before, not_after=not_after)


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return what a server speaks TLS 1.2 or newer by. Raises ConfigError: a file cannot be read, or the key is another's."""
    _read(certificate, "certificate")
    _read(key, "key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that renegotiates would have writes wait for its next bytes.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a passphrase at hand OpenSSL would ask the terminal for one.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as exc:
        if isinstance(exc, ssl.SSLError) and exc.reason == "KEY_VALUES_MISMATCH":
            wrong = f"the key {key} is not that of the certificate {certificate}"
        else:
            wrong = f"the certificate {certificate} and the key {key} cannot be used: {_reason(exc)}"
        raise ConfigError(wrong, hint=_HINT) from exc
    return context


def whole_pem(certificate: str, key: str) -> str:
    """Return key and certificates in one text, to be one file elsewhere. Raises ConfigError: they cannot be served."""
    server_context(certificate, key)
    both = [_read(key, "key"), _read(certificate, "certificate")] if key != certificate else [_read(key, "key")]
    return "".join(f"{each.decode('ascii', 'replace').rstrip()}\n" for each in both)


def client_context(pem: str) -> ssl.SSLContext:
    """Return what a client accepts this one server certificate by, whoever issued it and whatever name it is reached by.

    That it is this very one says more than its name would. It is not accepted outside its validity.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context


def _reason(exc: Exception) -> str:
    return (exc.reason or str(exc)).lower().replace("_", " ") if isinstance(exc, ssl.SSLError) else str(exc)


def _read(path: str, what: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_BYTES_MAX)
    except OSError as exc:
        raise ConfigError(f"the gateway's {what} {path} cannot be read: {exc.strerror}", hint=_HINT) from exc


def _validity(der: bytes) -> tuple[datetime, datetime]:
    """Return from when until when a certificate is valid: RFC 5280, 4.1; the ssl module tells it of trusted ones alone."""
    _, at, _ = _element(der, 0)  # the certificate
    _, at, _ = _element(der, at)  # what is signed of it
    tag, _, end = _element(der, at)
    at = end if tag == _VERSION else at
    for _ in ("serial number", "signature", "issuer"):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)
    first = _element(der, at)
    return _time(der, first), _time(der, _element(der, first[2]))


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's tag, where its content begins, and where that ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    if start + length > len(der):
        raise ValueError("it is cut short")
    return der[at], start, start + length


def _time(der: bytes, element: tuple[int, int, int]) -> datetime:
    tag, start, end = element
    text = der[start:end].decode("ascii", "replace")
    if tag == _UTC_TIME:  # of two digits for the year: those from 50 on are of the last century
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
