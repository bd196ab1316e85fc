"""Puts fleetctl on a head: fetches the archive that its order names, checks it, and installs it with its dependencies.

Runs as a file, by the system's Python (3.8 or newer), with nothing but its standard library; again at every start of the
unit, and then there is nothing to do. Every step can be repeated.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import io
import json
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

_METADATA = "http://169.254.169.254/latest"
_CALL_S, _INSTALL_S = 20, 900
_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")


def main(path: str) -> None:
    """Install what the settings in a file name."""
    settings = json.loads(Path(path).read_text())
    home = Path(settings["home"])
    _make_host_key(Path(settings["host_key"]))
    _name_profiles(Path(settings["environment"]["HOME"]), settings)
    marker = home / "installed"
    if marker.exists() and marker.read_text() == settings["program"]:
        return
    archive = fetch(settings)
    if hashlib.sha256(archive).hexdigest() != settings["program"]:
        sys.exit("the archive is not the one that was ordered: its sha256 differs")
    application = home / "app"
    shutil.rmtree(application, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(application)
    _install(home, application)
    marker.write_text(settings["program"])


def fetch(settings: dict[str, Any]) -> bytes:
    """Return the archive, read from S3 with the rights of the instance's role."""
    region = settings["region"]
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    endpoint = settings["s3_endpoint"] or "https://s3." + region + "." + domain
    url = endpoint.rstrip("/") + "/" + settings["bucket"] + "/" + quote(settings["key"])
    now = datetime.datetime.now(datetime.timezone.utc)
    headers = signed(url, region=region, keys=_role_keys(), stamp=now.strftime("%Y%m%dT%H%M%SZ"))
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_CALL_S) as answer:
        found: bytes = answer.read()
        return found


def signed(url: str, *, region: str, keys: dict[str, str], stamp: str) -> dict[str, str]:
    """Return the headers of a GET of S3, signed as AWS Signature Version 4 has it."""
    parts = urlsplit(url)
    headers = {
        "host": parts.netloc,
        "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(),
        "x-amz-date": stamp,
        "x-amz-security-token": keys["Token"],
    }
    names = ";".join(sorted(headers))
    lines = "".join(name + ":" + headers[name] + "\n" for name in sorted(headers))
    request = "\n".join(["GET", parts.path, "", lines, names, headers["x-amz-content-sha256"]])
    scope = "/".join([stamp[:8], region, "s3", "aws4_request"])
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + keys["SecretAccessKey"]).encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), "sha256").digest()
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = keys["AccessKeyId"] + "/" + scope
    headers["authorization"] = (
        "AWS4-HMAC-SHA256 Credential=" + credential + ", SignedHeaders=" + names + ", Signature=" + signature
    )
    return headers


def _role_keys() -> dict[str, str]:
    token = _metadata("/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    shown = {"X-aws-ec2-metadata-token": token}
    place = "/meta-data/iam/security-credentials/"
    role = _metadata(place, headers=shown).split()[0]
    found: dict[str, str] = json.loads(_metadata(place + role, headers=shown))
    return found


def _metadata(page: str, *, headers: dict[str, str], method: str = "GET") -> str:
    request = urllib.request.Request(_METADATA + page, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=_CALL_S) as answer:
        text: str = answer.read().decode()
        return text


def _install(home: Path, application: Path) -> None:
    """Make an environment with the releases that the archive names, the archive's packages on its path."""
    environment = home / "venv"
    shutil.rmtree(environment, ignore_errors=True)
    python = _python()
    if _run(python, "-m", "venv", str(environment), check=False) and shutil.which("apt-get"):
        _run("apt-get", "update", check=False)
        _run("apt-get", "install", "--yes", "python3-venv")
        _run(python, "-m", "venv", "--clear", str(environment))
    inside = str(environment / "bin" / "python")
    _run(
        inside, "-m", "pip", "install", "--quiet", "--no-input", "--requirement", str(application / "requirements.txt")
    )
    found = subprocess.run(
        [inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, timeout=_CALL_S, stdout=subprocess.PIPE,
    )  # fmt: skip
    (Path(found.stdout.decode().strip()) / "fleetctl.pth").write_text(str(application) + "\n")


def _python() -> str:
    for name in _PYTHONS:
        path = shutil.which(name)
        enough = "import sys; sys.exit(sys.version_info < (3, 11))"
        if path and not _run(path, "-c", enough, check=False):
            return path
    sys.exit("this machine image has no Python 3.11 or newer: name another in host.ami")


def _run(*argv: str, check: bool = True) -> int:
    return subprocess.run(argv, check=check, timeout=_INSTALL_S, stdin=subprocess.DEVNULL).returncode


def _make_host_key(path: Path) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own, which its unit makes where it has one


def _name_profiles(home: Path, settings: dict[str, Any]) -> None:
    """Have the named profile of the laptop there, as the role: a fleet's settings name it on every machine."""
    if not settings["named_profile"]:
        return
    place = home / ".aws" / "config"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("[profile " + settings["named_profile"] + "]\nregion = " + settings["region"] + "\n")
    os.chmod(place, 0o600)


if __name__ == "__main__":
    main(sys.argv[1])
