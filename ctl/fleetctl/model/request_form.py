"""How an engine wants requests to be spelt that OpenAI's API lets clients spell otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """What is changed of a request before it is sent, and means the same after it. Nulls and empty sections are left out."""

    leaves_out: dict[str, float] = field(default_factory=dict)  # keys, and the values of theirs that mean nothing
    lists: tuple[str, ...] = ()  # keys under which one text is to stand in a list
    renames: dict[str, str] = field(default_factory=dict)  # keys that it knows by another name
