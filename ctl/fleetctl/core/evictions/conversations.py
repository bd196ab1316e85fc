"""Which prompt is the next turn of which conversation: by its client's own id, else by the prompt that it extends.

A conversation is known by hashes alone, those of its last prompt's blocks, which routing has computed anyway. One whose
prompt begins with all of the last prompt of another is its next turn. A client's id tells conversations apart where
their prompts do not; what a prompt extends is checked all the same, as a client that cuts off old turns has lost its
prefix by its own doing.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from fleetctl.core.routing.prefix_index import BLOCK_BYTES

# Some 0.4 KB each, measured with tracemalloc: 6 MB.
CONVERSATIONS_MAX = 16_384
# Beyond what routing follows of a prompt, in pieces of so many bytes.
FAR_BLOCK_BYTES = 8192
FAR_BLOCKS_MAX = 64
# An answer and what was said to it are some thousand bytes; the index of prefixes mostly knows to the block.
_BLOCKS_BACK_MAX = 24


class ConversationKey(msgspec.Struct, frozen=True, gc=False):
    """What its client, and the end of a very long prompt, tell of a request's conversation."""

    name: str = ""  # the client's id of it
    salt: int = 0  # of what tells conversations of one key apart: they are never joined across it
    far: tuple[int, ...] = ()  # hashes of the prompt beyond what routing follows


NO_KEY = ConversationKey()


# One for every turn, and no cycle passes through it: not for the garbage collector to track. Made anew, as one C call sets all
# fields in a third of the time that setting half of them takes.
class Conversation(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A conversation as one of its turns left it."""

    key: int
    client: int
    number: int  # since the start, in the order they began
    name: str
    turns: int
    tail: int  # the hash of its last prompt's last whole block
    blocks: int
    far: int  # the hash at the end of what was followed beyond them
    far_blocks: int
    text_bytes: int  # of its last prompt
    prompt_tokens: int  # of the same
    replica_id: str  # that has it cached
    ttft_s: float | None
    ended_s: float

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or f"c-{self.number}"

    @property
    def block_tokens(self) -> int:
        """The tokens of its last prompt's whole blocks, as far as routing follows them."""
        return self.tokens_of(self.blocks * BLOCK_BYTES)

    def tokens_of(self, prompt_bytes: int) -> int:
        """Return how many tokens so many bytes of its last prompt were."""
        return min(self.prompt_tokens, self.prompt_tokens * prompt_bytes // max(1, self.text_bytes))


def far_hashes(prompt: bytes, followed_bytes: int) -> tuple[int, ...]:
    """Return a chain of hashes of a long prompt beyond its first `followed_bytes`."""
    found: list[int] = []
    chained = 0
    last = min(len(prompt), followed_bytes + FAR_BLOCK_BYTES * FAR_BLOCKS_MAX)
    for end in range(followed_bytes + FAR_BLOCK_BYTES, last + 1, FAR_BLOCK_BYTES):
        chained = hash((chained, prompt[end - FAR_BLOCK_BYTES : end]))
        found.append(chained)
    return tuple(found)


class Conversations:
    """The most recently used `size_max` conversations, of all clients together; none of two clients are ever one."""

    __slots__ = ("_begun", "_known", "size_max")

    def __init__(self, size_max: int = CONVERSATIONS_MAX) -> None:
        self.size_max = size_max
        self._known: OrderedDict[int, Conversation] = OrderedDict()
        self._begun = 0

    def __len__(self) -> int:
        return len(self._known)

    def resize(self, size_max: int) -> None:
        """Remember so many from now on."""
        self.size_max = size_max
        while len(self._known) > size_max:
            self._known.popitem(last=False)

    def repeated(self, client: int, hashes: list[int]) -> Conversation | None:
        """Return the conversation whose last prompt was this one, block for block; None: it has none, or one with a key."""
        found = self._known.get(hashes[-1] ^ client)
        return found if found is not None and found.client == client and found.tail == hashes[-1] else None

    def find(self, client: int, key: ConversationKey, hashes: list[int], run_blocks: int) -> Conversation | None:
        """Return the conversation of which a prompt is the next turn. None: it begins one.

        `run_blocks` of its blocks are the same as some earlier prompt's, by the index of prefixes.
        """
        known = self._known.get
        if key.name:
            found = known(hash((client, key.salt, key.name)))
            return found if found is not None and found.client == client else None
        mixed = client ^ key.salt
        if run_blocks:
            found = known(hashes[run_blocks - 1] ^ mixed)
            if found is not None and found.client == client and found.tail == hashes[run_blocks - 1]:
                return found
        # The index forgets a replica that is gone, and what it had.
        for tail in hashes[: -_BLOCKS_BACK_MAX - 1 : -1]:
            found = known(tail ^ mixed)
            if found is not None and found.client == client and found.tail == tail:
                return found
        return None

    def keep(  # noqa: PLR0913, PLR0917  # what a turn leaves; by place, as it is called for every request
        self,
        before: Conversation | None,
        client: int,
        key: ConversationKey | None,
        hashes: list[int],
        text_bytes: int,
        prompt_tokens: int,
        replica_id: str,
        ttft_s: float | None,
        ended_s: float,
    ) -> Conversation:
        """Let a conversation be known by its latest prompt; `before` it was so, None: this is its first turn."""
        tail, far, far_blocks = hashes[-1], 0, 0
        if key is not None and key.far:
            far, far_blocks = key.far[-1], len(key.far)
        if before is None:
            self._begun += 1
            number, name, turns = self._begun, key.name if key is not None else "", 1
            at = _at(client, key, tail)
        else:
            number, name, turns, at = before.number, before.name, before.turns + 1, before.key
            if before.tail != tail and not name:
                del self._known[at]
                at = _at(client, key, tail)
        kept = Conversation(
            at, client, number, name, turns, tail, len(hashes), far, far_blocks, text_bytes, prompt_tokens, replica_id, ttft_s, ended_s,
        )  # fmt: skip
        known = self._known
        count = len(known)
        known[at] = kept
        if len(known) == count:
            known.move_to_end(at)
        elif count >= self.size_max:
            known.popitem(last=False)
        return kept


def _at(client: int, key: ConversationKey | None, tail: int) -> int:
    """Return where a conversation is kept."""
    if key is None:
        return tail ^ client
    return hash((client, key.salt, key.name)) if key.name else tail ^ client ^ key.salt


def tokens_in_common(before: Conversation, key: ConversationKey, hashes: list[int]) -> int:
    """Return how many tokens of a conversation's last prompt this one surely begins with: those of whole blocks."""
    blocks = before.blocks
    if blocks > len(hashes) or hashes[blocks - 1] != before.tail:
        return 0
    common = blocks * BLOCK_BYTES
    if before.far_blocks and before.far_blocks <= len(key.far) and key.far[before.far_blocks - 1] == before.far:
        common += before.far_blocks * FAR_BLOCK_BYTES
    return before.tokens_of(common)
