"""API keys as hashes: made by the controller, checked by the gateway."""

from __future__ import annotations

import hashlib
import hmac

# Keys this long are taken for generated ones, whose entropy needs no slow hash.
GENERATED_CHARS_MIN = 32
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**14, 8, 1
_SCRYPT_MEMORY_BYTES_MAX = 64 * 1024 * 1024


def sha256_hash(key: str) -> str:
    """Return "sha256:HEX": right for generated keys, whose entropy needs no slow hash."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def scrypt_hash(key: str, *, salt: bytes) -> str:
    """Return "scrypt:N:R:P:SALT:HEX": for keys a person chose. `salt` is 16 random bytes."""
    digest = _scrypt(key, salt=salt, n=_SCRYPT_N, r=_SCRYPT_R, p=_SCRYPT_P)
    return f"scrypt:{_SCRYPT_N}:{_SCRYPT_R}:{_SCRYPT_P}:{salt.hex()}:{digest.hex()}"


def is_slow(hashed: str) -> bool:
    """Whether checking against this takes tens of milliseconds."""
    return hashed.startswith("scrypt:")


def matches(key: str, hashed: str) -> bool:
    """Whether `key` is the one `hashed` was made of, in constant time. An unreadable hash matches nothing."""
    kind, _, rest = hashed.partition(":")
    if kind == "sha256":
        return hmac.compare_digest(hashlib.sha256(key.encode()).hexdigest(), rest)
    parts = rest.split(":")
    if kind != "scrypt" or len(parts) != 5:
        return False
    try:
        n, r, p = (int(part) for part in parts[:3])
        digest = _scrypt(key, salt=bytes.fromhex(parts[3]), n=n, r=r, p=p)
    except ValueError:
        return False
    return hmac.compare_digest(digest.hex(), parts[4])


def _scrypt(key: str, *, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(key.encode(), salt=salt, n=n, r=r, p=p, maxmem=_SCRYPT_MEMORY_BYTES_MAX, dklen=32)
