"""Assignors that run in the broker (KIP-848): the values they work on, and the `ServerAssignor` to write one's own.

Topics are known by their ids: a topic that was deleted and made again is another one. How the two of Kafka's deal
partitions out is in server_range.py and server_uniform.py; what an answer must be is checked in `checked`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

Partitions = Mapping[bytes, Set[int]]
"""Partition numbers by topic id."""


class AssignmentError(Exception):
    """No assignment can be made, or what was made is none; the message says why."""


class TopicSpec(NamedTuple):
    name: str
    partitions: int


@dataclass(slots=True)
class MemberSpec:
    """What a member subscribes to, and what the last target assignment has given it."""

    topic_ids: Set[bytes]
    assigned: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(slots=True)
class GroupSpec:
    """A group at the moment of its assignment. `alike`: all members subscribe to the same topics."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[bytes, TopicSpec]
    alike: bool


class ServerAssignor(Protocol):
    """One way of dealing a group's partitions out, in the broker.

    Write `name` and `assign`. Members ask for it by its name (`group.remote.assignor`); the first of
    `group.consumer.assignors` is what a group gets that does not ask. Where it raises, or its answer is none, the
    group keeps what it has. It runs on a thread of its own, and has some seconds.
    """

    name: str

    def assign(self, spec: GroupSpec) -> Mapping[str, Mapping[bytes, Collection[int]]]:
        """Partitions by topic id for the members of `spec`; who is left out gets nothing."""
        ...


def partition_count(spec: GroupSpec, topic_id: bytes) -> int:
    topic = spec.topics.get(topic_id)
    if topic is None:
        raise AssignmentError(f"a member subscribes to topic {topic_id.hex()}, which does not exist")
    return topic.partitions


def checked(spec: GroupSpec, answer: object, assignor: str) -> dict[str, dict[bytes, frozenset[int]]]:
    """The answer of a custom assignor, or AssignmentError where it is no assignment of this group."""
    if not isinstance(answer, Mapping):
        raise AssignmentError(f"assignor {assignor} must return a mapping of member ids, not {type(answer).__name__}")
    owners: dict[tuple[bytes, int], str] = {}
    assignment: dict[str, dict[bytes, frozenset[int]]] = {}
    for member_id, given in answer.items():
        if member_id not in spec.members:
            raise AssignmentError(f"assignor {assignor} assigns to {member_id!r}, which is no member of the group")
        if not isinstance(given, Mapping):
            raise AssignmentError(f"assignor {assignor} must give {member_id} a mapping of topic ids")
        partitions = {topic_id: _numbers(spec, topic_id, given[topic_id], assignor) for topic_id in given}
        assignment[member_id] = {topic_id: numbers for topic_id, numbers in partitions.items() if numbers}
        for topic_id, numbers in partitions.items():
            for number in numbers:
                other = owners.setdefault((topic_id, number), member_id)
                if other != member_id:
                    name = spec.topics[topic_id].name
                    raise AssignmentError(f"assignor {assignor} gives {name}-{number} to {other} and to {member_id}")
    return assignment


def _numbers(spec: GroupSpec, topic_id: object, given: object, assignor: str) -> frozenset[int]:
    topic = spec.topics.get(topic_id) if isinstance(topic_id, bytes) else None
    if topic is None:
        raise AssignmentError(f"assignor {assignor} assigns topic {topic_id!r}, which the group does not read")
    if not isinstance(given, Collection) or not all(type(number) is int for number in given):
        raise AssignmentError(f"assignor {assignor} must give partitions of {topic.name} as a collection of integers")
    numbers = frozenset(given)
    if numbers and not 0 <= min(numbers) <= max(numbers) < topic.partitions:
        raise AssignmentError(f"assignor {assignor} assigns partitions that {topic.name} does not have")
    return numbers
