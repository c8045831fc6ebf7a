"""The longest wait of an innocent member while somebody attacks: kohort and a real Kafka side by side.

The member is a process of its own that sends a heartbeat every 20 ms on a connection of its own; the attackers are
another. `make hostile` runs this alone, each attack for `--seconds`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from kohort.protocol import messages as m
from kohort.protocol.frames import decode_response, encode_request
from kohort.records.batch import HEADER_SIZE, Compression, Record, build_batch
from kohort.records.checksum import crc32c
from kohort.records.compression import compress
from kohort.records.varint import encode_varint
from process import resident_bytes
from tables import Table
from targets import running

BEAT_S = 0.02
PARTITIONS = 1000
CONFIG = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}


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


# The innocent.


def join(wire: Wire, group: str) -> tuple[str, int]:
    kind = m.JoinGroupRequest
    protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=b"")]
    asked = kind(
        group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="x", protocols=protocols
    )
    joined = wire.call(asked, 3)
    wire.call(m.SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id), 2)
    return joined.member_id, joined.generation_id


def beat(address: str, stop: Any, result: Any) -> None:
    """Heartbeats until `stop`; then the longest wait."""
    wire = Wire(address)
    find_coordinator(wire, "innocent")
    member_id, generation = join(wire, "innocent")
    request = frame(m.HeartbeatRequest(group_id="innocent", generation_id=generation, member_id=member_id), 3)
    longest = 0.0
    result.put("ready")
    while not stop.is_set():
        began = time.monotonic()
        wire.socket.sendall(request)
        wire.receive()
        longest = max(longest, time.monotonic() - began)
        time.sleep(BEAT_S)
    result.put(longest)


def find_coordinator(wire: Wire, group: str) -> None:
    for _ in range(300):
        answer = wire.call(m.FindCoordinatorRequest(key=group, key_type=0), 3)
        if not answer.error_code:
            return
        time.sleep(0.1)
    raise RuntimeError("no coordinator")


# The attacks.


Attack = Callable[[str, float], None]


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
    """Half a million records that are as they should be."""
    count = 500_000
    body = b"".join(map(_tiny, range(count)))
    template = build_batch([Record(0, int(time.time() * 1000), b"k")], compression=Compression.ZSTD)
    batch = bytearray(template[:HEADER_SIZE] + compress(Compression.ZSTD, body))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27], batch[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def bombs(topic: str, make: Callable[[], bytes]) -> Attack:
    def attack(address: str, seconds: float) -> None:
        wire, batch = Wire(address), make()
        for _ in lasting(seconds):
            wire.call(produce(topic, batch), 9)

    return attack


def pipelined(connections: int, requests: int, request: Any, version: int) -> Attack:
    def attack(address: str, seconds: float) -> None:
        flood = frame(request, version) * requests
        until = time.monotonic() + seconds
        for _ in lasting(seconds):
            wires = [Wire(address) for _ in range(connections)]
            for wire in wires:
                wire.socket.settimeout(0.2)
                try:
                    wire.socket.sendall(flood)
                except TimeoutError:
                    pass
            for wire in wires:
                end = min(until, time.monotonic() + 5)
                try:
                    while time.monotonic() < end and wire.socket.recv(1 << 20):
                        pass
                except OSError:
                    pass
                wire.socket.close()

    return attack


def names(address: str, seconds: float) -> None:
    asked = [m.MetadataRequest.MetadataRequestTopic(name=f"n{index}") for index in range(240_000)]
    once(m.MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)(address, seconds)


def once(request: Any, version: int) -> Attack:
    """The same large request again and again, each after the answer to the last."""
    data = frame(request, version)

    def attack(address: str, seconds: float) -> None:
        for _ in lasting(seconds):
            wire = Wire(address)
            try:
                wire.socket.sendall(data)
                wire.receive()
            except (EOFError, OSError):
                pass
            wire.socket.close()

    return attack


def partitions(address: str, seconds: float) -> None:
    create, delete = m.CreateTopicsRequest, m.DeleteTopicsRequest
    wire = Wire(address)
    for number, _ in enumerate(lasting(seconds)):
        topic = create.CreatableTopic(name=f"wide{number}", num_partitions=10_000, replication_factor=1)
        wire.call(create(topics=[topic], timeout_ms=60_000), 5)
        wire.call(delete(topic_names=[f"wide{number}"], timeout_ms=60_000), 5)


def syncs(address: str, seconds: float) -> None:
    wire = Wire(address)
    find_coordinator(wire, "big")
    member_id, generation = join(wire, "big")
    kind = m.SyncGroupRequest
    row = kind.SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(1_000_000))
    data = frame(kind(group_id="big", generation_id=generation, member_id=member_id, assignments=[row]), 2)
    for _ in lasting(seconds):
        wire.socket.sendall(data)
        wire.receive()


def offsets(address: str, seconds: float) -> None:
    kind = m.OffsetFetchRequest
    asked = [kind.OffsetFetchRequestGroup(group_id=f"g{index}", topics=None) for index in range(20_000)]
    once(kind(groups=asked), 8)(address, seconds)


def fetches(address: str, seconds: float) -> None:
    kind = m.FetchRequest
    rows = [kind.FetchPartition(partition=index, partition_max_bytes=1000) for index in range(100_000)]
    topics = [kind.FetchTopic(topic="wide", partitions=rows)]
    once(kind(topics=topics, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20), 12)(address, seconds)


ATTACKS: dict[str, Attack] = {
    "nothing": lambda address, seconds: time.sleep(seconds),
    "6 KB that inflate to 31 MB, to a compacted topic": bombs("compacted", bomb),
    "500,000 tiny records a batch, to a recompressing topic": bombs("recompressed", good_bomb),
    "512 Metadata(all) at once": pipelined(1, 512, m.MetadataRequest(topics=None), 9),
    "50 connections of 200 Metadata(all)": pipelined(50, 200, m.MetadataRequest(topics=None), 9),
    "100 ListGroups at once": pipelined(1, 100, m.ListGroupsRequest(), 4),
    "240,000 names": names,
    "create and delete 10,000 partitions": partitions,
    "SyncGroups of 1 MB": syncs,
    "OffsetFetch of 20,000 groups": offsets,
    "Fetch of 100,000 partitions": fetches,
}


def prepare(address: str) -> None:
    wire, kind = Wire(address), m.CreateTopicsRequest
    wanted = {
        "wide": (PARTITIONS, {}),
        "compacted": (1, {"cleanup.policy": "compact"}),
        "recompressed": (1, {"compression.type": "gzip"}),
    }
    topics = [
        kind.CreatableTopic(
            name=name,
            num_partitions=count,
            replication_factor=1,
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, (count, configs) in wanted.items()
    ]
    wire.call(kind(topics=topics, timeout_ms=60_000), 5)
    find_coordinator(wire, "innocent")
    commit = m.OffsetCommitRequest
    row = commit.OffsetCommitRequestTopic(
        name="wide", partitions=[commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    )
    for index in range(2000):
        wire.call(commit(group_id=f"g{index}", topics=[row]), 7)


def attack_of(name: str, address: str, seconds: float) -> None:
    ATTACKS[name](address, seconds)


def measured(name: str, target: Any, seconds: float) -> tuple[float, float]:
    """The longest wait in milliseconds, and by how many MB the broker grew."""
    context = multiprocessing.get_context("spawn")
    stop, result = context.Event(), context.Queue()
    innocent = context.Process(target=beat, args=(target.bootstrap_servers, stop, result))
    innocent.start()
    assert result.get(timeout=120) == "ready"
    before = most = resident_bytes(target.pid)
    attacker = context.Process(target=attack_of, args=(name, target.bootstrap_servers, seconds))
    attacker.start()
    while attacker.is_alive():
        most = max(most, resident_bytes(target.pid))
        attacker.join(0.05)
    stop.set()
    longest = result.get(timeout=300)
    innocent.join()
    return longest * 1000, (most - before) / 1e6


def run(options: argparse.Namespace) -> Iterator[Table]:
    waits = Table("The longest wait of an innocent member's heartbeat")
    memory = Table("What the broker grew by meanwhile")
    for side in options.sides:
        with running(side, CONFIG) as target:
            prepare(target.bootstrap_servers)
            for name in ATTACKS:
                longest_ms, grown_mb = measured(name, target, options.seconds)
                waits.put(side, name, longest_ms, "ms", goal="below 200 ms")
                memory.put(side, name, grown_mb, "MB", goal="below 100 MB")
    yield waits
    yield memory
