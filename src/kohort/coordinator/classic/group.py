"""A classic group: its data, the questions one can ask of it, and the one writer of its state.

Hard state is what the log says: only replay.py writes it, and what waits for the log to say it. Soft state is what is
under way (a rebalance, parked requests, timers): it dies with the shard, and a group read back from the log starts from
its last stored generation.
"""

from operator import attrgetter
from struct import error as StructError
from struct import unpack_from
from sys import intern
from typing import Any

from kohort.coordinator import events
from kohort.coordinator.causes import Cause
from kohort.coordinator.classic import states
from kohort.coordinator.classic.member import Member, Protocols
from kohort.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    TRANSITIONS,
    GroupState,
    IllegalTransition,
)
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Request
from kohort.coordinator.group import BY_AGE, Group
from kohort.coordinator.records import Change, GroupMetadata, StoredGroup, java_hash
from kohort.coordinator.timers import Deadline, TimerKind
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import DescribeGroupsResponse

CONSUMER_PROTOCOL_TYPE = "consumer"
_REBALANCE_TIMEOUT_MS = attrgetter("rebalance_timeout_ms")
SOFT_STATE = (
    "state",
    "previous_state",
    "state_timestamp_ms",
    "protocol_type",
    "protocol",
    "generation",
    "leader_id",
    "members",
    "static_members",
    "subscribed_topics",
)
UNDER_WAY = (
    "pending_members",
    "pending_syncs",
    "awaiting_join",
    "protocol_votes",
    "new_member_added",
    "join_timer",
    "sync_timer",
    "initial_delay_ms",
    "initial_remaining_ms",
    "rebalance_started_ms",
    "rebalance_cause",
)


class ClassicGroup(Group):
    """Kafka's GroupMetadata. Beside the offsets its hard state is `stored`: the last generation that is in the log."""

    __slots__ = ("stored", *SOFT_STATE, *UNDER_WAY)

    type = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.stored: StoredGroup | None = None
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.pending_members: dict[str, Deadline] = {}  # KIP-394: have an id, have not come back with it
        self.pending_syncs: dict[str, None] = {}  # a set that is small when it is empty
        self.awaiting_join = 0
        self.protocol_votes: dict[str, int] = {}
        self.new_member_added = False
        self.join_timer = Deadline(TimerKind.DELAYED_JOIN, group_id)
        self.sync_timer = Deadline(TimerKind.DELAYED_SYNC, group_id)
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.rebalance_started_ms: int | None = None
        self.rebalance_cause: Cause | None = None

    # ---- the state

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"group {self.group_id}: {self.state.value} -> {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def move(self, context: Context, state: GroupState, cause: Cause) -> None:
        self.transition_to(state, context.now_ms)
        self.moved(context, cause)

    def moved(self, context: Context, cause: Cause) -> None:
        was, now = self.previous_state.value, self.state.value
        context.event(self, events.StateChanged, from_state=was, to_state=now, cause=cause)

    def end(self, now_ms: int) -> None:
        """Nothing is left of it: no timer of it may find a later group of the same name."""
        for deadline in (self.join_timer, self.sync_timer, *self.pending_members.values()):
            deadline.cancel()
        for member in self.members.values():
            member.heartbeat.cancel()
        self.transition_to(DEAD, now_ms)

    @property
    def can_rebalance(self) -> bool:
        return PREPARING_REBALANCE in TRANSITIONS[self.state]

    # ---- members

    def add(self, member: Member, parked: Request | None = None, protocol_type: str | None = None) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, member.instance_id
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = None if protocol_type is None else intern(protocol_type)
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if parked is not None:
            member.parked_join = parked
            self.awaiting_join += 1
        if self.pending_members.pop(member.member_id, None) is not None and not self.pending_members:
            self.pending_members.clear()  # gives back its memory

    def remove(self, member_id: str) -> Member | None:
        """Takes a member or a pending member out; parked requests are the caller's to answer first."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.heartbeat.cancel()
            self._count_protocols(member, -1)
            if member.parked_join is not None:
                self.awaiting_join -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        pending = self.pending_members.pop(member_id, None)
        if pending is not None:
            pending.cancel()
        self.pending_syncs.pop(member_id, None)
        return member

    def replace_static(self, instance_id: str, old_member_id: str, new_member_id: str) -> Member:
        """The same member under a new id. Requests parked under the old id are the caller's to answer first."""
        old = self.members.pop(old_member_id)
        old.heartbeat.cancel()
        new = Member(
            new_member_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            Deadline(TimerKind.DELAYED_HEARTBEAT, self.group_id, new_member_id),
            old.assignment,
        )
        self.members[new_member_id] = new
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        return new

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Kafka's validateMember: NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max(map(_REBALANCE_TIMEOUT_MS, self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Whether the group has a leader that is waiting in its join; elects another where the old one did not come."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].parked_join is not None:
            return True
        for member in self.members.values():
            if member.parked_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # ---- protocols

    def _count_protocols(self, member: Member, delta: int) -> None:
        votes = self.protocol_votes
        for name, _ in member.protocols:
            count = votes.get(name, 0) + delta
            if count:
                votes[name] = count
            else:
                votes.pop(name, None)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        size = len(self.members)
        return any(self.protocol_votes.get(name, 0) == size for name, _ in protocols)

    def select_protocol(self) -> str:
        """The vote: each member for its first choice among what all support; the most votes win.

        A tie goes to the name that comes first in a Java HashMap of 16 buckets, since that is what it does in Kafka.
        """
        size = len(self.members)
        candidates = {name for name, count in self.protocol_votes.items() if count == size}
        if len(candidates) == 1:
            return candidates.pop()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(sorted(votes, key=_hash_map_bucket), key=votes.__getitem__)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed(self, topic: str) -> bool:
        return self.uses_consumer_protocol if self.subscribed_topics is None else topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        seen: set[bytes] = set()
        for member in self.members.values():
            metadata = member.metadata(self.protocol)
            if metadata in seen:
                continue
            seen.add(metadata)
            names = subscription_topics(metadata)
            if names is None:
                return None
            topics.update(names)
        return _shared(frozenset(topics))

    def next_generation(self, now_ms: int) -> None:
        """The join phase ends: the generation counts up, and the members left decide the protocol."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.pending_syncs.clear()

    # ---- what any group can be asked

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_name(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    def holder(self, instance_id: str) -> Member | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def commit_error(self, context: Context, request: Request) -> ErrorCode:
        message = request.message
        generation = message.generation_id_or_member_epoch
        state = self.state
        if generation < 0:
            if state is EMPTY:
                return ErrorCode.NONE
            if not message.member_id and message.group_instance_id is None:
                return states.COMMIT_SIMPLE[state]
        if error := self.member_error(message.member_id, message.group_instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if state is not COMPLETING_REBALANCE:
            context.reset_heartbeat(self.members[message.member_id])
        return states.COMMIT[state]

    def txn_commit_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Old producers do not say who consumes; whoever does is held to it, in the middle of a rebalance too."""
        if generation < 0 and (self.state is EMPTY or (not member_id and instance_id is None)):
            return ErrorCode.NONE
        if error := self.member_error(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """As in Kafka: whoever knows the name of a classic group may read its offsets."""
        return ErrorCode.NONE

    def offset_delete_error(self) -> ErrorCode:
        error = states.OFFSET_DELETE[self.state]
        return ErrorCode.NONE if error is ErrorCode.NON_EMPTY_GROUP and self.uses_consumer_protocol else error

    def delete_error(self) -> ErrorCode:
        return states.DELETE_GROUP[self.state]

    def expires_from(self) -> int | None:
        """KIP-211: an empty group keeps its offsets for the retention since it became empty; a stable group of
        consumers loses those of topics it no longer subscribes to, by the age of the commit; a simple group likewise by
        age. KAFKA-13636: nothing expires in the middle of a rebalance."""
        if self.protocol_type is None:
            return BY_AGE
        if self.state is EMPTY:
            return BY_AGE if self.state_timestamp_ms == -1 else self.state_timestamp_ms
        if self.state is STABLE and self.uses_consumer_protocol and self.subscribed_topics is not None:
            return BY_AGE
        return None

    def own_records(self) -> list[Change]:
        return [] if self.stored is None else [GroupMetadata(self.group_id, self.stored)]

    def own_tombstones(self) -> list[Change]:
        return [GroupMetadata(self.group_id, None)]

    def describe(self) -> Any:
        stable = self.state is STABLE
        members = [
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata(self.protocol) if stable else b"",
                member_assignment=m.assignment,
            )
            for m in self.members.values()
        ]
        return DescribeGroupsResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol or "") if stable else "",
            members=members,
        )

    # ---- what is stored

    def to_stored(self, assignment: dict[str, bytes]) -> StoredGroup:
        members = tuple(m.to_stored(self.protocol, assignment[m.member_id]) for m in self.members.values())
        return StoredGroup(
            self.protocol_type, self.generation, self.protocol, self.leader_id, self.state_timestamp_ms, members
        )

    @property
    def needs_restoring(self) -> bool:
        return not self.members

    @property
    def has_begun(self) -> bool:
        return self.stored is not None or bool(self.members)

    def restore(self) -> None:
        stored = self.stored
        if stored is None:
            return
        self.state = STABLE if stored.members else EMPTY
        self.generation = stored.generation
        self.protocol = stored.protocol
        self.state_timestamp_ms = stored.state_timestamp_ms
        self.protocol_type = stored.protocol_type
        self.leader_id = stored.leader_id
        for m in stored.members:
            heartbeat = Deadline(TimerKind.DELAYED_HEARTBEAT, self.group_id, m.member_id)
            member = Member(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                ((intern(stored.protocol or ""), m.subscription),),
                heartbeat,
                m.assignment,
            )
            self.add(member, protocol_type=stored.protocol_type)
        self.subscribed_topics = self.compute_subscribed_topics()

    def __repr__(self) -> str:
        members = list(self.members)
        return f"ClassicGroup({self.group_id}, {self.state.value}, generation={self.generation}, members={members})"


def as_classic(group: Group | None) -> ClassicGroup | None:
    return group if isinstance(group, ClassicGroup) else None


_SUBSCRIPTIONS: dict[frozenset[str], frozenset[str]] = {}
_MOST_SUBSCRIPTIONS = 10_000


def _shared(topics: frozenset[str]) -> frozenset[str]:
    """Many groups subscribe to the same topics: they share one set."""
    known = _SUBSCRIPTIONS.get(topics)
    if known is None:
        if len(_SUBSCRIPTIONS) >= _MOST_SUBSCRIPTIONS:
            _SUBSCRIPTIONS.clear()
        known = _SUBSCRIPTIONS[topics] = topics
    return known


def subscription_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription, every version of which opens like v0; None if it is not one."""
    try:
        count = unpack_from(">i", metadata, 2)[0]
        pos, topics = 6, []
        for _ in range(count):
            length = unpack_from(">h", metadata, pos)[0]
            pos += 2
            if length < 0 or pos + length > len(metadata):
                return None
            topics.append(intern(metadata[pos : pos + length].decode()))
            pos += length
        return topics if count >= 0 else None
    except (StructError, UnicodeDecodeError):
        return None


def _hash_map_bucket(name: str) -> int:
    h = java_hash(name) & 0xFFFFFFFF
    return (h ^ h >> 16) & 15
