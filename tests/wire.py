"""Helpers for tests that speak the protocol themselves: to a core without sockets, or to a live broker over one."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

from kohort.broker.config import BrokerConfig
from kohort.broker.connection import Connection
from kohort.broker.core import Core
from kohort.broker.transactions import TransactionService
from kohort.protocol import messages
from kohort.protocol.frames import FrameSplitter, decode_response, encode_request
from kohort.records.batch import Compression, Record, build_batch
from kohort.storage.store import MemoryStore, Store


def batch(*values: bytes, timestamp: int = 1000, compression: Compression = Compression.NONE, **options: Any) -> bytes:
    """A record batch of these values."""
    records = [Record(i, timestamp + i, None, value) for i, value in enumerate(values)]
    return build_batch(records, compression=compression, **options)


def response_class(request: Any) -> Any:
    return getattr(messages, type(request).__name__.removesuffix("Request") + "Response")


def run_job(core: Core, job: Any, now_ms: int) -> None:
    """As a shell does: what goes wrong elsewhere is the job's to judge."""
    failed = None
    try:
        job.run()
    except Exception as error:
        failed = error
    core.job_done(job, failed, now_ms)


class World:
    """A core with virtual time. `turn()` is a turn of the loop; jobs run in it, on this thread."""

    def __init__(self, config: dict[str, Any] | None = None, store: Store | None = None, groups: Any = None) -> None:
        self.now_ms = 1_000_000
        self.store = store or MemoryStore()
        generator = random.Random(7)
        self.core = Core(
            BrokerConfig(config),
            self.store,
            random_bytes=generator.randbytes,
            services=[*([groups] if groups is not None else []), TransactionService],
            wake=lambda: None,
        )
        self.core.host, self.core.port = "broker", 9092
        self.core.start(self.now_ms)
        self.run_jobs = True

    @property
    def groups(self) -> Any:
        return self.core.service("groups")

    def connect(self, host: str = "10.0.0.1") -> CoreClient:
        return CoreClient(self, host)

    def turn(self) -> None:
        for connection in self.core.flush(self.now_ms):
            connection.shell.deliver()
        while self.run_jobs and ((jobs := self.core.take_jobs()) or self.core.busy):
            for job in jobs:
                run_job(self.core, job, self.now_ms)
            for connection in self.core.flush(self.now_ms):
                connection.shell.deliver()

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.core.on_time(self.now_ms)
        self.turn()

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Any:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        return self.core.topics.create(name, partitions, overrides)


class CoreClient:
    """One connection to the core of a world."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.connection = Connection(host, self)
        self.splitter = FrameSplitter()
        self.sent: dict[int, tuple[Any, int]] = {}
        self.order: list[int] = []
        self.answers: list[Any] = []
        self._correlation_id = 0

    def send(self, request: Any, version: int) -> int:
        """Hand a request to the core; its answer comes with a turn."""
        self._correlation_id += 1
        self.sent[self._correlation_id] = (response_class(request), version)
        frame = b"".join(map(bytes, encode_request(self._correlation_id, "test", version, request)))
        self.world.core.receive(self.connection, frame[4:], self.world.now_ms)
        return self._correlation_id

    def send_raw(self, frame: bytes) -> None:
        self.world.core.receive(self.connection, frame, self.world.now_ms)

    def deliver(self) -> None:
        for part in self.connection.take_output():
            for frame in self.splitter.feed(bytes(part)):
                correlation_id = struct.unpack_from(">i", frame)[0]
                kind, version = self.sent[correlation_id]
                self.order.append(correlation_id)
                self.answers.append(decode_response(frame, version, kind))

    def call(self, request: Any, version: int) -> Any:
        """Send, take a turn, and return the one answer."""
        before = len(self.answers)
        self.send(request, version)
        self.world.turn()
        assert len(self.answers) == before + 1, f"no answer to {request}"
        return self.answers[-1]

    def produce(self, topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 11) -> Any:
        """Produce one batch; returns the row of its partition."""
        return (
            self.call(produce_request(topic, data, partition=partition, acks=acks), version)
            .responses[0]
            .partition_responses[0]
        )


def produce_request(topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1) -> Any:
    kind = messages.ProduceRequest
    row = kind.PartitionProduceData(index=partition, records=data)
    return kind(acks=acks, timeout_ms=1000, topic_data=[kind.TopicProduceData(name=topic, partition_data=[row])])


def fetch_request(topic: str | bytes, *offsets: int, **options: Any) -> Any:
    """A fetch of partitions 0, 1, ... of a topic (by name or id) from these offsets."""
    kind = messages.FetchRequest
    limit = options.pop("partition_max_bytes", 1 << 20)
    extra = {name: options.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in options}
    rows = [
        kind.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=limit, **extra)
        for index, offset in enumerate(offsets)
    ]
    named = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26} | options
    return kind(topics=[kind.FetchTopic(partitions=rows, **named)] if offsets else [], **options)


class WireClient:
    """One socket to a live broker."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 30)
        self._correlation_id = 0

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def send(self, request: Any, version: int) -> int:
        self._correlation_id += 1
        self.socket.sendall(b"".join(map(bytes, encode_request(self._correlation_id, "test", version, request))))
        return self._correlation_id

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, request: Any, version: int) -> Any:
        correlation_id = self.send(request, version)
        frame = self.receive_frame()
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        return decode_response(frame, version, response_class(request))

    def closed_by_peer(self) -> bool:
        """Whether the broker closes the connection (waits for it)."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def closes_at_once(self) -> bool:
        self.socket.settimeout(0.2)
        try:
            return self.closed_by_peer()
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError("the broker closed the connection")
            data += chunk
        return bytes(data)
