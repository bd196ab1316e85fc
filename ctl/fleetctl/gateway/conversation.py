"""What a request says of its conversation beside its prompt: its client's id of it, and who in the client it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.evictions.conversations import ConversationKey, far_hashes
from fleetctl.core.routing.prefix_index import BLOCK_BYTES, BLOCKS_MAX
from fleetctl.printable import printable

if TYPE_CHECKING:
    from fleetctl.gateway.classify import ParsedRequest
    from fleetctl.gateway.requests import Request

CONVERSATION = b"x-fleetctl-conversation"
_NAME_BYTES_MAX = 64
_FOLLOWED_BYTES = BLOCK_BYTES * BLOCKS_MAX


def conversation_of(request: Request, parsed: ParsedRequest) -> ConversationKey | None:
    """Return what the next turn will be known by. None: by its prompt alone.

    A longer id than is kept is told by its hash, and so are OpenAI's `prompt_cache_key` and `user`: they tell
    conversations of one key apart, and need not be shown to anybody.
    """
    named = request.headers.get(CONVERSATION)
    far = len(parsed.prompt) > _FOLLOWED_BYTES
    if named is None and not far and not parsed.cache_key:
        return None
    name = ""
    if named:
        name = printable(named[:_NAME_BYTES_MAX].decode("utf-8", "replace"))
        if len(named) > _NAME_BYTES_MAX:
            name += f"~{hash(named) & 0xFFFFFFFF:08x}"
    return ConversationKey(
        name,
        hash(parsed.cache_key) if parsed.cache_key else 0,
        far_hashes(parsed.prompt, _FOLLOWED_BYTES) if far else (),
    )
