"""Words for sequences of group requests: a `Script` collects steps that name actors, not ids.

    s.enter("a"); s.sync("a"); s.heartbeat("a", generation=+1)

Which version a step uses is the script's choice: the newest one, or any, drawn from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from conformance.sequencer import Actor, Sequence, Step, View
from kohort.protocol import messages
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

TOPICS = {"t0": 3, "t1": 1}
SESSION_MS, REBALANCE_MS = 60_000, 120_000
NOBODY = "nobody-00000000-0000-0000-0000-000000000000"
NO_TOPIC = bytes(range(16))


SCRIPTS: dict[str, Callable[[Script], None]] = {}
"""Every written sequence by its name."""


def script(function: Callable[[Script], None]) -> Callable[[Script], None]:
    """Registers a written sequence."""
    SCRIPTS[function.__name__] = function
    return function


def subscription(*topics: str, user_data: bytes | None = None) -> bytes:
    body = messages.ConsumerProtocolSubscription(topics=list(topics), user_data=user_data).encode(0)
    return b"\0\0" + body


def member_id(actor: Actor, which: str) -> str:
    """own: the id last given, none: empty, first: the id first given, anything else is taken as an id."""
    match which:
        case "own":
            return actor.member_id
        case "none":
            return ""
        case "first":
            return actor.ids[0] if actor.ids else ""
        case "nobody":
            return NOBODY
    return which


class Script:
    """Steps for one group. `seed` None takes the newest version of everything."""

    def __init__(self, name: str, group_id: str, seed: int | None = None) -> None:
        self.name, self.group_id = name, group_id
        self.random = random.Random(f"{name} {seed}")
        self.newest = seed is None
        self.steps: list[Step] = []
        self.instances: dict[str, str] = {}
        self.protocols: dict[str, list[tuple[str, bytes]]] = {}

    def sequence(self) -> Sequence:
        return Sequence(self.name, self.group_id, self.steps)

    def version(self, api: str, version: int | None = None, least: int = 0) -> int:
        if version is not None:
            return version
        cls = getattr(messages, f"{api}Request")
        low, high = max(cls.MIN_VERSION, least), cls.MAX_VERSION
        return high if self.newest else self.random.randint(low, high)

    def add(self, label: str, actor: str, version: int, build: Callable[[View], Any]) -> None:
        self.steps.append(Step(label, actor, version, build))

    def wait(self, label: str, until: Callable[[Any, int], bool]) -> None:
        self.steps.append(Step(f"(until {label})", "", until=until))

    # -- membership

    def static(self, actor: str, instance_id: str) -> None:
        self.instances[actor] = instance_id

    def supports(self, actor: str, *protocols: str, metadata: bytes = b"") -> None:
        self.protocols[actor] = [(name, metadata or subscription("t0")) for name in protocols]

    def join(
        self,
        actor: str,
        *,
        version: int | None = None,
        member: str = "own",
        instance: str | None = None,
        protocols: list[tuple[str, bytes]] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group_id: str | None = None,
    ) -> int:
        instance = self.instances.get(actor) if instance is None else instance
        timed = rebalance_ms != REBALANCE_MS  # version 0 has no rebalance timeout of its own
        version = self.version("JoinGroup", version, least=5 if instance else 1 if timed else 0)
        offered = self.protocols.get(actor, [("range", subscription("t0"))]) if protocols is None else protocols
        kind = JoinGroupRequest.JoinGroupRequestProtocol

        def build(view: View) -> Any:
            return JoinGroupRequest(
                group_id=self.group_id if group_id is None else group_id,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                member_id=member_id(view.actor(actor), member),
                group_instance_id=instance or None,
                protocol_type=protocol_type,
                protocols=[kind(name=name, metadata=metadata) for name, metadata in offered],
                reason="because" if version >= 8 else None,
            )

        names = ",".join(name for name, _ in offered)
        self.add(f"join as {member} {instance or ''} with {protocol_type}:{names}", actor, version, build)
        return version

    def enter(self, actor: str, **kwargs: Any) -> None:
        """A client's way in: the join, and once more with the id that it was told to use (KIP-394)."""
        version = self.join(actor, member="none", **kwargs)
        if version >= 4 and not (kwargs.get("instance") or self.instances.get(actor)):
            self.join(actor, **kwargs | {"version": version})

    def sync(
        self,
        actor: str,
        *,
        version: int | None = None,
        member: str = "own",
        generation: int = 0,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "own",
        assign: str = "all",
        group_id: str | None = None,
    ) -> None:
        """The leader's sync assigns to `all`, to itself (`self`), to `none`, or to all and a `stranger`."""
        instance = self.instances.get(actor) if instance is None else instance
        version = self.version("SyncGroup", version, least=3 if instance else 0)
        entry = SyncGroupRequest.SyncGroupRequestAssignment

        def build(view: View) -> Any:
            who = view.actor(actor)
            given = {"all": who.members, "self": [who.member_id], "none": [], "stranger": [*who.members, NOBODY]}[
                assign
            ]
            owners = {m: name for name, a in view.actors.items() for m in a.ids}
            return SyncGroupRequest(
                group_id=self.group_id if group_id is None else group_id,
                generation_id=who.generation + generation,
                member_id=member_id(who, member),
                group_instance_id=instance or None,
                protocol_type=protocol_type if version >= 5 else None,
                protocol_name=None
                if version < 5
                else who.protocol or "range"
                if protocol_name == "own"
                else protocol_name,
                assignments=[
                    entry(member_id=m, assignment=f"for {owners.get(m)}".encode()) for m in given if who.is_leader
                ],
            )

        who = f"{member} {instance or ''} generation{generation:+d}"
        self.add(f"sync as {who} {protocol_type}:{protocol_name} assigns {assign}", actor, version, build)

    def assemble(self, *actors: str, **kwargs: Any) -> None:
        """A Stable group: the first actor leads."""
        leader, *others = actors
        self.enter(leader, **kwargs)
        self.sync(leader)
        for actor in others:
            self.enter(actor, **kwargs)
        if others:
            self.join(leader, **kwargs)
            for actor in (*others, leader):
                self.sync(actor)

    def heartbeat(
        self,
        actor: str,
        *,
        version: int | None = None,
        member: str = "own",
        generation: int = 0,
        instance: str | None = None,
        group_id: str | None = None,
    ) -> None:
        instance = self.instances.get(actor) if instance is None else instance
        version = self.version("Heartbeat", version, least=3 if instance else 0)

        def build(view: View) -> Any:
            return HeartbeatRequest(
                group_id=self.group_id if group_id is None else group_id,
                generation_id=view.actor(actor).generation + generation,
                member_id=member_id(view.actor(actor), member),
                group_instance_id=instance or None,
            )

        self.add(f"heartbeat as {member} {instance or ''} generation{generation:+d}", actor, version, build)

    def leave(
        self,
        actor: str,
        *who: tuple[str, str, str | None],
        version: int | None = None,
        group_id: str | None = None,
    ) -> None:
        """`who`: (actor, which id, instance id) of each member that leaves; by default the actor itself."""
        leaving = list(who) or [(actor, "own", self.instances.get(actor))]
        batch = len(leaving) > 1 or leaving[0][2] is not None
        version = self.version("LeaveGroup", version, least=3 if batch else 0)
        kind = LeaveGroupRequest.MemberIdentity

        def build(view: View) -> Any:
            group = self.group_id if group_id is None else group_id
            ids = [(member_id(view.actor(name), which), instance) for name, which, instance in leaving]
            if version < 3:
                return LeaveGroupRequest(group_id=group, member_id=ids[0][0])
            return LeaveGroupRequest(group_id=group, members=[kind(member_id=m, group_instance_id=i) for m, i in ids])

        self.add(f"leave {leaving}", actor, version, build)

    # -- offsets

    def commit(
        self,
        actor: str,
        *,
        version: int | None = None,
        member: str = "own",
        generation: int | None = 0,
        instance: str | None = None,
        offsets: Iterable[tuple[str, int, int]] = (("t0", 0, 10), ("t1", 0, 5)),
        metadata: str | None = "note",
        group_id: str | None = None,
    ) -> None:
        """`generation` is added to the actor's; None commits as no member at all (generation -1, empty id)."""
        instance = self.instances.get(actor) if instance is None else instance
        alone = generation is None
        version = self.version("OffsetCommit", version, least=7 if instance and not alone else 0)
        wanted = list(offsets)
        topic_kind = OffsetCommitRequest.OffsetCommitRequestTopic
        part_kind = OffsetCommitRequest.OffsetCommitRequestPartition

        def build(view: View) -> Any:
            topics = []
            for name in dict.fromkeys(topic for topic, _, _ in wanted):
                parts = [
                    part_kind(partition_index=p, committed_offset=offset, committed_metadata=metadata)
                    for topic, p, offset in wanted
                    if topic == name
                ]
                key = {"topic_id": view.topic_ids.get(name, NO_TOPIC)} if version >= 10 else {"name": name}
                topics.append(topic_kind(partitions=parts, **key))
            who = view.actor(actor)
            return OffsetCommitRequest(
                group_id=self.group_id if group_id is None else group_id,
                generation_id_or_member_epoch=-1 if generation is None else who.generation + generation,
                member_id="" if alone else member_id(who, member),
                group_instance_id=None if alone else instance or None,
                topics=topics,
            )

        how = "alone" if alone else f"as {member} {instance or ''} generation{generation:+d}"
        self.add(f"commit {wanted} {how} metadata {len(metadata or '')}", actor, version, build)

    def fetch(
        self,
        actor: str = "tool",
        *,
        version: int | None = None,
        topics: dict[str, list[int]] | None = None,
        stable: bool = False,
        groups: list[str] | None = None,
    ) -> None:
        """Committed offsets of the group; no `topics` means all."""
        version = self.version(
            "OffsetFetch", version, least=8 if groups else 7 if stable else 2 if topics is None else 0
        )

        def build(view: View) -> Any:
            if version < 8:
                kind = OffsetFetchRequest.OffsetFetchRequestTopic
                old = None if topics is None else [kind(name=t, partition_indexes=p) for t, p in topics.items()]
                request = OffsetFetchRequest(group_id=self.group_id, topics=old)
            else:
                kind, group_kind = (
                    OffsetFetchRequest.OffsetFetchRequestTopics,
                    OffsetFetchRequest.OffsetFetchRequestGroup,
                )
                key = (
                    (lambda t: {"topic_id": view.topic_ids.get(t, NO_TOPIC)})
                    if version >= 10
                    else (lambda t: {"name": t})
                )
                new = None if topics is None else [kind(partition_indexes=p, **key(t)) for t, p in topics.items()]
                request = OffsetFetchRequest(
                    groups=[group_kind(group_id=g, topics=new) for g in groups or [self.group_id]]
                )
            if version >= 7:
                request.require_stable = stable
            return request

        self.add(f"fetch offsets {topics} {groups or ''} stable={stable}", actor, version, build)

    def delete_offsets(self, *offsets: tuple[str, int], group_id: str | None = None) -> None:
        topic_kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
        part_kind = OffsetDeleteRequest.OffsetDeleteRequestPartition

        def build(view: View) -> Any:
            names = dict.fromkeys(topic for topic, _ in offsets)
            topics = [
                topic_kind(name=n, partitions=[part_kind(partition_index=p) for t, p in offsets if t == n])
                for n in names
            ]
            return OffsetDeleteRequest(group_id=self.group_id if group_id is None else group_id, topics=topics)

        self.add(f"delete offsets {offsets}", "tool", 0, build)

    # -- tools

    def describe(self, *groups: str, version: int | None = None, operations: bool = False) -> None:
        version = self.version("DescribeGroups", version, least=3 if operations else 0)
        names = list(groups) or [self.group_id]
        self.add(
            f"describe {names}",
            "tool",
            version,
            lambda view: DescribeGroupsRequest(groups=names, include_authorized_operations=operations),
        )

    def list_groups(
        self, *, version: int | None = None, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
    ) -> None:
        version = self.version("ListGroups", version, least=5 if types else 4 if states else 0)

        def build(view: View) -> Any:
            return ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        self.add(f"list groups {states} {types}", "tool", version, build)

    def delete_groups(self, *groups: str, version: int | None = None) -> None:
        names = list(groups) or [self.group_id]
        version = self.version("DeleteGroups", version)
        self.add(f"delete {names}", "tool", version, lambda view: DeleteGroupsRequest(groups_names=names))

    def find_coordinator(self, *keys: str, key_type: int = 0, version: int | None = None) -> None:
        names = list(keys) or [self.group_id]
        version = self.version("FindCoordinator", version, least=4 if len(names) > 1 else 1 if key_type else 0)

        def build(view: View) -> Any:
            if version >= 4:
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=names)
            return FindCoordinatorRequest(key=names[0], key_type=key_type)

        self.add(f"find coordinator of {names} type {key_type}", "tool", version, build)
