"""Certificates for one control plane, made on the spot by openssl: authorities, a server, the keys of service accounts."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = ("-days", "2")


def make_certificates(directory: Path, *, addresses: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Write ca.{crt,key}, server.{crt,key} for these addresses and names, and sa.{key,pub} into a directory.

    front-proxy-ca and front-proxy-client are of the API server as it stands before others' APIs (an aggregated API).
    """
    for authority in ("ca", "front-proxy-ca"):
        _openssl(
            directory, "req", "-x509", *_KEY, *_DAYS, "-subj", "/CN=tests", "-keyout", f"{authority}.key",
            "-out", f"{authority}.crt", "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
        )  # fmt: skip
    make_certificate(directory, "server", addresses=addresses, names=names)
    make_certificate(directory, "front-proxy-client", names=("front-proxy-client",), authority="front-proxy-ca")
    _openssl(directory, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
    _openssl(directory, "ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def make_certificate(
    directory: Path, name: str, *, addresses: tuple[str, ...] = (), names: tuple[str, ...] = (), authority: str = "ca"
) -> None:
    """Write NAME.{crt,key}, for servers and clients, of an authority that is in the directory."""
    alternatives = ",".join([f"IP:{each}" for each in addresses] + [f"DNS:{each}" for each in names])
    (directory / f"{name}.ext").write_text(
        f"subjectAltName={alternatives}\nbasicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    _openssl(directory, "req", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    _openssl(
        directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key",
        "-CAcreateserial", *_DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt",
    )  # fmt: skip


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
