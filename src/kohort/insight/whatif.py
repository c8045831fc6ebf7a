"""A group's recorded past with another choice: another assignor or protocol, another session timeout, static members.

The memberships are those that were recorded, generation by generation; who would have been in for longer (a session
that would not have ended, a static member that came back in time) stays in meanwhile. What would have happened in
between is not known: so numbers are those of this replay, not of a cluster. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.assignors import (
    BUILTIN,
    Assignment,
    Assignor,
    AssignorConfigError,
    ClusterMetadata,
    ConsumerGroupMetadata,
    GroupSpec,
    MemberSpec,
    RebalanceProtocol,
    Subscription,
    TopicSpec,
    UniformAssignor,
    load_assignor,
)
from kohort.coordinator.causes import CauseKind
from kohort.insight.assignments import Shift, costs, shifts
from kohort.insight.generations import GenerationMember, StoredGeneration
from kohort.insight.patterns import EXITS
from kohort.insight.rebalances import COOPERATIVE, Rebalance

HEARTBEAT_MS = 5_000
"""group.consumer.heartbeat.interval.ms of a KIP-848 group: so long may a partition that moves have no reader."""
DEFAULT_SESSION_MS = 45_000
MOST_PARTITIONS = 200_000

Partition = tuple[str, int]
Held = dict[str, frozenset[Partition]]
Seats = Mapping[str, GenerationMember]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be different; what is None stays as it was."""

    assignor: str | None = None
    consumer_protocol: bool = False
    session_timeout_ms: int | None = None
    static: bool = False


def wrong_assignor(name: str) -> str | None:
    """What is wrong with the name of an assignor, in a sentence."""
    try:
        load_assignor(name)
    except AssignorConfigError as error:
        return str(error)
    return None


class Tally(NamedTuple):
    """`partition_ms` is time without a reader, of all partitions together."""

    rebalances: int
    moved: int
    standstill_ms: int
    partition_ms: int


class Outcome(NamedTuple):
    was: Tally
    would: Tally
    notes: tuple[str, ...]


class Absence(NamedTuple):
    """A client that went and, where `back` is known, came back. Times are of the first of its silence."""

    identity: str
    silent_ms: int
    gone: int  # place of the rebalance that it caused
    back_ms: int | None
    back: int | None
    session_ms: int
    kind: CauseKind

    def away_ms(self) -> int | None:
        return None if self.back_ms is None else self.back_ms - self.silent_ms


def replay(rebalances: Sequence[Rebalance], generations: Sequence[StoredGeneration], choice: Choice) -> Outcome:
    """Of one group, the oldest first."""
    return _Replay(list(rebalances), list(generations), choice).outcome()


def absences(rebalances: Sequence[Rebalance], sessions: Mapping[str, int]) -> list[Absence]:
    """Who went, and when the same client joined again; `sessions` are session timeouts by member id."""
    found: list[Absence] = []
    open_: dict[str, list[int]] = {}
    for place, one in enumerate(rebalances):
        for trigger in one.triggers:
            who = trigger.who
            if who is None:
                continue
            if trigger.kind in EXITS:
                session_ms = trigger.cause.timeout_ms or sessions.get(who.member_id, DEFAULT_SESSION_MS)
                silent = session_ms if trigger.kind is CauseKind.TIMED_OUT else 0
                open_.setdefault(who.identity, []).append(len(found))
                found.append(Absence(who.identity, trigger.at_ms - silent, place, None, None, session_ms, trigger.kind))
            elif trigger.kind is CauseKind.JOINED and open_.get(who.identity):
                number = open_[who.identity].pop(0)
                found[number] = found[number]._replace(back_ms=trigger.at_ms, back=place)
    return found


@dataclass(slots=True)
class _Replay:
    rebalances: list[Rebalance]
    generations: list[StoredGeneration]
    choice: Choice
    notes: set[str] = field(default_factory=set)
    _spared: list[Absence] = field(default_factory=list)  # that the group would not have noticed
    _seen: dict[str, GenerationMember] = field(default_factory=dict)  # by seat
    _assignors: dict[str, Assignor] = field(default_factory=dict)  # each member has one, which may remember
    _round: int = 0

    def outcome(self) -> Outcome:
        known = {one.generation: one for one in self.generations}
        vanished, waiting = self._unnoticed()
        held: Held = {}
        counts: dict[str, int] = {}
        before: dict[str, int] = {}
        rebalances = moved = standstill_ms = partition_ms = 0
        for place, one in enumerate(self.rebalances):
            stored = known.get(one.generation or -1)
            self._count(stored, counts)
            if place in vanished or _is_hand_over(one):
                continue
            rebalances += 1
            if stored is None:
                self.notes.add("some generations are not in the log any more: their assignments are not replayed")
                continue
            after, rounds = self._assigned(stored, self._seats(stored, place), held, counts)
            changed = _moved(held, after)
            rebalances += rounds - 1
            moved += changed
            lasts_ms = one.standstill_ms if one.standstill_ms is not None else one.estimated_standstill_ms or 0
            if not self._incremental(stored):
                standstill_ms += lasts_ms
                partition_ms += lasts_ms * sum(before.values())
            else:
                partition_ms += changed * (HEARTBEAT_MS if self.choice.consumer_protocol else lasts_ms)
            held = after
            before = {name: len(partitions) for name, partitions in held.items()}
        if any(one.standstill_ms is None for one in self.rebalances if one.members):
            self.notes.add("standstills are estimated from gaps between commits, where there are any")
        would = Tally(rebalances, moved, standstill_ms, partition_ms + sum(waiting))
        return Outcome(self._as_it_was(), would, tuple(sorted(self.notes)))

    def _count(self, stored: StoredGeneration | None, counts: dict[str, int]) -> None:
        """A topic has as many partitions as were ever assigned; a member may say anything, so there is a limit."""
        for member in stored.members if stored else ():
            for topic, number in member.partitions:
                if number < MOST_PARTITIONS:
                    counts[topic] = max(counts.get(topic, 0), number + 1)
                else:
                    self.notes.add(f"partition numbers from {MOST_PARTITIONS:,} on are not replayed")

    def _as_it_was(self) -> Tally:
        each = costs(self.rebalances, self.generations)
        return Tally(
            len(self.rebalances),
            sum(shift.moves.moved for shift in shifts(self.generations)),
            sum(one.stood_still_ms or 0 for one in self.rebalances),
            sum(cost.standing + cost.unnoticed for _, cost in each),
        )

    # -- who would have been in

    def _unnoticed(self) -> tuple[set[int], list[int]]:
        """Rebalances that would not have been, and partition-milliseconds of members that were away unnoticed."""
        choice = self.choice
        sessions = {m.who.member_id: m.session_timeout_ms for one in self.generations for m in one.members}
        spared: dict[int, int] = {}
        waiting: list[int] = []
        held_by = _held_before(self.rebalances, list(shifts(self.generations)))
        for one in absences(self.rebalances, sessions):
            dies = one.kind is CauseKind.TIMED_OUT
            if not dies and not choice.static:
                continue
            session_ms = choice.session_timeout_ms or one.session_ms
            if not dies and one.kind not in (CauseKind.LEFT, CauseKind.GONE):
                continue
            away_ms = one.away_ms()
            partitions = held_by(one)
            if away_ms is not None and away_ms < session_ms and one.back is not None:
                self._spared.append(one)
                spared[one.gone] = spared.get(one.gone, 0) + 1
                spared[one.back] = spared.get(one.back, 0) + 1
                waiting.append(partitions * away_ms)
            else:
                waiting.append(partitions * session_ms)
        if choice.session_timeout_ms is not None:
            self.notes.add("silences that were shorter than the session timeout of then are not recorded")
        gone = {place for place, count in spared.items() if count >= len(self.rebalances[place].triggers)}
        return gone, waiting

    def _seats(self, stored: StoredGeneration, place: int) -> dict[str, GenerationMember]:
        """Members by a name that outlives their member ids, with those that are away unnoticed."""
        seats: dict[str, GenerationMember] = {}
        for member in sorted(stored.members, key=lambda one: one.who.member_id):
            name, number = member.who.identity, 1
            while name in seats:
                number += 1
                name = f"{member.who.identity} #{number}"
            seats[name] = member
        self._seen |= seats
        for one in self._spared:
            if one.gone < place < (one.back or 0) and one.identity in self._seen:
                seats.setdefault(one.identity, self._seen[one.identity])
        return seats

    # -- what they would have read

    def _incremental(self, stored: StoredGeneration) -> bool:
        """Whether members go on with what they keep."""
        if self.choice.consumer_protocol:
            return True
        assignor = self._assignor(stored)
        return RebalanceProtocol.COOPERATIVE in assignor.supported_protocols if assignor else _cooperates(stored)

    def _assignor(self, stored: StoredGeneration) -> Assignor | None:
        """A recorded name may be anything: only what is built in is made of it."""
        if self.choice.assignor is not None:
            return load_assignor(self.choice.assignor)
        return BUILTIN[stored.protocol]() if stored.protocol in BUILTIN else None

    def _assign(self, assignor: Assignor, seats: Seats, held: Held, counts: Mapping[str, int]) -> Held:
        """One rebalance: each member's own assignor says what the leader is told, and hears what came of it."""
        self._round += 1
        mine = {name: self._assignors.setdefault(name, _another(assignor)) for name in seats}
        subscriptions = {
            name: Subscription(
                member.topics, mine[name].subscription_user_data(member.topics), _by_topic(held.get(name, ())),
                self._round - 1, None, member.who.instance_id,
            )
            for name, member in seats.items()
        }  # fmt: skip
        found = assignor.assign(ClusterMetadata(dict(counts)), subscriptions)
        for name, one in mine.items():
            one.on_assignment(found.get(name, Assignment({})), ConsumerGroupMetadata("", self._round, name))
        return {
            name: frozenset((topic, p) for topic, numbers in found[name].partitions.items() for p in numbers)
            if name in found
            else frozenset()
            for name in seats
        }

    def _assigned(
        self, stored: StoredGeneration, seats: Seats, held: Held, counts: Mapping[str, int]
    ) -> tuple[Held, int]:
        """What each would have had, and in how many rebalances: a cooperative hand-over takes a second one."""
        if self.choice.consumer_protocol:
            return _uniform(seats, held, counts), 1
        assignor = self._assignor(stored)
        if assignor is None:
            self.notes.add(f"assignments of {stored.protocol or 'an unknown assignor'} are taken as they were")
            return {name: member.partitions for name, member in seats.items()}, 1
        first = self._assign(assignor, seats, held, counts)
        if RebalanceProtocol.COOPERATIVE not in assignor.supported_protocols:
            return first, 1
        settled = self._assign(assignor, seats, first, counts)
        return settled, 1 if settled == first else 2


def _is_hand_over(one: Rebalance) -> bool:
    """The second half of a recorded cooperative rebalance; the replay makes its own."""
    return one.cooperative and {t.kind for t in one.triggers} <= {CauseKind.HANDED_OVER, CauseKind.PARTITIONS_MOVED}


def _another(assignor: Assignor) -> Assignor:
    return type(assignor)()


def _cooperates(stored: StoredGeneration) -> bool:
    return COOPERATIVE in stored.protocol


def _uniform(seats: Seats, held: Held, counts: Mapping[str, int]) -> Held:
    ids = {topic: topic.encode() for topic in counts}
    members = {}
    for name, member in seats.items():
        mine = _by_topic(partition for partition in held.get(name, ()) if partition[0] in ids)
        members[name] = MemberSpec(
            frozenset(ids[topic] for topic in member.topics if topic in ids),
            {ids[topic]: frozenset(numbers) for topic, numbers in mine.items()},
        )
    topics = {ids[topic]: TopicSpec(topic, count) for topic, count in counts.items()}
    alike = len({frozenset(member.topic_ids) for member in members.values()}) <= 1
    found = UniformAssignor().assign(GroupSpec(members, topics, alike))
    return {
        name: frozenset((topic_id.decode(), p) for topic_id, numbers in found.get(name, {}).items() for p in numbers)
        for name in seats
    }


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _moved(before: Held, after: Held) -> int:
    reader = {partition: name for name, partitions in before.items() for partition in partitions}
    return sum(reader.get(partition, name) != name for name, partitions in after.items() for partition in partitions)


def _held_before(rebalances: Sequence[Rebalance], known: Sequence[Shift]) -> Callable[[Absence], int]:
    """How many partitions a client held when it went, from the generation before."""
    by_generation = {shift.generation: shift for shift in known}

    def held(one: Absence) -> int:
        rebalance = rebalances[one.gone]
        before = by_generation.get((rebalance.generation or 0) - 1)
        if before is None:
            return 0
        ids = [t.who.member_id for t in rebalance.triggers if t.who is not None and t.who.identity == one.identity]
        return max((before.held.get(member_id, 0) for member_id in ids), default=0)

    return held
