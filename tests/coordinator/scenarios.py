"""Plays scenario files: protocol traces of commands and what they must lead to, in virtual time.

A file is a sequence of blocks, separated by blank lines: `#` comments, one command, `----`, and the expected output
(nothing after `----` means that nothing happens). Clients have names; `a join` sends what client `a` would send next:
its member id and its generation are remembered from the answers. `KOHORT_REWRITE=1` writes the output of this run into
the files, to be read before it is committed.

    config KEY=VALUE...                     settings of the coordinator; before anything else
    NAME join [protocols=range:orders,rr:orders] [v=] [session=] [rebalance=] [instance=] [member=] [type=] [reason=]
    NAME sync [MEMBER=ASSIGNMENT...] [v=] [generation=] [protocol=] [type=]
    NAME heartbeat | leave [MEMBER...] [v=] | commit TOPIC/PARTITION=OFFSET... [metadata=] [retention=]
    NAME fetch [TOPIC/PARTITION...] [stable=1] | delete-offsets TOPIC/PARTITION...
    NAME describe | list [states=] [types=] | delete-groups ID...
    advance MS | restart | unload | load-start | load-finish | fail ERROR | heal | hold | release
    topic NAME PARTITIONS | delete-topic NAME | max-size N | story [GROUP] | state [GROUP]
Every request takes group=, version (v=), member=, generation= and instance= to contradict what the client knows.
"""

from collections.abc import Callable, Iterator
from typing import Any

from coordinator.world import World
from kohort.coordinator import records
from kohort.coordinator.events import (
    GenerationStarted,
    GroupEvent,
    GroupLoaded,
    GroupUnloaded,
    JoinRefused,
    MemberFenced,
    MemberIdAssigned,
    MemberJoined,
    MemberRejoined,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceStarted,
    SyncRefused,
)
from kohort.insight.sentences import why_of_event
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

WITHOUT_REASON = (
    GenerationStarted,
    GroupLoaded,
    GroupUnloaded,
    JoinRefused,
    MemberFenced,
    RebalanceCompleted,
    RebalanceFailed,
    SyncRefused,
)
QUIET = (GenerationStarted, GroupLoaded, MemberIdAssigned, MemberJoined, MemberRejoined, RebalanceStarted)


def subscription(topics: str) -> bytes:
    names = [name.encode() for name in topics.split("+") if name]
    body = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    return b"\x00\x00" + len(names).to_bytes(4, "big") + body + b"\x00\x00\x00\x00"


class Client:
    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.instance_id: str | None = None
        self.protocol: str | None = None
        self.protocol_type: str | None = "consumer"
        self.protocols = "range:orders"
        self.session_ms = 10_000
        self.rebalance_ms = 30_000


class Player:
    def __init__(self) -> None:
        self.config: dict[str, int] = {}
        self.world: World | None = None
        self.clients: dict[str, Client] = {}
        self.out: list[str] = []
        self.seen_events = 0
        self.seen_records: dict[int, int] = {}
        self.requests = 0
        self.waiting: dict[Any, str] = {}

    # ---- a command

    def play(self, line: str) -> list[str]:
        self.out = []
        words = line.split()
        if words[0] == "config":
            self.config |= {key: int(value) for key, value in (word.split("=") for word in words[1:])}
            return self.out
        if self.world is None:
            self.world = World(**self.config)
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        plain = [word for word in words[1:] if "=" not in word]
        command = getattr(self, "do_" + words[0].replace("-", "_"), None)
        if command is not None:
            command(plain, options)
        else:
            client = self.clients.setdefault(words[0], Client(words[0]))
            send = getattr(self, "send_" + plain[0].replace("-", "_"))
            self._send(client, send, plain[1:], options)
        self._show()
        return self.out

    def _send(self, client: Client, make: Callable[..., Any], plain: list[str], options: dict[str, str]) -> None:
        assert self.world is not None
        message, version = make(client, plain, options)
        version = int(options.get("v", version))
        type(message).decode(message.encode(version), version)  # it must be sayable in that version
        self.requests += 1
        token = (client.name, self.requests, type(message).__name__.removesuffix("Request"), version)
        if self.world.send(message, version, token, client.name, f"/{client.name}") is None:
            self.out.append("(parked)")

    # ---- requests

    @staticmethod
    def _who(client: Client, options: dict[str, str]) -> dict[str, Any]:
        return {
            "group_id": options.get("group", "g"),
            "member_id": options.get("member", client.member_id),
            "group_instance_id": options.get("instance", client.instance_id),
        }

    def send_join(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        client.instance_id = options.get("instance", client.instance_id)
        client.protocols = options.get("protocols", client.protocols)
        client.session_ms = int(options.get("session", client.session_ms))
        client.rebalance_ms = int(options.get("rebalance", client.rebalance_ms))
        client.protocol_type = options.get("type", client.protocol_type)
        make = messages.JoinGroupRequest.JoinGroupRequestProtocol
        protocols = [
            make(name=name, metadata=subscription(topics))
            for name, _, topics in (protocol.partition(":") for protocol in client.protocols.split(",") if protocol)
        ]
        message = messages.JoinGroupRequest(
            **self._who(client, options),
            session_timeout_ms=client.session_ms,
            rebalance_timeout_ms=client.rebalance_ms,
            protocol_type=client.protocol_type,
            protocols=protocols,
            reason=options.get("reason"),
        )
        return message, 9

    def send_sync(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        make = messages.SyncGroupRequest.SyncGroupRequestAssignment
        known = {"v", "group", "member", "generation", "instance", "protocol", "type"}
        assignments = [
            make(member_id=self._member_of(name), assignment=value.encode())
            for name, value in options.items()
            if name not in known
        ]
        message = messages.SyncGroupRequest(
            **self._who(client, options),
            generation_id=int(options.get("generation", client.generation)),
            assignments=assignments,
            protocol_type=_nullable(options.get("type", client.protocol_type)),
            protocol_name=_nullable(options.get("protocol", client.protocol)),
        )
        if int(options.get("v", 5)) < 5:
            message.protocol_type = message.protocol_name = None
        return message, 5

    def send_heartbeat(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        generation = int(options.get("generation", client.generation))
        return messages.HeartbeatRequest(**self._who(client, options), generation_id=generation), 4

    def send_leave(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        who = self._who(client, options)
        if int(options.get("v", 5)) < 3:
            return messages.LeaveGroupRequest(group_id=who["group_id"], member_id=who["member_id"]), 2
        make = messages.LeaveGroupRequest.MemberIdentity
        members = []
        for name in plain or [client.name]:
            if name.startswith("@"):  # by instance id, as an administrator does
                members.append(make(group_instance_id=name[1:]))
            else:
                other = self.clients.get(name, client if name == client.name else Client(name))
                member_id = who["member_id"] if other is client else other.member_id or name
                instance_id = who["group_instance_id"] if other is client else other.instance_id
                members.append(make(member_id=member_id, group_instance_id=instance_id, reason=options.get("reason")))
        return messages.LeaveGroupRequest(group_id=who["group_id"], members=members), 5

    def send_commit(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        assert self.world is not None
        topics: dict[str, list[Any]] = {}
        make = messages.OffsetCommitRequest.OffsetCommitRequestPartition
        for place, offset in options.items():
            topic, slash, partition = place.rpartition("/")
            if slash:
                topics.setdefault(topic, []).append(
                    make(
                        partition_index=int(partition),
                        committed_offset=int(offset),
                        committed_metadata=options.get("metadata", ""),
                    )
                )
        by_id = int(options.get("v", 9)) >= 10
        message = messages.OffsetCommitRequest(
            **self._who(client, options),
            generation_id_or_member_epoch=int(options.get("generation", client.generation)),
            retention_time_ms=int(options.get("retention", -1)),
            topics=[
                messages.OffsetCommitRequest.OffsetCommitRequestTopic(
                    **({"topic_id": self._topic_id(name)} if by_id else {"name": name}), partitions=partitions
                )
                for name, partitions in topics.items()
            ],
        )
        return message, 9

    def send_fetch(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        version = int(options.get("v", 9))
        topics: dict[str, list[int]] = {}
        for place in plain:
            topic, _, partition = place.rpartition("/")
            topics.setdefault(topic, []).append(int(partition))
        stable = options.get("stable") == "1"
        request = messages.OffsetFetchRequest
        if version < 8:
            make = request.OffsetFetchRequestTopic
            named = [make(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
            group_id = options.get("group", "g")
            return request(group_id=group_id, topics=named if plain else None, require_stable=stable), 7
        group_ids = options.get("group", "g").split(",")
        make = request.OffsetFetchRequestTopics
        groups = [
            request.OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[
                    make(
                        **({"topic_id": self._topic_id(name)} if version >= 10 else {"name": name}),
                        partition_indexes=indexes,
                    )
                    for name, indexes in topics.items()
                ]
                if plain
                else None,
            )
            for group_id in group_ids
        ]
        return request(groups=groups, require_stable=stable), 9

    def send_delete_offsets(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        request = messages.OffsetDeleteRequest
        topics: dict[str, list[Any]] = {}
        for place in plain:
            topic, _, partition = place.rpartition("/")
            made = request.OffsetDeleteRequestPartition(partition_index=int(partition))
            topics.setdefault(topic, []).append(made)
        made_topics = [request.OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
        return request(group_id=options.get("group", "g"), topics=made_topics), 0

    def send_describe(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        return messages.DescribeGroupsRequest(groups=plain or ["g"]), 6

    def send_list(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        states = [name for name in options.get("states", "").split(",") if name]
        types = [name for name in options.get("types", "").split(",") if name]
        return messages.ListGroupsRequest(states_filter=states, types_filter=types), 5

    def send_delete_groups(self, client: Client, plain: list[str], options: dict[str, str]) -> tuple[Any, int]:
        return messages.DeleteGroupsRequest(groups_names=plain or ["g"]), 2

    def _member_of(self, name: str) -> str:
        return self.clients[name].member_id if name in self.clients else name

    def _topic_id(self, name: str) -> bytes:
        assert self.world is not None
        found = self.world.topics.by_name(name)
        return found[0] if found is not None else name.encode().ljust(16, b"\x02")[:16]

    # ---- the world

    def do_advance(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.advance(int(plain[0]))

    def do_restart(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.restart()

    def do_unload(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.coordinator.runtime.resign(0, self._world.now_ms)
        self._world.carry_out()

    def do_load_start(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.restart(load=False)
        for shard in self._world.lead():
            self._world.read(shard)
        self._world.coordinator.effects.loads.clear()

    def do_load_finish(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.loaded(self._world.coordinator.runtime.shards[0])
        self._world.carry_out()

    def do_fail(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.store_error = ErrorCode[plain[0]]

    def do_heal(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.store_error = ErrorCode.NONE

    def do_hold(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.holding = True

    def do_release(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.store_held()

    def do_max_size(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.config.group_max_size = int(plain[0])

    def do_topic(self, plain: list[str], options: dict[str, str]) -> None:
        self._world.topics.add(plain[0], int(plain[1]))

    def do_delete_topic(self, plain: list[str], options: dict[str, str]) -> None:
        topic_id, _ = self._world.topics.topics.pop(plain[0])
        self._world.coordinator.topics_deleted({plain[0]: topic_id}, self._world.now_ms)
        self._world.carry_out()

    def do_story(self, plain: list[str], options: dict[str, str]) -> None:
        for event in self._world.coordinator.story(plain[0] if plain else "g"):
            details = event.to_dict()
            for dull in ("group_id", "client_host", "client_id"):
                details.pop(dull, None)
            details["at_ms"] -= 1_000_000
            if "cause" in details:
                details["cause"] = reason_of(event)
            shown = ((name.replace("cause", "reason"), value) for name, value in details.items() if value != "")
            self.out.append(" ".join(str(v) if k == "type" else f"{k}={v}" for k, v in shown))

    def do_state(self, plain: list[str], options: dict[str, str]) -> None:
        group_id = plain[0] if plain else "g"
        group = self._world.coordinator.group(group_id)
        if group is None:
            self.out.append(f"{group_id}: no such group")
            return
        pending = f" pending=[{', '.join(group.pending_members)}]" if group.pending_members else ""
        members = ", ".join(group.members)
        what = f"{group.state.value} generation={group.generation} leader={group.leader_id}"
        self.out.append(f"{group_id}: {what} [{members}]{pending}")

    @property
    def _world(self) -> World:
        assert self.world is not None
        return self.world

    # ---- what came of it

    def _show(self) -> None:
        world = self._world
        for partition, log in world.log.items():
            for key, value in log[self.seen_records.get(partition, 0) :]:
                self.out.append(f"record: {show_record(records.decode(key, value))}")
            self.seen_records[partition] = len(log)
        for event in world.events[self.seen_events :]:
            if not isinstance(event, QUIET):
                self.out.append(show_event(event))
        self.seen_events = len(world.events)
        for token, response in list(world.replies.items()):
            self._learn(token, response)
            self.out.append(f"{token[0]} <- {token[2]}: {show_response(response, token[3])}")
        world.replies.clear()

    def _learn(self, token: Any, response: Any) -> None:
        client = self.clients[token[0]]
        if isinstance(response, messages.JoinGroupResponse):
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
            if response.error_code == ErrorCode.NONE:
                client.generation = response.generation_id
                client.protocol = response.protocol_name


def _nullable(value: str | None) -> str | None:
    return None if value == "null" else value


# ---- rendering


def error_name(code: int) -> str:
    return "ok" if code == 0 else ErrorCode(code).name


def show_record(change: records.Change) -> str:
    if isinstance(change, records.OffsetCommit):
        where = f"offset {change.group_id} {change.topic}/{change.partition}"
        if change.value is None:
            return f"{where} tombstone"
        extra = f" {change.value.metadata!r}" if change.value.metadata else ""
        if change.value.expire_timestamp_ms != -1:
            extra += f" expires={change.value.expire_timestamp_ms - 1_000_000}"
        return f"{where} = {change.value.committed_offset}{extra}"
    stored = change.value
    if stored is None:
        return f"group {change.group_id} tombstone"
    members = ", ".join(f"{m.member_id}:{m.assignment.decode() or '-'}" for m in stored.members)
    return (
        f"group {change.group_id} generation={stored.generation} protocol={stored.protocol} "
        f"leader={stored.leader_id} [{members}]"
    )


def reason_of(event: GroupEvent) -> str:
    """Not of events whose other fields, or whose neighbours, say it already."""
    return "" if isinstance(event, WITHOUT_REASON) else why_of_event(event)


def show_event(event: Any) -> str:
    details = event.to_dict()
    kind = details["type"]
    if kind == "StateChanged":
        return f"{event.group_id}: {event.from_state} -> {event.to_state} ({reason_of(event)})"
    who = getattr(event, "member_id", "") or getattr(event, "instance_id", None) or ""
    names = ("error", "operation", "duration_ms", "replaced_member_id", "topics", "partitions")
    extra = [f"{name}={details[name]}" for name in names if name in details]
    reason = f"({reason_of(event)})" if reason_of(event) else ""
    return " ".join(part for part in (f"{event.group_id}:", kind, who, *extra, reason) if part)


def show_response(response: Any, version: int) -> str:
    response = type(response).decode(response.encode(version), version)  # as the client will read it
    return " ".join(RENDERERS[type(response).__name__](response, version)) or "ok"


def _join(r: Any, version: int) -> Iterator[str]:
    if r.error_code:
        yield error_name(r.error_code)
        if r.member_id:
            yield f"member={r.member_id}"
        if r.generation_id == -1:
            return
    yield f"generation={r.generation_id} protocol={r.protocol_name} leader={r.leader}"
    if r.error_code == 0:
        yield f"member={r.member_id}"
    if r.members:
        yield f"members=[{', '.join(m.member_id for m in r.members)}]"
    if r.skip_assignment:
        yield "skip_assignment"


def _sync(r: Any, version: int) -> Iterator[str]:
    yield error_name(r.error_code) if r.error_code else f"assignment={r.assignment.decode() or '-'}"
    if version >= 5 and not r.error_code:
        yield f"protocol={r.protocol_type}/{r.protocol_name}"


def _error_only(r: Any, version: int) -> Iterator[str]:
    yield error_name(r.error_code)


def _leave(r: Any, version: int) -> Iterator[str]:
    if r.error_code or version < 3:
        yield error_name(r.error_code)
    for m in r.members:
        yield f"{m.member_id or '@' + str(m.group_instance_id)}={error_name(m.error_code)}"


def _commit(r: Any, version: int) -> Iterator[str]:
    for topic in r.topics:
        for p in topic.partitions:
            name = topic.name or topic.topic_id.rstrip(b"\x01\x02").decode()
            yield f"{name}/{p.partition_index}={error_name(p.error_code)}"


def _fetch(r: Any, version: int) -> Iterator[str]:
    for group in r.groups if version >= 8 else [r]:
        if version >= 8 and len(r.groups) > 1:
            yield f"{group.group_id}:"
        if version >= 2 and group.error_code:
            yield error_name(group.error_code)
        found = False
        for topic in group.topics:
            for p in topic.partitions:
                found = True
                name = topic.name if version < 10 else topic.topic_id.rstrip(b"\x01\x02").decode()
                value = error_name(p.error_code) if p.error_code else str(p.committed_offset)
                yield f"{name}/{p.partition_index}={value}" + (f"({p.metadata})" if p.metadata else "")
        if not found and not (version >= 2 and group.error_code):
            yield "nothing"


def _delete_offsets(r: Any, version: int) -> Iterator[str]:
    if r.error_code:
        yield error_name(r.error_code)
    yield from _commit_like(r)


def _commit_like(r: Any) -> Iterator[str]:
    for topic in r.topics:
        for p in topic.partitions:
            yield f"{topic.name}/{p.partition_index}={error_name(p.error_code)}"


def _describe(r: Any, version: int) -> Iterator[str]:
    for g in r.groups:
        error = f" {error_name(g.error_code)} {g.error_message!r}" if g.error_code else ""
        members = ", ".join(
            f"{m.member_id}{'@' + m.group_instance_id if m.group_instance_id else ''}"
            f" {m.client_id}{m.client_host}:{m.member_assignment.decode() or '-'}"
            for m in g.members
        )
        kind = f"type={g.protocol_type or '-'} protocol={g.protocol_data or '-'}"
        yield f"{g.group_id} {g.group_state or '-'} {kind} [{members}]{error}"


def _list(r: Any, version: int) -> Iterator[str]:
    if r.error_code:
        yield error_name(r.error_code)
    for g in r.groups:
        yield (
            f"{g.group_id}/{g.protocol_type or '-'}"
            + (f"/{g.group_state}" if version >= 4 else "")
            + (f"/{g.group_type}" if version >= 5 else "")
        )
    if not r.groups and not r.error_code:
        yield "no groups"


def _delete_groups(r: Any, version: int) -> Iterator[str]:
    for result in r.results:
        yield f"{result.group_id}={error_name(result.error_code)}"


RENDERERS: dict[str, Callable[[Any, int], Iterator[str]]] = {
    "JoinGroupResponse": _join,
    "SyncGroupResponse": _sync,
    "HeartbeatResponse": _error_only,
    "LeaveGroupResponse": _leave,
    "OffsetCommitResponse": _commit,
    "OffsetFetchResponse": _fetch,
    "OffsetDeleteResponse": _delete_offsets,
    "DescribeGroupsResponse": _describe,
    "ListGroupsResponse": _list,
    "DeleteGroupsResponse": _delete_groups,
}


# ---- files


def blocks(text: str) -> Iterator[tuple[list[str], str | None, list[str]]]:
    """(comment lines, command, expected output) of each block."""
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            yield comments, None, []
        else:
            expected = rest[2:] if len(rest) > 1 else []
            yield comments, rest[0], expected


def run(text: str) -> str:
    """The file as this run would write it."""
    player = Player()
    written = []
    for comments, command, _ in blocks(text):
        lines = list(comments)
        if command is not None:
            lines += [command, "----", *player.play(command)]
        written.append("\n".join(lines))
    return "\n\n".join(written) + "\n"
