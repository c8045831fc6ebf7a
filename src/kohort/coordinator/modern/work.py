"""What takes too long for a turn of the coordinator and is computed elsewhere: one's own assignor, expressions.

Plain values that hold all they need; the group goes on meanwhile. What comes back counts only where the group still
waits for this very piece of work: see target.py and regexes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.assignors import GroupSpec, MemberSpec, ServerAssignor
from kohort.assignors.server import checked
from kohort.coordinator import expressions


class Assigning:
    """A target for one epoch of a group, by an assignor that nobody knows to be quick."""

    __slots__ = ("assignor", "epoch", "group_id", "name", "spec")
    may_hang = True

    def __init__(self, group_id: str, epoch: int, name: str, assignor: ServerAssignor, spec: GroupSpec) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.name = name
        self.assignor = assignor
        self.spec = spec

    def compute(self) -> Any:
        return checked(self.spec, self.assignor.assign(_copied(self.spec)), self.name)

    def __repr__(self) -> str:
        return f"assignor {self.name} for epoch {self.epoch} of group {self.group_id}"


def _copied(spec: GroupSpec) -> GroupSpec:
    """Nothing that the assignor does to it reaches the group."""
    members = {
        member_id: MemberSpec(
            frozenset(member.topic_ids),
            {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned.items()},
            member.instance_id,
            member.rack_id,
        )
        for member_id, member in spec.members.items()
    }
    return GroupSpec(members, dict(spec.topics), spec.alike)


class Resolving:
    """Which topics a group's expressions stand for: patterns times topics."""

    __slots__ = ("group_id", "names", "regexes")
    may_hang = False  # RE2 takes time linear in what it reads

    def __init__(self, group_id: str, regexes: tuple[str, ...], names: tuple[str, ...]) -> None:
        self.group_id = group_id
        self.regexes = regexes
        self.names = names

    def compute(self) -> Mapping[str, frozenset[str]]:
        return {regex: expressions.matching(regex, self.names) for regex in self.regexes}

    def __repr__(self) -> str:
        return f"{len(self.regexes)} expressions of group {self.group_id} over {len(self.names)} topics"


Work = Assigning | Resolving
