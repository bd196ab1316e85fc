"""Durations, sizes, money, counts and percentages, read from and written as people write them."""

from __future__ import annotations

import re

from fleetctl.errors import ConfigError

_DURATION_S = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_NUMBER = r"(\d+(?:\.\d+)?)"


def format_count(count: int, noun: str) -> str:
    """Return "1 lane", "3 lanes"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_ready(ready: int, wanted: int) -> str:
    """Return "2 of 3 replicas ready"; "3 replicas ready, 1 wanted" where more are there than wanted, as in shadow mode."""
    return f"{ready} of {wanted} replicas ready" if ready <= wanted else f"{ready} replicas ready, {wanted} wanted"


def format_rps(rps: float) -> str:
    """Return requests per second without the unit: "83,000", "6.4"."""
    return f"{rps:,.0f}" if rps >= 1000 else f"{rps:.3g}"


def parse_duration_s(text: str) -> float:
    """Return seconds from "300ms", "2s", "1h30m". A bare number is refused: it has no unit. Raises ConfigError."""
    parts = re.findall(_NUMBER + r"\s*([a-z]+)", text)
    if not parts or re.sub(_NUMBER + r"\s*[a-z]+\s*", "", text).strip():
        raise ConfigError(
            f"{text!r} is not a duration",
            hint="write a number and a unit: 250us, 300ms, 2s, 5m, 4h, 7d",
        )
    unknown = [unit for _, unit in parts if unit not in _DURATION_S]
    if unknown:
        raise ConfigError(f"unknown unit {unknown[0]!r} in duration {text!r}", hint="units: us, ms, s, m, h, d, w")
    return sum(float(number) * _DURATION_S[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Return the shortest usual spelling: 85us, 300ms, 1.25s, 4m10s, 3h, 2d4h. Two units at most."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 60:
        return _format_short(seconds)
    whole = round(seconds)
    steps = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
    size, unit, below, below_unit = next(step for step in steps if whole >= step[0])
    rest = whole % size // below
    return f"{whole // size}{unit}" + (f"{rest}{below_unit}" if rest else "")


def _format_short(seconds: float) -> str:
    if seconds == 0:
        return "0s"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f}us"
    return f"{seconds * 1e3:.3g}ms" if seconds < 0.9995 else f"{seconds:.3g}s"


def parse_bytes(text: str) -> int:
    """Return bytes from "24GiB", "80 GB". Raises ConfigError."""
    match = re.fullmatch(_NUMBER + r"\s*([A-Za-z]+)", text.strip())
    if match is None or match[2] not in _BYTES:
        raise ConfigError(f"{text!r} is not a size", hint="write a number and a unit: 512MiB, 24GiB, 80GB")
    return int(float(match[1]) * _BYTES[match[2]])


def format_bytes(count: float) -> str:
    """Return a size in binary units, three significant digits."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(count) >= _BYTES[unit]:
            return f"{count / _BYTES[unit]:.3g}{unit}"
    return f"{count:.0f}B"


def parse_usd(text: str) -> float:
    """Return dollars from "$55", "$1.69" or "55 USD". Raises ConfigError."""
    match = re.fullmatch(r"\$\s*" + _NUMBER + "|" + _NUMBER + r"\s*USD", text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not an amount of money", hint="write dollars: $55 or $1.69")
    return float(match[1] or match[2])


def format_usd(amount: float) -> str:
    """Return dollars with cents; four decimals under ten cents."""
    return f"${amount:,.4f}" if 0 < abs(amount) < 0.1 else f"${amount:,.2f}"


def parse_fraction(text: str) -> float:
    """Return a fraction from "99.5%". Raises ConfigError outside 0-100 %."""
    match = re.fullmatch(_NUMBER + r"\s*%", text.strip())
    if match is None or not 0 <= float(match[1]) <= 100:
        raise ConfigError(f"{text!r} is not a percentage", hint="write 0% to 100%, like 99.5%")
    return round(float(match[1]) / 100, 12)


def format_fraction(fraction: float) -> str:
    """Return a percentage, up to two decimals."""
    return f"{fraction * 100:.2f}".rstrip("0").rstrip(".") + "%"
