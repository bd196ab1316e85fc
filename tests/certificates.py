"""Real certificates: self-signed, with keys of their own."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.tls import TlsFiles

if TYPE_CHECKING:
    from datetime import datetime


def make_certificate(
    directory: Path,
    *,
    name: str = "gateway.test",
    passphrase: bytes = b"",
    since: datetime | None = None,
    until: datetime | None = None,
) -> TlsFiles:
    """Write a certificate for a name and 127.0.0.1, and its key, over those that are there; valid for 90 days from yesterday on."""
    now = SYSTEM_CLOCK.now()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since or now - timedelta(days=1))
        .not_valid_after(until or now + timedelta(days=90))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(certificate=str(directory / "chain.pem"), key=str(directory / "key.pem"))
    encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    as_pem = serialization.Encoding.PEM
    for path, content in (
        (files.certificate, made.public_bytes(as_pem)),
        (files.key, key.private_bytes(as_pem, serialization.PrivateFormat.PKCS8, encryption)),
    ):
        replace_file(write_file(Path(f"{path}.new"), content), path)
    return files


def write_file(path: Path, content: bytes) -> Path:
    """Write a file that its owner alone may read; return its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def replace_file(path: Path | str, other: Path | str) -> None:
    """Put a file in another's place, as certbot does."""
    Path(path).replace(other)
