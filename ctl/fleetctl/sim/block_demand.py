"""Which steps decoding sequences need a new KV block in: every sixteenth, each in its own phase."""

from __future__ import annotations

from fleetctl.core.perf.kv import BLOCK_TOKENS


class BlockDemand:
    """Counts decoding sequences by the steps, modulo a block, in which they need one."""

    __slots__ = ("_phases", "decoding")

    def __init__(self) -> None:
        self.decoding = 0
        self._phases = [0] * BLOCK_TOKENS

    def join(self, step: int, computed_tokens: int) -> None:
        """Count a sequence that has so many tokens in the cache before it decodes in `step`."""
        self.decoding += 1
        self._phases[(step - computed_tokens) % BLOCK_TOKENS] += 1

    def leave(self, step: int, computed_tokens: int) -> None:
        """Uncount one that joined with these figures."""
        self.decoding -= 1
        self._phases[(step - computed_tokens) % BLOCK_TOKENS] -= 1

    def needed(self, first_step: int, steps: int) -> int:
        """Return the blocks that so many steps take."""
        if steps == 1:  # most often
            return self._phases[first_step % BLOCK_TOKENS]
        if steps <= 0:
            return 0
        cycles, rest = divmod(steps, BLOCK_TOKENS)
        needed = cycles * self.decoding
        phases = self._phases
        for step in range(first_step, first_step + rest):
            needed += phases[step % BLOCK_TOKENS]
        return needed

    def steps_within(self, free: int, next_step: int, steps: int) -> int:
        """Return how many of `steps` find their blocks: the first has them, `next_step` is the one after it."""
        decoding = self.decoding
        if not decoding or decoding * (steps // BLOCK_TOKENS + 1) <= free:
            return steps
        cycles, left = divmod(free, decoding)
        found = 1 + cycles * BLOCK_TOKENS
        while found < steps:
            left -= self._phases[(next_step + found - 1) % BLOCK_TOKENS]
            if left < 0:
                break
            found += 1
        return min(steps, found)
