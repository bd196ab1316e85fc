"""What a decision, a journal line or a question is about: typed, so that a lane may be called `gateway`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SubjectKind(StrEnum):
    """The kinds of things there are to be about."""

    FLEET = "fleet"
    GATEWAY = "gateway"
    LANE = "lane"
    REPLICA = "replica"
    NODE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing of a fleet by its kind and name; as text it is the name, as the faces show it."""

    kind: SubjectKind
    name: str

    @classmethod
    def lane(cls, name: str) -> Subject:
        """Return a lane."""
        return cls(kind=SubjectKind.LANE, name=name)

    @classmethod
    def replica(cls, replica_id: str) -> Subject:
        """Return a replica."""
        return cls(kind=SubjectKind.REPLICA, name=replica_id)

    @classmethod
    def node(cls, node_id: str) -> Subject:
        """Return a node, by the provider's name for it."""
        return cls(kind=SubjectKind.NODE, name=node_id)

    @property
    def path(self) -> str:
        """Return `kind/name`, which means this one thing and nothing else."""
        return f"{self.kind}/{self.name}"

    def __str__(self) -> str:
        """Return the name alone."""
        return self.name


FLEET = Subject(kind=SubjectKind.FLEET, name="fleet")
GATEWAY = Subject(kind=SubjectKind.GATEWAY, name="gateway")


def subjects_named(text: str) -> tuple[Subject, ...]:
    """Return what `text` may mean: the one thing of a `kind/name`, else a thing of every kind by that name."""
    kind, _, name = text.partition("/")
    if name and kind in list(SubjectKind):
        return (Subject(kind=SubjectKind(kind), name=name),)
    whole = tuple(subject for subject in (FLEET, GATEWAY) if subject.name == text)
    return (*whole, Subject.lane(text), Subject.replica(text), Subject.node(text))
