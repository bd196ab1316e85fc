"""Writes the lines of a Prometheus text page; how a figure is spelt is its owner's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class MetricsPage:
    """A page whose samples all have the same first labels, and whose names begin alike."""

    def __init__(self, prefix: str, **labels: str) -> None:
        self._prefix = prefix
        self._labels = labels
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """Add a family with its samples, each of its own labels and a value; one without samples has its heading alone."""
        full = self._prefix + name
        self._lines += heading(full, kind, text)
        self._lines += [f"{sample_name(full, {**self._labels, **labels})} {value:.17g}" for labels, value in samples]

    def histogram(
        self,
        name: str,
        text: str,
        samples: Iterable[tuple[Mapping[str, str], Mapping[str, int], float]],
    ) -> None:
        """Add a histogram: of each sample its labels, how many are at most each limit ("+Inf" the last), and their sum."""
        full = self._prefix + name
        self._lines += heading(full, "histogram", text)
        for own, counts, total in samples:
            labels = {**self._labels, **own}
            bucket = f"{full}_bucket"
            self._lines += [f"{sample_name(bucket, labels | {'le': le})} {count}" for le, count in counts.items()]
            self._lines.append(f"{sample_name(f'{full}_sum', labels)} {total:.17g}")
            self._lines.append(f"{sample_name(f'{full}_count', labels)} {counts['+Inf']}")

    def text(self) -> str:
        """Return the page so far."""
        return "\n".join((*self._lines, ""))


def heading(name: str, kind: str, text: str) -> tuple[str, str]:
    """Return a family's HELP and TYPE lines."""
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def sample_name(name: str, labels: Mapping[str, str]) -> str:
    """Return name{a="x",b="y"}, the labels in their given order; without labels the name alone."""
    if not labels:
        return name
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{name}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
