"""Faults on request: how an engine can go wrong, written as --fault or posted to /emulator/faults."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A way to go wrong. `unit` names its number; empty: it takes none."""

    meaning: str
    unit: str = ""
    default: float = 0.0
    spellings: tuple[str, ...] = ()  # what may stand in place of the number
    only_at_start: bool = False


KINDS: dict[str, FaultKind] = {
    "slow": FaultKind(meaning="every step takes FACTOR times as long", unit="factor", default=3.0),
    "hang": FaultKind(meaning="connections are accepted and requests never answered, /health included"),
    "hang-mid-stream": FaultKind(
        meaning="the engine stops once an answer has N tokens; /health stays 200", unit="tokens", default=8
    ),
    "crash": FaultKind(
        meaning="the process ends as by a segmentation fault, N seconds from now or with the Nth request from now",
        unit="seconds",
        spellings=("after_s", "after_requests"),
    ),
    "nan-metrics": FaultKind(meaning="every figure of /metrics but the counts in histograms is NaN"),
    "frozen-metrics": FaultKind(meaning="/metrics stays as it is now"),
    "refuse": FaultKind(
        meaning="inference is answered 503; `refuse:connect` closes the port instead", spellings=("connect",)
    ),
    "poison": FaultKind(meaning='inference is answered 500 where the body says "user": "poison", and well elsewhere'),
    "unhealthy": FaultKind(meaning="/health is 503 and everything else goes on"),
    "never-ready": FaultKind(meaning="start-up never ends", only_at_start=True),
    "truncate-streams": FaultKind(
        meaning="a stream's connection is closed once it has N tokens, without an end", unit="tokens", default=8
    ),
    "garbage-sse": FaultKind(meaning="bytes that are no event follow a stream's Nth token", unit="tokens", default=8),
    "fail-generation": FaultKind(
        meaning="a request ends in an engine error once it has N tokens", unit="tokens", default=1
    ),
}
STREAM_BREAKS = ("truncate-streams", "garbage-sse", "fail-generation", "hang-mid-stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """One fault to inject."""

    kind: str
    value: float
    spelling: str = ""

    def __str__(self) -> str:
        kind = KINDS[self.kind]
        if self.spelling == "connect" or not (kind.unit or self.spelling):
            return f"{self.kind}:{self.spelling}".rstrip(":")
        return f"{self.kind}:{self.spelling}={self.value:g}" if self.spelling else f"{self.kind}:{self.value:g}"


def parse_fault(text: str) -> InjectedFault:
    """Return the fault written as NAME, NAME:NUMBER or NAME:WORD=NUMBER. Raises ConfigError listing the known ones."""
    name, _, parameter = text.strip().partition(":")
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"{name!r} is not a known fault", hint=f"known faults: {describe()}")
    spelling, equals, number = parameter.partition("=")
    if not parameter:
        return InjectedFault(kind=name, value=kind.default)
    if spelling in kind.spellings:
        return InjectedFault(kind=name, value=_number(text, number) if equals else 0.0, spelling=spelling)
    if equals or not kind.unit:
        raise ConfigError(f"{parameter!r} says nothing about the fault {name!r}", hint=f"known faults: {describe()}")
    return InjectedFault(kind=name, value=_number(text, parameter))


def _number(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"the fault {text!r} needs a number from 0 up, not {number!r}")
    if text.startswith("slow") and value == 0:
        raise ConfigError("a slowness of 0 would stop time", hint="use hang-mid-stream for an engine that stops")
    return value


def describe() -> str:
    """Return every fault in one line each way it can be written."""
    return "; ".join(f"{_usage(name, kind)} ({kind.meaning})" for name, kind in KINDS.items())


def _usage(name: str, kind: FaultKind) -> str:
    ways = [kind.unit.upper()] if kind.unit else []
    ways += [word if word == "connect" else f"{word}=N" for word in kind.spellings]
    return f"{name}[:{'|'.join(ways)}]" if ways else name
