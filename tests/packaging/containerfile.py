"""The Containerfile's instructions, for who builds by them without a container's builder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from tests.packaging.installed import ROOT

_FILE = ROOT / "Containerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStage:
    """One stage: what it copies from the checkout and where it puts that, and what it runs."""

    name: str
    copies: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    takes: list[tuple[str, str, str]] = field(default_factory=list)  # stage, its path, the path here
    runs: list[str] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)  # instruction, what it says

    def values_of(self, instruction: str) -> list[str]:
        """Return the text of each instruction of this name."""
        return [text for each, text in self.others if each == instruction]

    def pairs(self, instruction: str) -> dict[str, str]:
        """Return the names and values of such instructions, as ENV and LABEL have them."""
        words = [word for text in self.values_of(instruction) for word in shlex.split(text)]
        return dict(word.split("=", 1) for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """All of it: variables of the whole, and stages in their order."""

    arguments: dict[str, str]
    stages: list[BuildStage]

    @property
    def environment(self) -> dict[str, str]:
        """What the image gives every process."""
        return self.stages[-1].pairs("ENV")


def read_containerfile() -> ImageBuild:
    """Return what the Containerfile says. An instruction that is not known here raises."""
    found = ImageBuild(arguments={}, stages=[])
    for instruction, text in _instructions():
        if not found.stages and instruction == "ARG":
            name, _, value = text.partition("=")
            found.arguments[name] = value
        elif instruction == "FROM":
            found.stages.append(BuildStage(name=text.partition(" AS ")[2], others=[(instruction, text)]))
        elif instruction == "COPY":
            _add_copy(found.stages[-1], shlex.split(text))
        elif instruction == "RUN":
            found.stages[-1].runs.append(text)
        elif instruction in {"ARG", "WORKDIR", "ENV", "LABEL", "USER", "ENTRYPOINT", "CMD"}:
            found.stages[-1].others.append((instruction, text))
        else:
            raise AssertionError(f"what does {instruction} do?")
    return found


def _add_copy(stage: BuildStage, words: list[str]) -> None:
    if words[0].startswith("--from="):
        stage.takes.append((words[0].removeprefix("--from="), words[1], words[2]))
    else:
        stage.copies.append((tuple(words[:-1]), words[-1]))


def _instructions() -> list[tuple[str, str]]:
    lines = [line for line in _FILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, text.strip()) for name, _, text in (line.partition(" ") for line in joined.splitlines())]
