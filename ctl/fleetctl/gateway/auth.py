"""Who may ask: bearer keys against the table's hashes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from fleetctl.core.admission.keys import is_slow, matches

_KNOWN_MAX = 1024
# Slow checks at once: a flood of wrong keys must neither stall the loop nor pile up.
_CHECKS_MAX = 8


class Authenticator:
    """Checks keys. Those with a slow hash are checked in a thread, once, and then remembered by their digest."""

    def __init__(self, *, is_open_without_keys: bool) -> None:
        self._is_open_without_keys = is_open_without_keys
        self._fast: tuple[bytes, ...] = ()
        self._slow: tuple[str, ...] = ()
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        self._checks = 0
        self._threads: ThreadPoolExecutor | None = None

    def apply(self, hashes: tuple[str, ...]) -> None:
        """Replace the accepted keys; none means that no key is asked for, where that is allowed."""
        fast = tuple(h.removeprefix("sha256:").encode() for h in hashes if not is_slow(h))
        slow = tuple(h for h in hashes if is_slow(h))
        if slow != self._slow:
            self._known.clear()
        self._fast, self._slow = fast, slow

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
        if sum([hmac.compare_digest(digest, known) for known in self._fast]):
            return True
        return self._known.get(digest) if self._slow else False

    async def check_slowly(self, authorization: bytes) -> bool:
        """Return whether this header is accepted; too many such checks at once are refused."""
        key = authorization.partition(b" ")[2].strip()
        if self._checks >= _CHECKS_MAX:
            return False
        self._threads = self._threads or ThreadPoolExecutor(max_workers=1, thread_name_prefix="keys")
        self._checks += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, _any_matches, key, self._slow)
        finally:
            self._checks -= 1
        self._known[hashlib.sha256(key).hexdigest().encode()] = found
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return found


def _any_matches(key: bytes, hashes: tuple[str, ...]) -> bool:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return False
    return sum([matches(text, hashed) for hashed in hashes]) > 0
