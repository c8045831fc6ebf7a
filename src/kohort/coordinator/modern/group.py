"""A group of the consumer protocol (KIP-848): what the log says of it, what follows from that, and what one may ask.

Hard state: the group's epoch, its members, the target assignment, the resolved expressions. Only replay.py writes it,
with `put` and `remove`; after a load `restore` makes from it what is derived: who holds which partition, who subscribes
to what. Soft state is in the members' deadlines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from enum import Enum
from typing import Any

from kohort.coordinator.context import Context, Topics
from kohort.coordinator.effects import Request
from kohort.coordinator.group import BY_AGE, Group
from kohort.coordinator.modern.member import NEW, Member
from kohort.coordinator.modern.work import Assigning, Resolving
from kohort.coordinator.modern_records import (
    CurrentAssignment,
    GroupEpoch,
    Kind,
    MemberMetadata,
    ModernChange,
    Partitions,
    ResolvedRegex,
    TargetEpoch,
)
from kohort.coordinator.records import Change
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import DescribeGroupsResponse

NO_PARTITIONS: Partitions = {}


class ModernState(Enum):
    """Follows from the rest: nobody moves it."""

    EMPTY = "Empty"  # no members
    ASSIGNING = "Assigning"  # the group has an epoch for which there is no target assignment yet
    RECONCILING = "Reconciling"  # members are on their way to the target
    STABLE = "Stable"
    DEAD = "Dead"


class ModernGroup(Group):
    __slots__ = (
        "ask_again_ms",
        "assigned_by",
        "assigning",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "assignor_votes",
        "by_name",
        "by_regex",
        "epoch",
        "has_partition_metadata",
        "holders",
        "is_restored",
        "is_stale",
        "members",
        "metadata_hash",
        "on_the_way",
        "regexes",
        "resolve",
        "resolved",
        "resolving",
        "static_members",
        "target",
        "told_state",
        "topics_came",
    )

    type = "consumer"
    checks_partitions = True

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # hard
        self.epoch = 1
        self.metadata_hash = 0
        self.has_partition_metadata = False
        self.members: dict[str, Member] = {}
        self.target: dict[str, Partitions] = {}
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.resolved: dict[str, ResolvedRegex] = {}
        # derived
        self.is_restored = False
        self.static_members: dict[str, str] = {}
        self.holders: dict[bytes, dict[int, str]] = {}  # who has a partition, or has not given it up yet
        self.by_name: Counter[str] = Counter()  # how many subscribe to a topic by its name
        self.by_regex: Counter[str] = Counter()  # how many resolved expressions have a topic
        self.regexes: Counter[str] = Counter()  # how many subscribe by an expression
        self.assignor_votes: dict[str, int] = {}
        self.on_the_way: set[str] = set()  # members that are not where the target wants them
        # soft
        self.is_stale = True  # its topics may have changed since the hash was taken
        self.resolve = Deadline(TimerKind.RESOLVE_REGEX, group_id)
        self.resolving: Resolving | None = None  # under way elsewhere
        self.assigning: Assigning | None = None
        self.assigned_by = Deadline(TimerKind.ASSIGNOR, group_id)
        self.ask_again_ms = 0  # an assignor that failed is left alone until then
        self.topics_came = False  # topics that no expression has been held against yet
        self.told_state = ModernState.EMPTY

    # ---- what the log says: replay.py alone

    def put(self, kind: Kind, name: str, value: Any) -> None:
        if kind is Kind.MEMBER:
            self._put_metadata(self._member(name), value)
        elif kind is Kind.CURRENT_MEMBER:
            self._put_current(self._member(name), value)
        elif kind is Kind.TARGET_MEMBER:
            self.target[name] = value
        elif kind is Kind.GROUP:
            assert isinstance(value, GroupEpoch)
            self.epoch, self.metadata_hash = value
        elif kind is Kind.TARGET:
            assert isinstance(value, TargetEpoch)
            self.assignment_epoch, self.assignment_timestamp_ms = value
            if self.is_restored:
                self._look_who_is_on_the_way()
        elif kind is Kind.REGEX:
            self._forget_regex(name)
            self.resolved[name] = value
            if self.is_restored:
                self.by_regex.update(value.topics)
        else:
            self.has_partition_metadata = True

    def remove(self, kind: Kind, name: str) -> None:
        if kind is Kind.MEMBER:
            self._remove_member(name)
        elif kind is Kind.CURRENT_MEMBER:
            if name in self.members:
                self._put_current(self.members[name], NEW)
        elif kind is Kind.TARGET_MEMBER:
            self.target.pop(name, None)
        elif kind is Kind.TARGET:
            self.assignment_epoch = self.assignment_timestamp_ms = 0
        elif kind is Kind.REGEX:
            self._forget_regex(name)
        elif kind is Kind.PARTITION_METADATA:
            self.has_partition_metadata = False

    def _member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(self.group_id, member_id)
            if self.is_restored:
                self._watch(member)
        return member

    def _put_metadata(self, member: Member, value: MemberMetadata) -> None:
        old, member.metadata = member.metadata, value
        member.alive = None
        if self.is_restored:
            self._count(member.member_id, old, value)

    def _put_current(self, member: Member, value: CurrentAssignment) -> None:
        old, member.current = member.current, value
        member.alive = None
        if self.is_restored:
            if value.assigned is not old.assigned or value.pending or old.pending:
                self._release(member.member_id, old)
                self._hold(member.member_id, value)
            self._watch(member)

    def _remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        member.cancel_deadlines()
        if self.is_restored:
            self._release(member_id, member.current)
            self._count(member_id, member.metadata, None)
            self.on_the_way.discard(member_id)

    def _forget_regex(self, regex: str) -> None:
        known = self.resolved.pop(regex, None)
        if known is not None and self.is_restored:
            _subtract(self.by_regex, known.topics)

    # ---- what follows from it

    @property
    def needs_restoring(self) -> bool:
        return not self.is_restored

    @property
    def has_begun(self) -> bool:
        return True

    def topic_changed(self, topic: str) -> None:
        """It looks again at its next heartbeat."""
        self.is_stale |= self.is_subscribed(topic)
        self.topics_came |= bool(self.regexes)

    def restore(self) -> None:
        self.is_restored = True
        for member in self.members.values():
            self._count(member.member_id, None, member.metadata)
            self._hold(member.member_id, member.current)
        for known in self.resolved.values():
            self.by_regex.update(known.topics)
        self._look_who_is_on_the_way()
        self.told_state = self.state

    def _count(self, member_id: str, old: MemberMetadata | None, new: MemberMetadata | None) -> None:
        if old is not None:
            _subtract(self.by_name, old.topics)
            if old.regex:
                _subtract(self.regexes, (old.regex,))
            if old.server_assignor is not None:
                self.assignor_votes[old.server_assignor] = self.assignor_votes.get(old.server_assignor, 0) - 1
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if new is not None:
            self.by_name.update(new.topics)
            if new.regex:
                self.regexes[new.regex] += 1
            if new.server_assignor is not None:
                self.assignor_votes[new.server_assignor] = self.assignor_votes.get(new.server_assignor, 0) + 1
            if new.instance_id is not None:
                self.static_members[new.instance_id] = member_id

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
        for epochs in (current.assigned, current.pending):
            for topic_id, numbers in epochs.items():
                holders = self.holders.get(topic_id)
                if holders is None:
                    continue
                for number in numbers:
                    if holders.get(number) == member_id:
                        del holders[number]
                if not holders:
                    del self.holders[topic_id]

    def _hold(self, member_id: str, current: CurrentAssignment) -> None:
        for epochs in (current.assigned, current.pending):
            for topic_id, numbers in epochs.items():
                holders = self.holders.setdefault(topic_id, {})
                for number in numbers:
                    holders[number] = member_id

    def _watch(self, member: Member) -> None:
        if member.is_reconciled_to(self.assignment_epoch):
            self.on_the_way.discard(member.member_id)
        else:
            self.on_the_way.add(member.member_id)

    def _look_who_is_on_the_way(self) -> None:
        epoch = self.assignment_epoch
        self.on_the_way = {name for name, member in self.members.items() if not member.is_reconciled_to(epoch)}

    # ---- questions

    @property
    def generation(self) -> int:  # type: ignore[override]
        return self.epoch

    @property
    def state(self) -> ModernState:
        if not self.members:
            return ModernState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernState.ASSIGNING
        return ModernState.RECONCILING if self.on_the_way else ModernState.STABLE

    def is_held(self, topic_id: bytes, number: int) -> bool:
        return number in self.holders.get(topic_id, ())

    def subscribed_names(self) -> Iterable[str]:
        return self.by_name.keys() | self.by_regex.keys()

    def names_of(self, metadata: MemberMetadata) -> Set[str]:
        """What a member reads: by name, and by its expression as far as that is resolved."""
        known = self.resolved.get(metadata.regex) if metadata.regex else None
        return metadata.topics if known is None else metadata.topics | known.topics

    def topic_ids_of(self, topics: Topics, metadata: MemberMetadata) -> frozenset[bytes]:
        by_name = topics.by_name
        return frozenset([found[0] for name in self.names_of(metadata) if (found := by_name(name)) is not None])

    def subscribes_alike(self) -> bool:
        size = len(self.members)
        if not self.regexes:
            return all(count == size for count in self.by_name.values())
        return not self.by_name and len(self.regexes) == 1 and next(iter(self.regexes.values())) == size

    def preferred_assignor(self, known: Iterable[str]) -> str:
        """The one with the most votes of those that there are, in their order; the first where nobody votes."""
        return max(known, key=lambda name: self.assignor_votes.get(name, 0))

    def waits_for(self, member: Member) -> dict[bytes, dict[int, str]]:
        """Partitions of its target that others still hold, and who."""
        waits: dict[bytes, dict[int, str]] = {}
        for topic_id, numbers in self.target.get(member.member_id, NO_PARTITIONS).items():
            holders = self.holders.get(topic_id, {})
            for number in numbers:
                if (holder := holders.get(number)) is not None and holder != member.member_id:
                    waits.setdefault(topic_id, {})[number] = holder
        return waits

    # ---- what any group can be asked

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_name(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.by_name or topic in self.by_regex

    def holder(self, instance_id: str) -> Member | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def commit_error(self, context: Context, request: Request) -> ErrorCode:
        message = request.message
        epoch = message.generation_id_or_member_epoch
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(message.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.is_classic and request.version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch > member.current.member_epoch:
            return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def txn_commit_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if generation < 0 and (not self.members or (not member_id and instance_id is None)):
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.ILLEGAL_GENERATION if generation > member.current.member_epoch else ErrorCode.NONE

    def partition_commit_error(self, member_id: str, epoch: int, topic_id: bytes, number: int) -> ErrorCode:
        """An older epoch than the member's may commit what the member had in it, and has still."""
        member = self.members.get(member_id)
        if member is None or epoch == member.current.member_epoch:
            return ErrorCode.NONE
        since = member.current.assigned.get(topic_id, {}).get(number)
        if since is None:
            since = member.current.pending.get(topic_id, {}).get(number)
        if since is not None and epoch >= since:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.member_epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def offset_delete_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def delete_error(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def expires_from(self) -> int | None:
        return BY_AGE

    def describe(self) -> Any:
        """DescribeGroups is for classic groups; see describe.py."""
        return DescribeGroupsResponse.DescribedGroup(group_id=self.group_id, group_state="Dead")

    def change(self, kind: Kind, value: Any, name: str = "") -> ModernChange:
        return ModernChange(kind, self.group_id, name, value)

    def own_records(self) -> list[Change]:
        return [
            *(self.change(Kind.MEMBER, member.metadata, name) for name, member in self.members.items()),
            self.change(Kind.GROUP, GroupEpoch(self.epoch, self.metadata_hash)),
            *(self.change(Kind.REGEX, known, regex) for regex, known in self.resolved.items()),
            *(self.change(Kind.TARGET_MEMBER, target, name) for name, target in self.target.items()),
            self.change(Kind.TARGET, TargetEpoch(self.assignment_epoch, self.assignment_timestamp_ms)),
            *(self.change(Kind.CURRENT_MEMBER, member.current, name) for name, member in self.members.items()),
        ]

    def own_tombstones(self) -> list[Change]:
        names = list(self.members)
        return [
            *(self.change(Kind.CURRENT_MEMBER, None, name) for name in names),
            *(self.change(Kind.TARGET_MEMBER, None, name) for name in dict.fromkeys((*names, *self.target))),
            self.change(Kind.TARGET, None),
            *(self.change(Kind.MEMBER, None, name) for name in names),
            *(self.change(Kind.REGEX, None, regex) for regex in self.resolved),
            self.change(Kind.PARTITION_METADATA, None),
            self.change(Kind.GROUP, None),
        ]

    def __repr__(self) -> str:
        return f"ModernGroup({self.group_id}, {self.state.value}, epoch={self.epoch}, members={list(self.members)})"


def _subtract(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counter[name] -= 1
        if counter[name] <= 0:
            del counter[name]


def owned_partitions(rows: Iterable[Any] | None) -> Mapping[bytes, list[int]] | None:
    """What a heartbeat says that the member has."""
    return None if rows is None else {row.topic_id: row.partitions for row in rows}
