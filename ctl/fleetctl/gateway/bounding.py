"""Writes the server's bounds of an answer into the request's body: a length where it names none, a lower one, stop sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.core.admission.generation import default_reason, default_tokens, strictest
from fleetctl.model.generation import BoundReason, GenerationSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.gateway.entitlements import Entitlements
    from fleetctl.gateway.measure import MeasuredRequest
    from fleetctl.gateway.requests import Request
    from fleetctl.model.gateway import RouteLane, RoutingTable

_LENGTHS = ("max_completion_tokens", "max_tokens")  # as engines rank them
_MIN_TOKENS = b'"min_tokens"'
_SHOWN_CHARS_MAX = 40


class AnswerBounds:
    """What holds for the answers of one lane to one key; made once for each, and shared by their requests."""

    __slots__ = ("spec", "stop_member")

    def __init__(self, spec: GenerationSpec) -> None:
        self.spec = spec
        self.stop_member = b'"stop":%b,' % msgspec.json.encode(spec.stop) if spec.stop else b""


class BoundsTable:
    """The bounds of every lane and key of a routing table."""

    def __init__(self) -> None:
        self._keys: Mapping[str, GenerationSpec] = {}
        self._known: dict[tuple[str, str, str], AnswerBounds | None] = {}
        self._tiers: dict[str, GenerationSpec] = {}
        self._own_max: dict[tuple[str, str], int] = {}  # the longest answer of a key in its tier, whatever its lane
        self._has_own_max = False  # some key or tier sets one
        self.has_any = False

    def apply(self, table: RoutingTable) -> None:
        """Forget what held under the table before."""
        self._keys = table.key_generation
        self._known = {}
        self._own_max = {}
        self._tiers = {tier.name: tier.generation for tier in table.tiers if tier.generation.is_bounding}
        self.has_any = bool(self._keys or self._tiers) or any(lane.generation.is_bounding for lane in table.lanes)

        own = (*self._keys.values(), *self._tiers.values())
        self._has_own_max = any(spec.max_tokens is not None for spec in own)

    def limited_by_key(self, request: Request, found: MeasuredRequest, entitlements: Entitlements) -> MeasuredRequest:
        """Return a request with no longer an answer than its key and that key's tier let it have: it enters a lane that holds it so."""
        if self._has_own_max and found.tokens.output:
            own = entitlements.own(request)
            if own not in self._own_max:
                spec = strictest(GenerationSpec(), self._keys.get(own[0]), self._tiers.get(own[1]))
                self._own_max[own] = spec.max_tokens or 0
            most = self._own_max[own]
            if most and found.tokens.output > most:
                found.tokens = found.tokens.bounded(most)
        return found

    def bound(self, request: Request, found: MeasuredRequest, lane: RouteLane) -> tuple[bool, str]:
        """Put what holds for a request into it; return whether anything does, and what is wrong with the length it names."""
        bounds = self.of(lane, request.key_hash, request.tier.spec.name if request.tier is not None else "")
        if bounds is None:
            return False, ""
        return True, bound(request, found, bounds, max_model_len=lane.max_model_len)

    def of(self, lane: RouteLane, key_hash: str, tier: str = "") -> AnswerBounds | None:
        """Return what holds for a lane's answers to a key in a tier; "": to no key that is known, in none. None: nothing does."""
        known = (lane.name, key_hash, tier)
        if known not in self._known:
            spec = strictest(lane.generation, self._tiers.get(tier), self._keys.get(key_hash))
            self._known[known] = AnswerBounds(spec) if spec.is_bounding else None
        return self._known[known]


def bound(request: Request, found: MeasuredRequest, bounds: AnswerBounds, *, max_model_len: int) -> str:
    """Put the bounds into a request: into its body, its notes and the length it is expected to have.

    Return what is wrong with the length it names, where that is no number of tokens: empty, as a rule.
    """
    spec, parsed, body = bounds.spec, found.parsed, request.body
    request.bounds = spec
    named = parsed.output_tokens_max if parsed.has_whole_length else None
    is_lawful = named is not None and named > 0 and (spec.max_tokens is None or named <= spec.max_tokens)
    needs_stop = bool(spec.stop)
    # Most bodies are only added to; those that say what the server says otherwise are written anew.
    if not parsed.prompt or (needs_stop and parsed.has_stop) or (parsed.has_length and not is_lawful):
        return _rewrite(request, found, spec, max_model_len)
    members = bounds.stop_member
    if not parsed.has_length:
        if body.find(_MIN_TOKENS) >= 0:
            return _rewrite(request, found, spec, max_model_len)
        tokens = default_tokens(spec, prompt_tokens=found.prompt.prompt_tokens, max_model_len=max_model_len)
        if tokens is not None:
            members = b'"max_tokens":%d,%b' % (tokens, members)
            _note(request, found, default_reason(spec, tokens), tokens)
    if members:
        at = body.find(b"{") + 1
        request.body = body[:at] + members + body[at:]
    return ""


def _rewrite(request: Request, found: MeasuredRequest, spec: GenerationSpec, max_model_len: int) -> str:
    """Do the same by reading the whole body."""
    body: dict[str, Any] = msgspec.json.decode(request.body)
    named = [key for key in _LENGTHS if body.get(key) is not None]
    for key in named:
        if not isinstance(body[key], int) or isinstance(body[key], bool) or body[key] < 1:
            sent = _shown(body[key])
            return (
                f"`{key}` must be a whole number of tokens, 1 or more, not {sent}: send such a number, or leave it out"
            )
    least = body.get("min_tokens")
    least = least if isinstance(least, int) else 0
    if not named:
        prompt_tokens = found.prompt.prompt_tokens
        tokens = default_tokens(spec, prompt_tokens=prompt_tokens, max_model_len=max_model_len, least=least)
        if tokens is not None:
            body["max_tokens"] = tokens
            _note(request, found, default_reason(spec, tokens), tokens)
    elif spec.max_tokens is not None and body[named[0]] > spec.max_tokens:
        body |= {key: min(body[key], spec.max_tokens) for key in named}
        _note(request, found, BoundReason.MAX_TOKENS, spec.max_tokens)
    if spec.max_tokens is not None and least > spec.max_tokens:
        body["min_tokens"] = spec.max_tokens  # an engine refuses more of these than it may generate
    if spec.stop:
        own = _own_stops(body.get("stop"))
        body["stop"] = [*own, *(stop for stop in spec.stop if stop not in own)]
    request.body = msgspec.json.encode(body)
    return ""


def _shown(value: object) -> str:
    """Return a value as JSON has it, cut short."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}..."


def _own_stops(stop: object) -> list[Any]:
    """Return a client's stop sequences; what is neither text nor a list is for the engine to refuse."""
    if stop is None:
        return []
    return stop if isinstance(stop, list) else [stop]


def _note(request: Request, found: MeasuredRequest, reason: BoundReason, tokens: int) -> None:
    request.length_bound = reason
    request.limited = b"%b=%d" % (reason.value.encode(), tokens)
    found.tokens = found.tokens.bounded(tokens)
