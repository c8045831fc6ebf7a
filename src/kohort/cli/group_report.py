"""What `describe`, `watch` and `explain` know of a group: state, members, assignment, offsets, lag. Read with Admin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from kohort.client.types import TopicPartition
from kohort.coordinator.causes import Who
from kohort.insight.waiting import Holding, Wait, waits

DEAD = "Dead"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class MemberRow:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    regex: str | None = None
    protocol: str = "classic"

    @property
    def who(self) -> Who:
        return Who(self.member_id, self.instance_id, self.client_id, self.host)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """`lag` is None where nothing is committed or the partition is gone, and never negative."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None = None
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """`generation` is the epoch of a group of the newer protocol; None where nobody tells."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    protocol: str
    generation: int | None
    coordinator: int
    coordinator_address: str | None
    members: list[MemberRow] = field(default_factory=list)
    partitions: list[PartitionRow] = field(default_factory=list)
    assignment_epoch: int | None = None

    @property
    def is_modern(self) -> bool:
        return self.assignment_epoch is not None

    @property
    def waits(self) -> list[Wait]:
        """Of a group of the newer protocol: who waits for which partition."""
        holdings = [
            Holding(m.who, m.epoch or 0, frozenset(m.assignment), frozenset(m.target or ()))
            for m in self.members
            if m.target is not None
        ]
        return waits(holdings)

    @property
    def total_lag(self) -> int | None:
        known = [row.lag for row in self.partitions if row.lag is not None]
        return sum(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        head: dict[str, Any] = {
            "group": self.group_id,
            "state": self.state,
            "type": self.type,
            "protocol_type": self.protocol_type,
            "protocol": self.protocol,
            "generation": self.generation,
            "coordinator": {"id": self.coordinator, "address": self.coordinator_address},
            "total_lag": self.total_lag,
        }
        members = [
            asdict(member)
            | {
                "topics": list(member.topics),
                "assignment": by_topic(member.assignment),
                "target": None if member.target is None else by_topic(member.target),
            }
            for member in self.members
        ]
        if self.is_modern:
            head |= {"assignment_epoch": self.assignment_epoch, "waits": list(map(_wait_dict, self.waits))}
        return head | {"members": members, "partitions": [asdict(row) for row in self.partitions]}


def _wait_dict(wait: Wait) -> dict[str, Any]:
    topic, partition = wait.partition
    return {
        "topic": topic,
        "partition": partition,
        "member_id": wait.waiter.member_id,
        "held_by": wait.holder.member_id if wait.holder else None,
        "reason": wait.reason.value,
        "text": wait.text,
    }


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def compact(partitions: Iterable[TopicPartition]) -> str:
    """`orders:0-2,5 payments:1`."""
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in by_topic(partitions).items())


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def read_report(admin: Any, group_id: str) -> GroupReport:
    """One look at a group. `generation` of a classic group is not in the protocol: see group_log."""
    described = admin.describe_groups([group_id])[group_id]
    committed = {} if described.state == DEAD else admin.group_offsets(group_id)
    members = [
        MemberRow(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host.lstrip("/"),
            m.topics,
            tuple(sorted(m.assignment)),
            m.member_epoch,
            None if m.target_assignment is None else tuple(sorted(m.target_assignment)),
            m.regex,
            "classic" if m.is_classic else CONSUMER,
        )
        for m in sorted(described.members, key=lambda m: (m.group_instance_id or "", m.member_id))
    ]
    owners = {tp: member for member in members for tp in member.assignment}
    wanted = sorted({*committed, *owners})
    ends = end_offsets(admin, wanted)
    return GroupReport(
        group_id,
        described.state,
        described.type,
        described.protocol_type,
        described.assignor,
        described.epoch,
        described.coordinator,
        _address(admin, described.coordinator),
        members,
        [_row(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in wanted],
        described.assignment_epoch,
    )


def _address(admin: Any, node_id: int) -> str | None:
    node = admin.describe_cluster().nodes.get(node_id)
    return None if node is None else f"{node[0]}:{node[1]}"


def _row(tp: TopicPartition, committed: Any, end: int | None, owner: MemberRow | None) -> PartitionRow:
    current = None if committed is None or committed.offset < 0 else committed.offset
    lag = None if current is None or end is None else max(0, end - current)
    if owner is None:
        return PartitionRow(tp.topic, tp.partition, current, end, lag)
    who = (owner.member_id, owner.instance_id, owner.client_id, owner.host)
    return PartitionRow(tp.topic, tp.partition, current, end, lag, *who)


def existing_partitions(admin: Any, topics: Iterable[str]) -> dict[str, list[TopicPartition]]:
    """The partitions that have a leader, by topic; topics that do not exist are left out."""
    wanted = set(topics) & set(admin.list_topics(internal=True)) if topics else set()
    infos = admin.describe_topics(wanted) if wanted else {}
    return {
        name: [TopicPartition(name, p.partition) for p in info.partitions if p.leader >= 0]
        for name, info in infos.items()
    }


def end_offsets(admin: Any, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that exist and have a leader: a committed offset outlives its topic."""
    wanted = set(wanted)
    existing = existing_partitions(admin, {tp.topic for tp in wanted})
    asked = [tp for partitions in existing.values() for tp in partitions if tp in wanted]
    found = admin.list_offsets(dict.fromkeys(asked, "latest")) if asked else {}
    return {tp: place.offset for tp, place in found.items() if place is not None}
