"""Who may ask: bearer keys against the table's hashes."""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from ipaddress import ip_address
from typing import TYPE_CHECKING

from fleetctl.core.admission.keys import GENERATED_CHARS_MIN, is_slow
from fleetctl.gateway.key_checks import KeyChecks

if TYPE_CHECKING:
    from collections.abc import Collection

    from fleetctl.clock import Clock
    from fleetctl.gateway.requests import Request

_WRONG_MAX = 4096
_UTF8_BYTES_MAX = 4  # of a character


class Authenticator:
    """Checks keys. Those with a slow hash are checked slowly once, and then remembered by their digest.

    Right and wrong ones are remembered apart: however many wrong ones come, a right one that was used stays known. There
    are no more right ones than hashes.
    """

    def __init__(self, clock: Clock, *, is_open_without_keys: bool) -> None:
        self._is_open_without_keys = is_open_without_keys
        self._fast: tuple[bytes, ...] = ()
        self._slow: tuple[str, ...] = ()
        self._right: dict[bytes, str] = {}  # -> the hash it was checked against
        self._known: frozenset[str] = frozenset()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._checks = KeyChecks(clock)

    def apply(self, hashes: tuple[str, ...], known: Collection[str] = ()) -> None:
        """Replace the accepted keys; none means that no key is asked for, where that is allowed.

        `known` are the hashes of those that something is known of beside that they are accepted.
        """
        self._known = frozenset(known)
        fast = tuple(h.removeprefix("sha256:").encode() for h in hashes if not is_slow(h))
        slow = tuple(h for h in hashes if is_slow(h))
        if slow != self._slow:
            self._right.clear()
            self._wrong.clear()
        self._fast, self._slow = fast, slow

    def client_key(self, request: Request, address: str) -> int:
        """Return what tells one client from another in this process: its key where keys are asked for, else its address.

        A key that nobody checks could be made up anew for every request.
        """
        return hash(request.headers.get(b"authorization", b"") if self._fast or self._slow else address)

    def known_hash(self, request: Request) -> str:
        """Return the hash of an accepted key that something is known of: a name, a tier, bounds; "": nothing is."""
        if not self._known:
            return ""
        key = request.headers.get(b"authorization", b"").partition(b" ")[2].strip()
        digest = hashlib.sha256(key).hexdigest()
        known = self._right.get(digest.encode()) or f"sha256:{digest}"
        return known if known in self._known else ""

    def check(self, authorization: bytes) -> bool | None:
        """Return whether this header is accepted. None: only `check_slowly` can tell."""
        if not self._fast and not self._slow:
            return self._is_open_without_keys
        scheme, _, key = authorization.partition(b" ")
        key = key.strip()
        if scheme.lower() != b"bearer" or not key:
            return False
        digest = hashlib.sha256(key).hexdigest().encode()
        # Every hash is compared, so that time does not tell which one came close.
        if sum([hmac.compare_digest(digest, known) for known in self._fast]) or digest in self._right:
            return True
        # A key as long as a generated one has no slow hash.
        is_unknown = self._slow and len(key) < GENERATED_CHARS_MIN * _UTF8_BYTES_MAX and digest not in self._wrong
        return None if is_unknown else False

    async def check_slowly(self, authorization: bytes, *, address: str) -> bool | None:
        """Return whether this header is accepted. None: too many unknown keys wait to be checked."""
        key = authorization.partition(b" ")[2].strip()
        hashes = self._slow
        found = await self._checks.check(key, hashes, address=address)
        if found is None:
            return None
        if hashes == self._slow:
            self._note(hashlib.sha256(key).hexdigest().encode(), found)
        return bool(found)

    def _note(self, digest: bytes, hashed: str) -> None:
        if hashed:
            self._right[digest] = hashed
            return
        self._wrong[digest] = None
        while len(self._wrong) > _WRONG_MAX:
            self._wrong.popitem(last=False)


def is_local(address: str) -> bool:
    """Whether a client's address is this machine's own."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
