"""Which replica has seen which prompt prefix: an estimate of the engines' prefix caches."""

from __future__ import annotations

from collections import OrderedDict

# About 128 tokens: eight of vLLM's blocks, and small beside the lanes' boundaries.
BLOCK_BYTES = 512
# A prompt is followed for 64 KiB; beyond that one more block changes no decision.
BLOCKS_MAX = 128
# A hot prefix (a system prompt) lives on several replicas.
_HOLDERS_MAX = 4


def block_hashes(prompt: bytes) -> list[int]:
    """Return a hash for each whole block, chained: equal hashes mean equal prompts up to that block's end."""
    hashes: list[int] = []
    chained = 0
    for end in range(BLOCK_BYTES, min(len(prompt), BLOCK_BYTES * BLOCKS_MAX) + 1, BLOCK_BYTES):
        chained = hash((chained, prompt[end - BLOCK_BYTES : end]))  # half the time of a checksum, and 64 bits
        hashes.append(chained)
    return hashes


def adapter_hashes(hashes: list[int], adapter: str) -> list[int]:
    """Return a prompt's hashes as an adapter's: engines cache what each adapter makes of a prompt by itself."""
    return [hash((block, adapter)) for block in hashes]


class PrefixIndex:
    """The most recently used `blocks_max` block hashes and their last few holders."""

    __slots__ = ("_holders", "blocks_max")

    def __init__(self, blocks_max: int = 65_536) -> None:
        self.blocks_max = blocks_max
        self._holders: OrderedDict[int, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def cached_bytes(self, hashes: list[int]) -> dict[str, int]:
        """Return, for each replica that holds a leading run of these blocks, that run's length in bytes."""
        running = self._holders.get(hashes[0]) if hashes else None
        if running is None:
            return {}
        found: dict[str, int] = {}
        length = BLOCK_BYTES
        for block in hashes[1:]:
            holders = self._holders.get(block, ())
            if holders != running:
                for replica_id in running:
                    if replica_id not in holders:
                        found[replica_id] = length
                running = tuple([r for r in running if r in holders])
                if not running:
                    return found
            length += BLOCK_BYTES
        for replica_id in running:
            found[replica_id] = length
        return found

    def record(self, hashes: list[int], replica_id: str) -> None:
        """Note that a replica is now working through these blocks."""
        holders, touch = self._holders, self._holders.move_to_end
        # The last block first, so that the first, which most prompts share, is forgotten last.
        for block in reversed(hashes):
            known = holders.get(block, ())
            if not known or known[0] != replica_id:
                holders[block] = (replica_id, *[r for r in known if r != replica_id])[:_HOLDERS_MAX]
            touch(block)
        while len(holders) > self.blocks_max:
            holders.popitem(last=False)

    def forget(self, replica_id: str) -> None:
        """Drop a replica: it has gone, and its cache with it."""
        for block in [b for b, known in self._holders.items() if replica_id in known]:
            rest = tuple(r for r in self._holders[block] if r != replica_id)
            if rest:
                self._holders[block] = rest
            else:
                del self._holders[block]
