"""Spells a request as its replica's engine wants it, where that engine refuses what means nothing to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fleetctl.model.request_form import RequestForm


def spelt(body: bytes, form: RequestForm) -> bytes:
    """Return a body in an engine's form; the same bytes where it is in that form already."""
    if not (form.leaves_out or form.lists) and not any(key.encode() in body for key in form.renames):
        return body  # nothing of it can be meant
    request = msgspec.json.decode(body)
    found = {
        form.renames.get(key, key): [value] if key in form.lists and isinstance(value, str) else value
        for key, value in request.items()
        if value is not None and value != {} and not _means_nothing(key, value, form)
    }
    return body if found == request else msgspec.json.encode(found)


def _means_nothing(key: str, value: object, form: RequestForm) -> bool:
    neutral = form.leaves_out.get(key)
    return neutral is not None and not isinstance(value, bool) and value == neutral
