"""Weights that lie in S3: where, and where a node keeps what it has fetched of them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

# Of S3's names for buckets, and of keys what no shell, no IAM policy and no path has to escape.
S3_FORM = r"s3://[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](/[-A-Za-z0-9_=+@.]+)+/?"
_SCHEME = "s3://"
_ROOT = "/var/lib/fleetctl/weights"
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWeights:
    """A checkpoint's directory in S3, fetched by a node before its engines start."""

    source: str  # s3://BUCKET/PREFIX, without a slash at its end

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.source.removeprefix(_SCHEME).partition("/")[0]

    @property
    def prefix(self) -> str:
        """What the keys of its files begin with, up to the last slash."""
        return self.source.removeprefix(_SCHEME).partition("/")[2] + "/"

    @property
    def directory(self) -> str:
        """Where a node has it, and its engine: other weights of the same name are elsewhere.

        The prefix's last part is kept, as engines tell a checkpoint's format by the end of its name.
        """
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:_DIGITS]
        return f"{_ROOT}/{digest}/{self.source.rpartition('/')[2]}"


def is_remote(path: str) -> bool:
    """Whether a path of weights is an address, well-formed or not, and no file of this machine."""
    return path.startswith(_SCHEME)


def remote_weights(path: str) -> RemoteWeights | None:
    """Return the weights that a path of them names in S3; None: it names a file of the machine, or nothing.

    Raises ValueError for an address that is not well-formed.
    """
    if not is_remote(path):
        return None
    if not re.fullmatch(S3_FORM, path) or any(part in (".", "..") for part in path.split("/")):
        raise ValueError(f"{path[:80]!r} is no place in S3; write s3://BUCKET/PREFIX, the checkpoint's directory")
    if path.rstrip("/").endswith(".gguf"):
        raise ValueError(
            "of S3 a checkpoint's directory is fetched, and no GGUF file; give an engine that reads one a path"
        )
    return RemoteWeights(source=path.rstrip("/"))
