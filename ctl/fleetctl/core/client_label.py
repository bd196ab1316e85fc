"""What a client is called wherever one is named: requests, workflows, what filled a KV cache."""

from __future__ import annotations


def client_label(client: int, name: str) -> str:
    """Return its key's name, else eight digits that tell clients of one gateway process apart.

    `client` is the opaque key that requests are counted by: neither an API key nor an address can be had from the digits.
    """
    return name or f"{client & 0xFFFFFFFF:08x}"
