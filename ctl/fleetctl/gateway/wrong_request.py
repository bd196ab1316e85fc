"""What is wrong with a request that no engine is sent."""

from __future__ import annotations

import msgspec


class WrongRequest(msgspec.Struct, frozen=True):
    """What is wrong with a request, and the key it stands under."""

    message: str
    param: str
