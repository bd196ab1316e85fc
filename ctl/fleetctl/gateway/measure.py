"""What a request's prompt comes to: its length, who has it cached, and whether the ladder lets it in whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.tokens import RequestTokens
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.core.routing.prefix_index import adapter_hashes, block_hashes
from fleetctl.gateway.classify import ParsedRequest, parse_request
from fleetctl.gateway.degrade import trim

if TYPE_CHECKING:
    from fleetctl.core.admission.ladder import Degradation
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.gateway.requests import Request


# No cycle passes through one, and there is one for every request: not for the garbage collector to track.
class MeasuredRequest(msgspec.Struct, gc=False):
    """A request with what its prompt brings."""

    parsed: ParsedRequest
    prompt: PromptLoad
    tokens: RequestTokens
    hashes: list[int]


def measure(parsed: ParsedRequest, routes: RoutingState) -> MeasuredRequest:
    """Return a parsed request with its prompt's length and cached share."""
    hashes = block_hashes(parsed.prompt)
    size, longest, ratio = parsed.size, parsed.longest, routes.ratio
    prompt = routes.prompt_load(size, hashes)
    prompt_tokens = prompt.prompt_tokens if longest is size else ratio.prompt_tokens(longest)
    output_max = parsed.output_tokens_max
    tokens = ratio.request_tokens(
        longest, prompt_tokens, output_max if output_max is not None and output_max > 0 else 0
    )
    return MeasuredRequest(parsed, prompt, tokens, hashes)


def measured_for_adapter(found: MeasuredRequest, adapter: str, routes: RoutingState) -> None:
    """Count as cached what is cached of the prompt for this adapter alone."""
    found.hashes = adapter_hashes(found.hashes, adapter)
    found.prompt = routes.prompt_load(found.parsed.size, found.hashes)


def fit_context(
    request: Request, found: MeasuredRequest, degradation: Degradation, routes: RoutingState
) -> MeasuredRequest:
    """Return the request as its lane's ladder step lets it in, the oldest turns cut off its body where it trims."""
    cap = degradation.context_tokens
    if cap is None or not degradation.trims_context or found.prompt.prompt_tokens <= cap:
        return found
    request.body, request.messages_cut = trim(request.body, cap, found.prompt.prompt_tokens, routes.ratio.tokens)
    if not request.messages_cut:
        return found
    cut = measure(parse_request(request.body), routes)
    if request.adapter:
        measured_for_adapter(cut, request.adapter, routes)
    return cut
