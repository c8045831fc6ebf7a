"""The broker asked from within its process: Kafka's own requests without a socket, past faults and the log of requests.

What tests want to know of topics and groups is read and changed through these, so that a test sees what any client
would. The sentences and types here are for people who write tests; decisions are the broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.connection import Call, Connection
from kohort.broker.controls import EVICTED
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.frames import decode_response
from kohort.records.batch import Header, iter_batches, read_records

if TYPE_CHECKING:
    from kohort.broker.server import Server

CLIENT_ID = "kohort-test"
LOOK_EVERY_S = 0.002
LOADING_S = 30.0
ANSWER_S = 30.0
_EARLIEST = -2
_FETCH_BYTES = 8 * 1024 * 1024
# Topics and groups by name, in versions that have no ids of topics yet.
_VERSIONS = {
    "FindCoordinator": 6,
    "CreateTopics": 7,
    "Fetch": 12,
    "OffsetFetch": 9,
    "DescribeGroups": 5,
    "ConsumerGroupDescribe": 1,
    "ListOffsets": 7,
    "Metadata": 9,
    "LeaveGroup": 5,
}
_NO_COORDINATOR_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class StoredRecord(NamedTuple):
    """A record as it is in the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class MemberSnapshot(NamedTuple):
    """A member of a group. `assignment` has the partitions of each topic; it is empty while the group rebalances."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None
    assignment: dict[str, list[int]]


class GroupSnapshot(NamedTuple):
    """A group as it is now; its state is Kafka's name of it, Dead where there is no such group. `protocol` names the
    assignor: that of the members, or with the consumer protocol (KIP-848) that of the broker."""

    group_id: str
    state: str
    protocol: str
    members: list[MemberSnapshot]

    @property
    def partitions(self) -> int:
        """How many partitions its members have together."""
        return sum(len(numbers) for member in self.members for numbers in member.assignment.values())


class _Ear:
    """Stands where a connection's socket would be: `send` is called when the answer is there."""

    def __init__(self, connection: Connection) -> None:
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._connection = connection

    def send(self) -> None:
        parts, reason = self._connection.take_output(), self._connection.close_reason
        if self.answered.done():
            return
        if parts:
            self.answered.set_result(b"".join(parts))
        elif reason is not None:
            self.answered.set_exception(RuntimeError(reason))


class Inside:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def ask(self, request: Any) -> Any:
        """The broker's answer to a request."""
        core, now_ms = self._server.core, self._server.clock.now_ms()
        name = type(request).__name__.removesuffix("Request")
        version = _VERSIONS[name]
        entry = core.table.resolve(request.API_KEY, version)
        assert entry is not None, f"{name} v{version} is not served"
        connection = Connection("127.0.0.1")
        connection.shell = ear = _Ear(connection)
        call = Call(connection, 0, CLIENT_ID, version, entry)
        connection.pending.append(call)
        core.serve(call, request, now_ms)
        self._server.end_turn()
        try:
            async with asyncio.timeout(ANSWER_S):
                frame = await ear.answered
        except TimeoutError:
            raise TimeoutError(f"{name} was not answered within {ANSWER_S:.0f} s: was the broker stopped?") from None
        return decode_response(frame[4:], version, getattr(messages, f"{name}Response"))

    async def _ask_coordinator(self, request: Any, code: Callable[[Any], int]) -> Any:
        """The same, once the group's coordinator has loaded it; None where no group was ever there."""
        deadline = asyncio.get_running_loop().time() + LOADING_S
        while True:
            answer = await self.ask(request)
            error = ErrorCode(code(answer))
            if error in _NO_COORDINATOR_YET:
                return None
            if error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return answer
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaError(error)
            await asyncio.sleep(LOOK_EVERY_S)

    # Topics.

    async def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        """By request, so that it is also right in a cluster, where the store has to agree."""
        kind = messages.CreateTopicsRequest
        rows = [kind.CreatableTopicConfig(name=key, value=str(value)) for key, value in configs.items()]
        topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=rows)
        (row,) = (await self.ask(kind(topics=[topic], timeout_ms=30_000))).topics
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code), row.error_message)

    async def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        """All records of a topic, or of one partition of it, by partition and offset."""
        numbers = await self._partitions(topic)
        if partition is not None:
            if partition not in numbers:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has partitions 0 to {len(numbers) - 1}"
                )
            numbers = [partition]
        return [record for number in numbers for record in await self._records(topic, number)]

    async def _partitions(self, topic: str) -> list[int]:
        kind = messages.MetadataRequest
        asked = kind(topics=[kind.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (row,) = (await self.ask(asked)).topics
        if row.error_code:
            raise KafkaError(ErrorCode(row.error_code), f"there is no topic {topic}")
        return sorted(partition.partition_index for partition in row.partitions)

    async def _records(self, topic: str, partition: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        offset, end = await self._start(topic, partition), None
        while end is None or offset < end:
            row = await self._fetch(topic, partition, offset)
            end, data, before = row.high_watermark, row.records or b"", offset
            for position, header in iter_batches(data):
                offset = max(offset, header.last_offset + 1)
                if header.is_control:
                    continue
                for record in read_records(data, position, header):
                    if before <= record.offset < end:
                        found.append(StoredRecord(topic, partition, *record))
            if offset == before:
                break
        return found

    async def _start(self, topic: str, partition: int) -> int:
        kind = messages.ListOffsetsRequest
        row = kind.ListOffsetsPartition(partition_index=partition, timestamp=_EARLIEST)
        answer = await self.ask(kind(topics=[kind.ListOffsetsTopic(name=topic, partitions=[row])]))
        offset: int = answer.topics[0].partitions[0].offset
        return max(offset, 0)

    async def _fetch(self, topic: str, partition: int, offset: int) -> Any:
        kind = messages.FetchRequest
        row = kind.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        asked = kind(topics=[kind.FetchTopic(topic=topic, partitions=[row])], max_wait_ms=0, max_bytes=_FETCH_BYTES)
        (answered,) = (await self.ask(asked)).responses[0].partitions
        if answered.error_code:
            raise KafkaError(ErrorCode(answered.error_code))
        return answered

    # Groups.

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed: {(topic, partition): offset}."""
        kind = messages.OffsetFetchRequest
        asked = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = await self._ask_coordinator(asked, lambda answer: answer.groups[0].error_code)
        if answer is None:
            return {}
        rows = ((topic.name, row) for topic in answer.groups[0].topics for row in topic.partitions)
        return {(name, row.partition_index): row.committed_offset for name, row in rows if row.committed_offset >= 0}

    async def group(self, group: str) -> GroupSnapshot:
        """State and members of a group."""
        asked = messages.DescribeGroupsRequest(groups=[group])
        answer = await self._ask_coordinator(asked, lambda answer: answer.groups[0].error_code)
        if answer is None:
            return GroupSnapshot(group, "Dead", "", [])
        (row,) = answer.groups
        if row.group_state == "Dead" and (modern := await self._modern_group(group)) is not None:
            return modern
        members = [
            MemberSnapshot(
                m.member_id, m.client_id, m.client_host, m.group_instance_id, _assignment(m.member_assignment)
            )
            for m in row.members
        ]
        return GroupSnapshot(group, row.group_state, row.protocol_data, members)

    async def _modern_group(self, group: str) -> GroupSnapshot | None:
        """One of the consumer protocol (KIP-848); None where there is none."""
        (row,) = (await self.ask(messages.ConsumerGroupDescribeRequest(group_ids=[group]))).groups
        if row.error_code:
            return None
        members = [
            MemberSnapshot(
                m.member_id,
                m.client_id,
                m.client_host,
                m.instance_id,
                {given.topic_name: sorted(given.partitions) for given in m.assignment.topic_partitions},
            )
            for m in row.members
        ]
        return GroupSnapshot(group, row.group_state, row.assignor_name, members)

    async def evict(
        self,
        group: str,
        member: str | None = None,
        client: str | None = None,
        group_instance_id: str | None = None,
        reason: str = EVICTED,
    ) -> list[str]:
        """Put members out of a group; returns their ids."""
        if sum(given is not None for given in (member, client, group_instance_id)) != 1:
            raise ValueError("whom? Give one of member (its id), client (its client.id) or group_instance_id")
        found = await self.group(group)
        wanted = {"member_id": member, "client_id": client, "group_instance_id": group_instance_id}
        name, value = next((name, value) for name, value in wanted.items() if value is not None)
        chosen = [one for one in found.members if getattr(one, name) == value]
        if not chosen:
            known = ", ".join(f"{one.client_id} ({one.member_id})" for one in found.members) or "none"
            raise LookupError(f"group {group} has no member with {name} {value}; its members: {known}")
        kind = messages.LeaveGroupRequest
        rows = [
            kind.MemberIdentity(member_id=one.member_id, group_instance_id=one.group_instance_id, reason=reason)
            for one in chosen
        ]
        answer = await self.ask(kind(group_id=group, members=rows))
        for code in (answer.error_code, *(row.error_code for row in answer.members)):
            if code:
                raise KafkaError(ErrorCode(code))
        return [one.member_id for one in chosen]

    async def wait_stable(
        self, group: str, members: int | None = None, partitions: int | None = None, timeout: float = 30.0
    ) -> GroupSnapshot:
        """Until the group is stable with so many members, who have so many partitions together; 0 members is Empty."""
        deadline = asyncio.get_running_loop().time() + timeout
        settled = ("Empty", "Dead") if members == 0 else ("Stable",)
        while True:
            found = await self.group(group)
            if (
                found.state in settled
                and members in (None, len(found.members))
                and partitions in (None, found.partitions)
            ):
                return found
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(_not_stable(found, members, partitions, timeout))
            await asyncio.sleep(LOOK_EVERY_S)


def _not_stable(found: GroupSnapshot, members: int | None, partitions: int | None, timeout: float) -> str:
    wanted = "stable" + (f" with {members} members" if members is not None else "")
    wanted += f" and {partitions} partitions" if partitions is not None else ""
    who = ", ".join(f"{one.client_id} {one.assignment or 'without partitions'}" for one in found.members) or "nobody"
    return f"group {found.group_id} was not {wanted} within {timeout} s: it is {found.state}, its members: {who}"


def _assignment(data: bytes) -> dict[str, list[int]]:
    """Partitions by topic; none where another kind of group has its own format."""
    if len(data) < 2:
        return {}
    try:
        assigned = messages.ConsumerProtocolAssignment.decode(data, 0, 2)
    except ValueError:
        return {}
    return {row.topic: sorted(row.partitions) for row in assigned.assigned_partitions}
