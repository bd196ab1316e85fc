"""What only the whole profile can get wrong: lanes that refer to each other, gaps between them, open doors."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from fleetctl.config.faults import ProfileFault, suggest
from fleetctl.config.fields import token_range

if TYPE_CHECKING:
    from collections.abc import Iterator


def whole_profile_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield the faults between sections. Reads the raw tree, so that a fault elsewhere does not hide these."""
    lanes = {str(name): lane for name, lane in _section(tree, "lanes").items() if isinstance(lane, dict)}
    yield from _spill_faults(lanes)
    yield from _coverage_faults(lanes)
    yield from _node_faults(lanes, _section(tree, "capacity"))
    yield from _gateway_faults(_section(tree, "gateway"))


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


def _coverage_faults(lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    """Name the requests without the batch hint that no lane would take; hinted ones fall back to the same lanes."""
    spans: dict[bool, list[tuple[int, int | None]]] = {True: [], False: []}
    matches = [lane.get("match") or {} for lane in lanes.values()]
    matches = [match for match in matches if isinstance(match, dict)]
    # As admission has it: batch lanes take requests without the hint only where every lane is one.
    for match in [match for match in matches if match.get("batch") is not True] or matches:
        try:
            low, high = (
                token_range(match["uncached_prompt_tokens"]) if match.get("uncached_prompt_tokens") else (None, None)
            )
        except ValueError:
            return  # told as a fault of that key; what it would take is not known
        for is_stream in (True, False):
            if match.get("stream") in (None, is_stream):
                spans[is_stream].append((low or 0, high))
    if not lanes:
        return
    gaps = {is_stream: _gaps(found) for is_stream, found in spans.items()}
    for kind, found in _uncovered(gaps):
        wanted = ", ".join(found)
        message = f"no lane takes {kind} requests with {wanted}; give one lane no match, so that it takes the rest"
        yield ProfileFault(path=("lanes",), message=message)


def _uncovered(gaps: dict[bool, list[str]]) -> Iterator[tuple[str, list[str]]]:
    if gaps[True] == gaps[False]:
        yield from [("streaming or other", gaps[True])] if gaps[True] else []
        return
    yield from [("streaming", gaps[True])] if gaps[True] else []
    yield from [("non-streaming", gaps[False])] if gaps[False] else []


def _gaps(spans: list[tuple[int, int | None]]) -> list[str]:
    """Return the token counts from 0 up that no span [low, high) covers."""
    gaps: list[str] = []
    reached = 0
    for low, high in sorted(spans, key=lambda span: span[0]):
        if low > reached:
            gaps.append(f"{reached} to {low - 1} uncached prompt tokens")
        if high is None:
            return gaps
        reached = max(reached, high)
    return [*gaps, f"{reached} or more uncached prompt tokens" if reached else "any number of uncached prompt tokens"]


def _node_faults(lanes: dict[str, Any], capacity: dict[str, Any]) -> Iterator[ProfileFault]:
    minimum = sum(_replicas_min(lane.get("replicas", 1)) for lane in lanes.values())
    nodes_max = capacity.get("max_nodes")
    if isinstance(nodes_max, int) and not isinstance(nodes_max, bool) and 0 < nodes_max < minimum:
        message = f"is {nodes_max}, but the lanes' replicas need {minimum} at least"
        yield ProfileFault(path=("capacity", "max_nodes"), message=message)


def _replicas_min(replicas: object) -> int:
    low = replicas.get("min") if isinstance(replicas, dict) else replicas
    return low if isinstance(low, int) and not isinstance(low, bool) else 0


def _gateway_faults(gateway: dict[str, Any]) -> Iterator[ProfileFault]:
    host = gateway.get("host")
    if not isinstance(host, str) or not host or is_loopback(host) or gateway.get("api_keys"):
        return
    message = (
        f"{host!r} can be reached from other machines, so api_keys are required; "
        "add api_keys: [env:FLEETCTL_API_KEY], or bind to 127.0.0.1"
    )
    yield ProfileFault(path=("gateway", "host"), message=message)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
