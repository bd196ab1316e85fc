"""A cloud-config as cloud-init carries it out: bootcmd, write_files, runcmd."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = {"bootcmd", "write_files", "runcmd"}
_HEADER = "#cloud-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    """What user data says; commands are argument lists, or one word that a shell reads."""

    boot_commands: tuple[list[str], ...]
    files: tuple[dict[str, Any], ...]
    commands: tuple[list[str], ...]


def parse_cloud_config(text: str) -> CloudConfig:
    """Raises ValueError for what is no cloud-config, or has a part that is not played here."""
    if not text.startswith(_HEADER):
        raise ValueError(f"user data begins with {text[:20]!r}, not with {_HEADER}")
    found = yaml.safe_load(text) or {}
    unknown = set(found) - _KEYS
    if unknown:
        raise ValueError(f"not played by the tests' instances: {', '.join(sorted(unknown))}")
    return CloudConfig(
        boot_commands=tuple(_argv(each) for each in found.get("bootcmd", ())),
        files=tuple(found.get("write_files", ())),
        commands=tuple(_argv(each) for each in found.get("runcmd", ())),
    )


def write_file(entry: dict[str, Any], root: Path, changed: dict[str, str]) -> None:
    """Write one file below `root`, the words of `changed` replaced in its text."""
    content = str(entry.get("content", ""))
    if entry.get("encoding") == "gz+b64":
        content = gzip.decompress(base64.b64decode(content)).decode()
    elif entry.get("encoding") in ("b64", "base64"):
        content = base64.b64decode(content).decode()
    for old, new in changed.items():
        content = content.replace(old, new)
    path = root / str(entry["path"]).lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if entry.get("append") else "w") as out:
        out.write(content)
    path.chmod(int(str(entry.get("permissions", "0644")), 8))


def _argv(command: Any) -> list[str]:
    return ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
