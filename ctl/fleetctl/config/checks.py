"""What only the whole profile can get wrong: lanes that refer to each other, gaps between them, a gateway open to everybody."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fleetctl.config.faults import ProfileFault
from fleetctl.config.fields import token_range
from fleetctl.config.model_checks import model_faults
from fleetctl.config.tier_checks import tier_faults
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.lanes import LaneChoice
from fleetctl.model.profile import LaneMatch
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator


def whole_profile_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield the faults between sections. Reads the raw tree, so that a fault elsewhere does not hide these."""
    lanes = {str(name): lane for name, lane in _section(tree, "lanes").items() if isinstance(lane, dict)}
    yield from _spill_faults(lanes)
    for model in dict.fromkeys(str(lane.get("model") or "") for lane in lanes.values()):
        own = {name: lane for name, lane in lanes.items() if str(lane.get("model") or "") == model}
        yield from _coverage_faults(own, model if len(own) < len(lanes) else "")
    yield from model_faults(tree, lanes)
    yield from _node_faults(lanes, _section(tree, "capacity"))
    yield from _gateway_faults(_section(tree, "gateway"))
    yield from _tls_faults(tree)
    yield from _several_gateways_faults(tree)
    yield from _generation_faults(_section(tree, "generation"), lanes)
    yield from _workflow_faults(_section(_section(tree, "workflows"), "kinds"), lanes)
    yield from tier_faults(_section(tree, "tiers"), lanes, _section(tree, "gateway"))


def _section(tree: dict[str, Any], key: str) -> dict[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def _spill_faults(lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    for name, lane in lanes.items():
        targets = lane.get("spill_to")
        for index, target in enumerate(targets if isinstance(targets, list) else []):
            path = ("lanes", name, "spill_to", index)
            if target == name:
                yield ProfileFault(path=path, message="a lane cannot spill to itself")
            elif isinstance(target, str) and target not in lanes:
                near = suggest(target, lanes)
                yield ProfileFault(path=path, message=f"no lane is called {target!r}{near}; lanes: {', '.join(lanes)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MatchedLane:
    """A lane of the raw tree as far as lane choice goes."""

    name: str
    match: LaneMatch
    max_model_len: int  # as pinned; 0: as planned
    has_own_capacity: bool  # pins something of what its engines can hold


def _coverage_faults(lanes: dict[str, Any], model: str) -> Iterator[ProfileFault]:
    """Name the requests that lane choice refuses, where a profile has lanes at all; `model` is theirs alone."""
    try:
        found = [
            _MatchedLane(
                name=name,
                match=_match(lane.get("match")),
                max_model_len=_pinned_len(lane.get("launch")),
                has_own_capacity=bool(_OF_CAPACITY & _section(lane, "launch").keys()),
            )
            for name, lane in lanes.items()
        ]
    except ValueError:
        return  # reported as a fault of that key; what the lane would take is not known
    if not found:
        return
    choice, of_model = LaneChoice(found), f" of model {model}" if model else ""
    yield from _length_faults(found)
    yield from _unreachable_faults(found)
    gaps = {stream: _gaps(choice, stream=stream) for stream in (True, False)}
    for kind, gap in _uncovered(gaps):
        wanted = ", ".join(gap)
        message = (
            f"no lane{of_model} takes {kind} requests with {wanted}; give one lane no match, so that it takes the rest"
        )
        yield ProfileFault(path=("lanes",), message=message)


def _length_faults(lanes: list[_MatchedLane]) -> Iterator[ProfileFault]:
    """Name the lanes whose pinned length holds none of the prompts they match."""
    for lane in lanes:
        low = lane.match.uncached_prompt_tokens_min or 0
        if lane.max_model_len and low >= lane.max_model_len:
            message = (
                f"lane {lane.name} takes prompts of {low} tokens or more, and its engines hold requests of up to "
                f"{lane.max_model_len}: nothing would ever enter it"
            )
            yield ProfileFault(path=("lanes", lane.name, "launch", "max_model_len"), message=message)


# What decides how long a request an engine holds.
_OF_CAPACITY = {"max_model_len", "tensor_parallel", "pipeline_parallel", "gpu_memory_utilization"}


def _unreachable_faults(lanes: list[_MatchedLane]) -> Iterator[ProfileFault]:
    """Name the lanes that lane choice enters for no request without a header."""
    choice, is_planned = LaneChoice(lanes), any(not lane.max_model_len for lane in lanes)
    reached = {name for name, _ in _entered(choice, (True, False))}
    for lane in lanes:
        # Where others hold what the plan gives them, one with a capacity of its own may take what is too long for them.
        if lane.name in reached or (is_planned and lane.has_own_capacity):
            continue
        alone = LaneChoice([lane])
        others = dict.fromkeys(name for name, is_taken in _entered(choice, (lane.match.batch,), by=alone) if is_taken)
        message = (
            f"no request would ever enter lane {lane.name}: {' and '.join(others)} "
            f"{'takes' if len(others) == 1 else 'take'} all that it matches; narrow that match, or this lane's"
        )
        yield ProfileFault(path=("lanes", lane.name, "match"), message=message)


def _entered(
    choice: LaneChoice[_MatchedLane], hints: tuple[bool, ...], by: LaneChoice[_MatchedLane] | None = None
) -> Iterator[tuple[str, bool]]:
    """Yield the lane of every kind and length of request, and whether it would find one `by` other lanes too."""
    pinned = {lane.max_model_len for lane in choice.lanes if lane.max_model_len}
    lengths = sorted({0} | pinned | {length + 1 for length in pinned})
    for tokens, stream, hint, length in product(choice.edges, (True, False), hints, lengths):
        if 0 < length < tokens:
            continue
        chosen, other = (
            each.choose_by(tokens, batch_hint=hint, stream=stream, request_tokens=length)
            for each in (choice, by or choice)
        )
        if not isinstance(chosen, Refusal):
            yield chosen.name, not isinstance(other, Refusal)


def _pinned_len(raw: object) -> int:
    value = raw.get("max_model_len") if isinstance(raw, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _match(raw: object) -> LaneMatch:
    """Return what a raw match says, its faulty keys left out. Raises ValueError where its range cannot be read."""
    match = raw if isinstance(raw, dict) else {}
    tokens, stream = match.get("uncached_prompt_tokens"), match.get("stream")
    low, high = token_range(tokens) if tokens else (None, None)
    return LaneMatch(
        uncached_prompt_tokens_min=low,
        uncached_prompt_tokens_max=high,
        stream=stream if isinstance(stream, bool) else None,
        batch=match.get("batch") is True,
    )


def _uncovered(gaps: dict[bool, list[str]]) -> Iterator[tuple[str, list[str]]]:
    if gaps[True] == gaps[False]:
        yield from [("streaming or other", gaps[True])] if gaps[True] else []
        return
    yield from [("streaming", gaps[True])] if gaps[True] else []
    yield from [("non-streaming", gaps[False])] if gaps[False] else []


def _gaps(choice: LaneChoice[_MatchedLane], *, stream: bool) -> list[str]:
    """Return the token counts that no lane takes without the batch hint; with it, they fall back to the same lanes."""
    gaps: list[tuple[int, int | None]] = []
    for low, high in zip(choice.edges, (*choice.edges[1:], None), strict=True):
        if isinstance(choice.choose_by(low, batch_hint=False, stream=stream), Refusal):
            starts = gaps.pop()[0] if gaps and gaps[-1][1] == low else low
            gaps.append((starts, high))
    return [_tokens(low, high) for low, high in gaps]


def _tokens(low: int, high: int | None) -> str:
    if high is not None:
        return f"{low} to {high - 1} uncached prompt tokens"
    return f"{low} or more uncached prompt tokens" if low else "any number of uncached prompt tokens"


def _node_faults(lanes: dict[str, Any], capacity: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield a cap below what replicas that span machines need: how many others share one, the plan knows."""
    wanted = [(_replicas_min(lane.get("replicas", 1)), _nodes_each(lane.get("launch"))) for lane in lanes.values()]
    minimum = sum(replicas * nodes for replicas, nodes in wanted if nodes > 1)
    nodes_max = capacity.get("max_nodes")
    if isinstance(nodes_max, int) and not isinstance(nodes_max, bool) and 0 < nodes_max < minimum:
        message = f"is {nodes_max}, but the lanes' replicas need {minimum} at least"
        yield ProfileFault(path=("capacity", "max_nodes"), message=message)


def _replicas_min(replicas: object) -> int:
    low = replicas.get("min") if isinstance(replicas, dict) else replicas
    return low if isinstance(low, int) and not isinstance(low, bool) else 0


def _nodes_each(launch: object) -> int:
    spans = launch.get("pipeline_parallel") if isinstance(launch, dict) else None
    return spans if isinstance(spans, int) and not isinstance(spans, bool) else 1


def _gateway_faults(gateway: dict[str, Any]) -> Iterator[ProfileFault]:
    host = gateway.get("host")
    if not isinstance(host, str) or not host or is_loopback(host) or gateway.get("api_keys"):
        return
    message = (
        f"{host!r} can be reached from other machines, so api_keys are required; "
        "add api_keys: [env:FLEETCTL_API_KEY], or bind to 127.0.0.1"
    )
    yield ProfileFault(path=("gateway", "host"), message=message)


def _tls_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Refuse a certificate where the gateway has no way to it: a Secret is of a cluster, and a pod has no files of ours."""
    tls, host, provider = _section(_section(tree, "gateway"), "tls"), _kind(tree, "host"), _kind(tree, "provider")
    if tls.get("secret") and provider != "kubernetes":
        message = "a Secret is of the cluster that the gateway runs in; write certificate and key"
        yield ProfileFault(path=("gateway", "tls", "secret"), message=message)
    if tls.get("certificate") and host == "kubernetes":
        message = "the gateway's pod has no file of this machine; make a Secret of type kubernetes.io/tls, and write secret: NAME"
        yield ProfileFault(path=("gateway", "tls", "certificate"), message=message)


def _kind(tree: dict[str, Any], key: str) -> object:
    value = tree.get(key)
    return value.get("kind") if isinstance(value, dict) else value


def _several_gateways_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Refuse what one process must see all of."""
    processes = _section(tree, "gateway").get("processes", 1)
    if isinstance(processes, int) and processes > 1 and tree.get("workflows") is not None:
        message = "the calls of a workflow are joined by the gateway that sees them all; with workflows there is one: processes: 1"
        yield ProfileFault(path=("gateway", "processes"), message=message)


def _generation_faults(common: dict[str, Any], lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    """Name the lanes whose own bounds contradict what they take over from the fleet's; within one section its shape does."""
    for name, lane in lanes.items():
        own = _section(lane, "generation")
        most, usual = ({**common, **own}.get(key) for key in ("max_tokens", "default_max_tokens"))
        is_mixed = ("max_tokens" in own) != ("default_max_tokens" in own)
        if is_mixed and isinstance(most, int) and isinstance(usual, int) and usual > most:
            key = "max_tokens" if "max_tokens" in own else "default_max_tokens"
            message = f"default_max_tokens ({usual}) is above max_tokens ({most}), of which one is the fleet's generation section's"
            yield ProfileFault(path=("lanes", name, "generation", key), message=message)


def _workflow_faults(kinds: dict[str, Any], lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    for name, kind in kinds.items():
        lane = kind.get("lane") if isinstance(kind, dict) else None
        if isinstance(lane, str) and lane not in lanes:
            message = f"no lane is called {lane!r}{suggest(lane, lanes)}; lanes: {', '.join(lanes)}"
            yield ProfileFault(path=("workflows", "kinds", str(name), "lane"), message=message)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
