"""Certificates for one control plane, made on the spot by openssl: an authority, a server, the keys of service accounts."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = ("-days", "2")


def make_certificates(directory: Path, *, addresses: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Write ca.{crt,key}, server.{crt,key} for these addresses and names, and sa.{key,pub} into a directory."""
    _openssl(
        directory, "req", "-x509", *_KEY, *_DAYS, "-subj", "/CN=tests", "-keyout", "ca.key", "-out", "ca.crt",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
    )  # fmt: skip
    alternatives = ",".join([f"IP:{each}" for each in addresses] + [f"DNS:{each}" for each in names])
    (directory / "server.ext").write_text(
        f"subjectAltName={alternatives}\nbasicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    _openssl(directory, "req", *_KEY, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    _openssl(
        directory, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", *_DAYS,
        "-extfile", "server.ext", "-out", "server.crt",
    )  # fmt: skip
    _openssl(directory, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
    _openssl(directory, "ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def _openssl(directory: Path, *arguments: str) -> None:
    ran = subprocess.run(
        ["openssl", *arguments],  # noqa: S607  # whichever openssl is first
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, f"openssl {arguments[0]}: {ran.stderr}"
