"""Groups that move between the protocols while they run: what may, and what becomes of it.

The first heartbeat of the consumer protocol at a classic group converts it; its members go on as classic members of a
KIP-848 group (classic_members.py). When only such members are left the group becomes a classic one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from kohort.assignors import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.classic import join
from kohort.coordinator.classic.group import ClassicGroup
from kohort.coordinator.classic.member import Member as ClassicMember
from kohort.coordinator.classic.states import EMPTY
from kohort.coordinator.context import Context, Topics
from kohort.coordinator.effects import Decision
from kohort.coordinator.group import Group
from kohort.coordinator.modern.group import NO_PARTITIONS, ModernGroup
from kohort.coordinator.modern.member import Member
from kohort.coordinator.modern.refusing import Refused
from kohort.coordinator.modern.steps import Steps
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.modern_records import (
    NOTHING,
    ClassicMetadata,
    CurrentAssignment,
    GroupEpoch,
    Kind,
    MemberMetadata,
    MemberState,
    Partitions,
    TargetEpoch,
    shared_topics,
)
from kohort.coordinator.records import GroupMetadata, StoredGroup, StoredMember, encode
from kohort.protocol.errors import ErrorCode

CONSUMER = "consumer"


# ---- from classic to consumer


def check_upgrade(context: Context, group: Group | None, member_id: str) -> None:
    """Whether a group of the consumer protocol can be made of it, with this member in it."""
    if not isinstance(group, ClassicGroup) or group.state is EMPTY:
        return
    limit = context.config.consumer_max_size
    why = ""
    if not context.config.consumer_migration_policy.upgrades:
        why = "group.consumer.migration.policy does not let it move to the consumer protocol"
    elif not group.uses_consumer_protocol:
        why = f"its members are of the protocol type {group.protocol_type}, not consumers"
    elif len(group.members) > limit:
        why = f"it has {len(group.members)} members, and group.consumer.max.size is {limit}"
    else:
        why = _unreadable(group)
    if why:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} stays a classic group: {why}.")
    if len(group.members) >= limit and member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group has {len(group.members)} members, and group.consumer.max.size is {limit}.",
            size=len(group.members),
            limit=limit,
        )


def _unreadable(group: ClassicGroup) -> str:
    for member in group.members.values():
        try:
            subscription_of(group, member)
            if member.assignment and decode_assignment(member.assignment).user_data:
                return f"the assignor {group.protocol} keeps data of its own, which would be lost; use one of Kafka's"
        except ConsumerProtocolError as error:
            return f"what member {member.member_id} subscribes to cannot be read ({error})"
    return ""


def subscription_of(group: ClassicGroup, member: ClassicMember) -> Subscription:
    """A group in its first rebalance has no protocol yet: what the member likes best."""
    metadata = dict(member.protocols).get(group.protocol or "", member.protocols[0][1])
    return decode_subscription(metadata)


def begin(context: Context, group_id: str, old: Group | None, cause: Cause) -> Steps:
    """A new group, or what becomes of a classic one: it keeps its commits, and its members."""
    made = ModernGroup(group_id)
    made.restore()
    steps = Steps(context, made)
    if old is None:
        context.groups[group_id] = made
        return steps
    assert isinstance(old, ClassicGroup)
    members = dict(old.members)
    for member in members.values():
        join.answer_parked(context, old, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    old.end(context.now_ms)
    steps.add(GroupMetadata(group_id, None))
    adopt(context, made, old)
    if members:
        _take_over(steps, old, members, cause)
    return steps


def adopt(context: Context, group: Group, old: Group) -> None:
    """What a group has whatever its protocol."""
    group.offsets, group.open_transactions, group.story = old.offsets, old.open_transactions, old.story
    context.groups[group.group_id] = group


def _take_over(steps: Steps, old: ClassicGroup, members: Mapping[str, ClassicMember], cause: Cause) -> None:
    """Everybody stands where the last generation has put them; whoever was in a rebalance is told to rejoin."""
    context, group, epoch = steps.context, steps.group, old.generation
    targets: dict[str, Partitions] = {}
    said_of: dict[str, Subscription] = {}
    for member_id, member in members.items():
        said = said_of[member_id] = subscription_of(old, member)
        given = decode_assignment(member.assignment).partitions if member.assignment else {}
        targets[member_id] = to_ids(context.topics, given)
        metadata = MemberMetadata(
            member.instance_id,
            said.rack_id or None,
            member.client_id,
            member.client_host,
            shared_topics(frozenset(said.topics)),
            "",
            member.rebalance_timeout_ms,
            None,
            ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
        )
        steps.put(Kind.MEMBER, metadata, member_id)
    held = {(topic_id, number) for given in targets.values() for topic_id in given for number in given[topic_id]}
    read = {name: context.topics.by_name(name) for name in group.subscribed_names()}
    is_whole = all((topic[0], number) in held for topic in read.values() if topic for number in range(topic[1]))
    # A generation that left something out was not the last step of a rebalance: the next heartbeat begins an epoch.
    topics_hash = metadata_hash(context.topics, read) if is_whole else 0
    steps.put(Kind.GROUP, GroupEpoch(epoch, topics_hash))
    for member_id, target in targets.items():
        steps.put(Kind.TARGET_MEMBER, target, member_id)
    steps.put(Kind.TARGET, TargetEpoch(epoch, 0))
    pending_of = _withheld(context.topics, said_of, held, epoch)
    for member_id, target in targets.items():
        assigned = {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in target.items()}
        pending = pending_of.get(member_id, NOTHING)
        state = MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE
        current = CurrentAssignment(epoch, epoch, state, assigned, pending)
        steps.put(Kind.CURRENT_MEMBER, current, member_id)
        group.members[member_id].session_timeout_ms = members[member_id].session_timeout_ms
        context.reset_heartbeat(group.members[member_id])
    _converted(context, group, old.type, cause._replace(kind=CauseKind.UPGRADED))


def _withheld(
    topics: Topics, said_of: Mapping[str, Subscription], held: Set[tuple[bytes, int]], epoch: int
) -> dict[str, dict[bytes, dict[int, int]]]:
    """What a cooperative member had when it joined, and nobody was given: it may not have given it up yet, and rejoins
    when it has. Where several say so it is the one whose word is the newest."""
    owner: dict[tuple[bytes, int], str] = {}
    for member_id in sorted(said_of, key=lambda name: said_of[name].generation_id):
        for topic_id, numbers in to_ids(topics, said_of[member_id].owned_partitions).items():
            owner.update(((topic_id, number), member_id) for number in numbers)
    found: dict[str, dict[bytes, dict[int, int]]] = {}
    for (topic_id, number), member_id in owner.items():
        if (topic_id, number) not in held:
            found.setdefault(member_id, {}).setdefault(topic_id, {})[number] = epoch
    return found


def _converted(context: Context, group: Group, from_type: str, cause: Cause) -> None:
    members = len(getattr(group, "members", ()))
    context.event(group, events.GroupConverted, from_type=from_type, to_type=group.type, members=members, cause=cause)


# ---- and back


def may_downgrade(context: Context, group: ModernGroup, leaving: Sequence[Member] = ()) -> bool:
    gone = {member.member_id for member in leaving}
    left = [member for name, member in group.members.items() if name not in gone]
    return (
        bool(left)
        and all(member.is_classic for member in left)
        and context.config.consumer_migration_policy.downgrades
        and len(left) <= context.config.group_max_size
    )


def downgrade(
    context: Context, group: ModernGroup, leaving: Sequence[Member] = (), *, leader_id: str | None = None
) -> Decision:
    """What is left becomes a classic group in the generation of the epoch; its members rejoin where nobody leads it."""
    gone = {member.member_id for member in leaving}
    left = {name: member for name, member in group.members.items() if name not in gone}
    targets = dict(group.target)
    changes = group.own_tombstones()
    for member in group.members.values():
        member.cancel_deadlines()
    context.apply(changes, -1)
    made = ClassicGroup(group.group_id, context.now_ms)
    adopt(context, made, group)
    protocol = _common_protocol(left.values())
    stored = StoredGroup(
        CONSUMER,
        group.epoch,
        protocol,
        leader_id or next(iter(left)),
        context.now_ms,
        tuple(
            _stored(context.topics, member, protocol, targets.get(name, NO_PARTITIONS)) for name, member in left.items()
        ),
    )
    last = GroupMetadata(group.group_id, stored)
    context.apply([last], -1)
    made.restore()
    for name, member in left.items():
        classic = member.metadata.classic
        assert classic is not None
        joined = made.members[name]
        made.update(joined, classic.protocols, joined.rebalance_timeout_ms, joined.session_timeout_ms)
        context.reset_heartbeat(joined)
    cause = Cause(CauseKind.DOWNGRADED)
    _converted(context, made, group.type, cause)
    if leader_id is None:
        nothing = join.prepare_rebalance(context, made, cause)
        assert nothing is None, "its members have yet to rejoin"
    changes = [*changes, last]
    return Decision([encode(change) for change in changes], changes, divisible=True, in_effect=True)


def _common_protocol(members: Iterable[Member]) -> str:
    """As a classic group votes: the one that most like best, of those that all have."""
    group = ClassicGroup("", 0)
    for member in members:
        classic = member.metadata.classic
        assert classic is not None
        group.add(ClassicMember(member.member_id, None, "", "", 0, 0, classic.protocols, member.heartbeat))
    return group.select_protocol()


def _stored(topics: Topics, member: Member, protocol: str, target: Partitions) -> StoredMember:
    said = member.metadata
    assert said.classic is not None
    subscription = dict(said.classic.protocols)[protocol]
    return StoredMember(
        member.member_id,
        said.instance_id,
        said.client_id,
        said.client_host,
        said.rebalance_timeout_ms,
        said.classic.session_timeout_ms,
        subscription,
        classic_assignment(topics, target, subscription),
    )


# ---- topics by name and by id


def to_ids(topics: Topics, partitions: Mapping[str, Iterable[int]]) -> Partitions:
    """What is of a topic that does not exist is left out."""
    found = ((topics.by_name(name), numbers) for name, numbers in partitions.items())
    return {topic[0]: frozenset(numbers) for topic, numbers in found if topic is not None}


def classic_assignment(topics: Topics, partitions: Mapping[bytes, Iterable[int]], subscription: bytes) -> bytes:
    """As the member reads it, in the version of its subscription."""
    named = {topics.by_id(topic_id): sorted(numbers) for topic_id, numbers in partitions.items()}
    version = int.from_bytes(subscription[:2], "big")
    known = {name: numbers for name, numbers in named.items() if name is not None}
    return encode_assignment(Assignment(known), version)
