"""A history with a known course: groups whose rebalances, commits and lags are planned, and what must be told of them.

Nothing of kohort.history or kohort.insight is used to make the truth: it is added up beside the records. Partitions
grow evenly and are dealt out in turns, so that every number can be told by arithmetic alone.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kohort.assignors import Assignment, Subscription, encode_assignment, encode_subscription
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.offsets import OffsetAndMetadata
from kohort.coordinator.records import GroupMetadata, OffsetCommit, StoredGroup, StoredMember, encode

START_MS = 1_790_000_000_000 // 3_600_000 * 3_600_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
SESSION_MS, REBALANCE_TIMEOUT_MS = 45_000, 300_000
BEHAVIOURS = ("keeps up", "lag rises", "stalled", "stopped committing", "rewound")


@dataclass
class Truth:
    """What was put in; partition-milliseconds are those without a reader."""

    rebalances: Counter[str] = field(default_factory=Counter)
    standstill_ms: Counter[str] = field(default_factory=Counter)
    standstill_by_hour: Counter[int] = field(default_factory=Counter)
    partition_ms: Counter[str] = field(default_factory=Counter)
    unnoticed_ms: Counter[str] = field(default_factory=Counter)
    moves: list[tuple[int, int, int]] = field(default_factory=list)  # generation, moved, kept
    storms: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, rebalances
    flapping: list[tuple[str, int, int, int]] = field(default_factory=list)  # client, from, to, times


@dataclass
class Group:
    """`exact`: a kohort broker kept its events; else only its generations and commits are known."""

    name: str
    topic: str
    partitions: int
    rate: int  # records a second and partition
    exact: bool
    behaviour: str
    hours: int
    lasts_ms: int = 500
    truth: Truth = field(default_factory=Truth)
    generation: int = 0
    members: list[str] = field(default_factory=list)
    held: dict[int, str] = field(default_factory=dict)
    born: Counter[str] = field(default_factory=Counter)
    told: list[bytes] = field(default_factory=list)  # events
    stored: list[tuple[bytes, bytes | None, int]] = field(default_factory=list)
    quiet: list[tuple[int, int]] = field(default_factory=list)  # when nobody commits

    # -- what happens

    def joins(self, client: str, at_ms: int, lasts_ms: int) -> None:
        self.born[client] += 1
        self._rebalance(CauseKind.JOINED, client, [*self.members, client], at_ms, lasts_ms)

    def leaves(self, client: str, at_ms: int, lasts_ms: int) -> None:
        self._rebalance(CauseKind.LEFT, client, [m for m in self.members if m != client], at_ms, lasts_ms)

    def dies(self, client: str, at_ms: int, lasts_ms: int) -> None:
        """Its session is over at `at_ms`."""
        if self.exact:
            lost = sum(owner == client for owner in self.held.values())
            self.truth.unnoticed_ms[CauseKind.TIMED_OUT.value] += lost * SESSION_MS
            self.truth.partition_ms[CauseKind.TIMED_OUT.value] += lost * SESSION_MS
        self._rebalance(CauseKind.TIMED_OUT, client, [m for m in self.members if m != client], at_ms, lasts_ms)

    def _rebalance(self, kind: CauseKind, client: str, members: list[str], at_ms: int, lasts_ms: int) -> None:
        first, truth = not self.generation, self.truth
        who = self._who(client)
        self.generation += 1
        self.members = sorted(members)
        held = {p: self.members[p % len(members)] for p in range(self.partitions)}
        if not self.exact:
            gone = CauseKind.BEGAN if first else CauseKind.GONE
            kind = kind if kind is CauseKind.JOINED and not first else gone
        both = held.keys() & self.held.keys()
        moved = sum(held[p] != self.held[p] for p in both)
        truth.moves.append((self.generation, moved, len(both) - moved))
        truth.rebalances[kind.value] += 1
        truth.standstill_ms[kind.value] += lasts_ms
        truth.partition_ms[kind.value] += lasts_ms * len(self.held)
        self._count_hours(at_ms, lasts_ms)
        self.held = held
        self.quiet.append((at_ms, at_ms + lasts_ms))
        if self.exact:
            self._tell(kind, who, at_ms, lasts_ms)
        self._store(at_ms + lasts_ms)

    def _count_hours(self, at_ms: int, lasts_ms: int) -> None:
        while lasts_ms:
            here = min(lasts_ms, (at_ms // HOUR + 1) * HOUR - at_ms)
            self.truth.standstill_by_hour[at_ms // HOUR * HOUR] += here
            at_ms, lasts_ms = at_ms + here, lasts_ms - here

    def _who(self, client: str) -> Who:
        return Who(f"{client}-{self.name}-{self.born[client]}", None, client, f"/10.0.0.{len(client)}")

    def _tell(self, kind: CauseKind, who: Who, at_ms: int, lasts_ms: int) -> None:
        timeout_ms = SESSION_MS if kind is CauseKind.TIMED_OUT else None
        told = {
            "group_id": self.name,
            "generation": self.generation,
            "cause": Cause(kind, (who,), timeout_ms=timeout_ms),
        }
        size = len(self.members)
        started = events.RebalanceStarted(at_ms=at_ms, members=size, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, **told)
        leader = self._who(self.members[0]).member_id
        ended = events.RebalanceCompleted(
            at_ms=at_ms + lasts_ms, protocol="roundrobin", leader_id=leader, members=size, duration_ms=lasts_ms, **told
        )
        self.told += [json.dumps(event.to_dict()).encode() for event in (started, ended)]

    def _store(self, at_ms: int) -> None:
        members = []
        for client in self.members:
            who = self._who(client)
            mine = [p for p, owner in self.held.items() if owner == client]
            subscription = encode_subscription(Subscription([self.topic]))
            assignment = encode_assignment(Assignment({self.topic: mine}))
            members.append(
                StoredMember(
                    who.member_id,
                    None,
                    client,
                    who.client_host,
                    REBALANCE_TIMEOUT_MS,
                    SESSION_MS,
                    subscription,
                    assignment,
                )
            )
        leader = members[0].member_id
        group = StoredGroup("consumer", self.generation, "roundrobin", leader, at_ms, tuple(members))
        self.stored.append((*encode(GroupMetadata(self.name, group)), at_ms))

    # -- commits

    def end(self, at_ms: int) -> int:
        return self.rate * ((at_ms - START_MS) // 1000)

    def committed(self, at_ms: int) -> int:
        """The offset that the group's plan has for this moment; a record a partition and minute."""
        end, half = self.end(at_ms), self.end(START_MS + self.hours * HOUR // 2)
        if self.behaviour == "lag rises":
            return end // 2
        if self.behaviour == "stalled":
            return min(end // 2, half // 2)
        if self.behaviour == "stopped committing":
            return end // 2
        if self.behaviour == "rewound" and at_ms % HOUR == 0:
            return end // 2
        return end

    def commit_times(self) -> list[int]:
        """Every minute, when somebody reads."""
        lasts = self.hours * HOUR // (2 if self.behaviour == "stopped committing" else 1)
        every = range(START_MS + MINUTE, START_MS + lasts + 1, MINUTE)
        nobody = {at_ms for begin, end in self.quiet for at_ms in range(begin // MINUTE * MINUTE + MINUTE, end, MINUTE)}
        return [at_ms for at_ms in every if at_ms not in nobody]

    def looks(self) -> Iterator[tuple[int, str, int, int]]:
        """Hour by hour: when, the verdict, the lag of a partition, and how old its next record is."""
        times = self.commit_times()
        half_ms = START_MS + self.hours * HOUR // 2
        for at_ms in range(START_MS + HOUR, START_MS + self.hours * HOUR + 1, HOUR):
            last_ms = times[bisect_right(times, at_ms) - 1]
            offset = self.committed(last_ms)
            verdict = self.behaviour
            if verdict in ("stalled", "stopped committing") and at_ms <= half_ms:
                verdict = "lag rises"
            if verdict == "rewound" and last_ms != at_ms:
                verdict = "keeps up"  # the commit that would have gone back was not made
            lag = self.end(at_ms) - offset
            yield at_ms, verdict, lag, at_ms - (START_MS + offset * 1000 // self.rate) if lag else 0

    def commits(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        for at_ms in self.commit_times():
            for partition in range(self.partitions):
                value = OffsetAndMetadata(self.committed(at_ms), -1, "", at_ms, -1, b"")
                yield *encode(OffsetCommit(self.name, self.topic, partition, value)), at_ms


def course(groups: int, hours: int) -> list[Group]:
    """Groups of every behaviour, of both sources in turn, each with a storm and, day by day, a member that flaps."""
    return [_planned(number, hours) for number in range(groups)]


def _planned(number: int, hours: int) -> Group:
    behaviour = BEHAVIOURS[number // 2 % len(BEHAVIOURS)]
    group = Group(
        f"group-{number:03d}", f"topic-{number:03d}", 4 + number % 3, 2 + number % 5, number % 2 == 0, behaviour, hours
    )
    lasts_ms = group.lasts_ms = 500 + 100 * number % 3_000
    at_ms = START_MS + 2 * MINUTE
    group.joins("one", at_ms, lasts_ms)
    group.joins("two", at_ms + 20 * MINUTE, lasts_ms)
    _storm(group, START_MS + HOUR + 5 * MINUTE, 6 + number % 3, lasts_ms)
    _flaps(group, START_MS + 2 * HOUR + 5 * MINUTE, 3 + number % 2, lasts_ms)
    group.joins("four", START_MS + 3 * HOUR + 10 * MINUTE, lasts_ms)
    group.dies("four", START_MS + 3 * HOUR + 30 * MINUTE, lasts_ms)
    # Over the end of an hour, to the middle of the next minute.
    group.joins("five", START_MS + 4 * HOUR - MINUTE, 90_000)
    active_ms = hours * HOUR // (2 if behaviour == "stopped committing" else 1)
    for day_ms in range(START_MS + DAY, START_MS + active_ms - 6 * HOUR, DAY):
        _another_day(group, day_ms, number, lasts_ms)
    return group


def _another_day(group: Group, day_ms: int, number: int, lasts_ms: int) -> None:
    """One flaps, one comes and dies, one comes and goes over the end of an hour."""
    _flaps(group, day_ms + 2 * HOUR + 5 * MINUTE, 3 + number % 2, lasts_ms)
    group.joins("four", day_ms + 3 * HOUR + 10 * MINUTE, lasts_ms)
    group.dies("four", day_ms + 3 * HOUR + 30 * MINUTE, lasts_ms)
    group.joins("six", day_ms + 4 * HOUR - MINUTE, 90_000)
    group.leaves("six", day_ms + 5 * HOUR, lasts_ms)


def _storm(group: Group, at_ms: int, count: int, lasts_ms: int) -> None:
    """Others join one after the other, a minute apart, and stay."""
    for number in range(count):
        group.joins(f"stormy-{number}", at_ms + number * MINUTE, lasts_ms)
    last_ms = at_ms + (count - 1) * MINUTE
    group.truth.storms.append((at_ms, last_ms, count))


def _flaps(group: Group, at_ms: int, times: int, lasts_ms: int) -> None:
    """A client goes and comes back: a rebalance every two minutes is no storm."""
    went = []
    for number in range(times):
        went.append(at_ms + 4 * MINUTE * number)
        group.leaves("two", went[-1], lasts_ms)
        group.joins("two", went[-1] + 2 * MINUTE, lasts_ms)
    group.truth.flapping.append(("two", went[0], went[-1], times))


def raw(found: Any, first: int = 0) -> Any:
    """Records (key, value, at_ms) as the batch that a fetch gives, from this offset on."""
    import pyarrow as pa

    keys, values, times = zip(*found, strict=True)
    count = len(keys)
    return pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([at * 1000 for at in times], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
