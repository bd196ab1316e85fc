"""KV-cache blocks: allocation, sharing by prefix, and eviction of the least recently freed."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from fleetctl_emulator.tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_TOKENS = 16  # vLLM's default on GPUs
_BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES


def chain_hash(before: int, content: bytes) -> int:
    """Return the hash of a full block that follows the prefix hashed as `before`."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, salt=before.to_bytes(8, "big")).digest(), "big")


def chain_hashes(content: bytes, block_count: int, known: Sequence[int] = ()) -> list[int]:
    """Return the chained hashes of the first `block_count` full blocks of `content`, extending `known`."""
    hashes = list(known[:block_count])
    before = hashes[-1] if hashes else 0
    for index in range(len(hashes), block_count):
        before = chain_hash(before, content[index * _BLOCK_BYTES : (index + 1) * _BLOCK_BYTES])
        hashes.append(before)
    return hashes


class BlockPool:
    """Hands out block numbers; a freed block keeps its content until it is needed for another.

    Blocks with the same hash are shared. `free` counts every block that no sequence holds, cached or not.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._untouched = 0  # the numbers from here on were never handed out
        self._idle: OrderedDict[int, None] = OrderedDict()  # first: the next to be evicted
        self._holders: dict[int, int] = {}
        self._hash_of: dict[int, int] = {}
        self._block_of: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Return how many blocks could be handed out now."""
        return self.total - self._untouched + len(self._idle)

    @property
    def used(self) -> int:
        """Return how many blocks are held by sequences."""
        return len(self._holders)

    @property
    def cached_idle(self) -> int:
        """Return how many blocks hold content that nobody uses now."""
        return sum(1 for block in self._idle if block in self._hash_of)

    def cached(self, hashes: Sequence[int]) -> list[int]:
        """Return the blocks that hold the longest cached prefix of these chained hashes."""
        found = []
        for content in hashes:
            block = self._block_of.get(content)
            if block is None:
                break
            found.append(block)
        return found

    def take(self, shared: Sequence[int], fresh: int, *, keep_free: int = 0) -> list[int] | None:
        """Hold the shared blocks and `fresh` empty ones; None, and nothing held, if fewer than `keep_free` would stay."""
        revived = sum(1 for block in shared if block not in self._holders)
        if self.free - revived - fresh < keep_free:
            return None
        for block in shared:
            self._idle.pop(block, None)
            self._holders[block] = self._holders.get(block, 0) + 1
        return [*shared, *(self._empty() for _ in range(fresh))]

    def keep_content(self, block: int, content: int) -> None:
        """Make a held, now full block findable by its chained hash; the first block with a content stays the found one."""
        if content not in self._block_of and block not in self._hash_of:
            self._block_of[content] = block
            self._hash_of[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of blocks, last first, so that the ends of prefixes are evicted before their beginnings."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                del self._holders[block]
                self._idle[block] = None
                if block not in self._hash_of:
                    self._idle.move_to_end(block, last=False)

    def _empty(self) -> int:
        if self._untouched < self.total and not self._has_worthless_idle():
            block = self._untouched
            self._untouched += 1
        else:
            block, _ = self._idle.popitem(last=False)
            content = self._hash_of.pop(block, None)
            if content is not None:
                del self._block_of[content]
        self._holders[block] = 1
        return block

    def _has_worthless_idle(self) -> bool:
        return bool(self._idle) and next(iter(self._idle)) not in self._hash_of
