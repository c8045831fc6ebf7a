"""What is fuzzed: each target takes any bytes and must come back. An exception out of one is a bug.

Used by tests/fuzz, with hypothesis, and by tools/fuzz.py, with atheris.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from fuzz_sasl import sasl_messages_of_brokers, sasl_messages_of_clients
from kohort.broker.groups import GroupService
from kohort.coordinator.records import OFFSETS_TOPIC, UnknownRecord, decode
from kohort.coordinator.shard import Life
from kohort.protocol import messages, schema
from kohort.protocol.errors import ErrorCode
from kohort.protocol.frames import FrameSplitter, decode_response, parse_request_header
from kohort.protocol.wire import DecodeError
from kohort.records.batch import (
    Compression,
    Record,
    RecordsError,
    build_batch,
    iter_batches,
    read_header,
    read_records,
)
from kohort.records.compression import compress
from kohort.records.fetch import decode_records
from kohort.records.validate import Limits, TopicRules, is_sound, validate_produce
from wire import World, run_job

FRAME_LIMIT = 4096
REQUESTS = sorted(name for name in schema.message_names() if name.endswith("Request"))
GROUP = "fuzzed"


class InternalErrors(logging.Handler):
    """Remembers exceptions that the broker caught and logged: it lives on, but they are bugs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(logging.Formatter().format(record))


class no_internal_errors:
    """A context in which no exception is logged, and what else is logged is of no interest."""

    def __enter__(self) -> None:
        self._handler = InternalErrors()
        self._logger = logging.getLogger("kohort")
        self._logger.addHandler(self._handler)
        self._logger.propagate = False

    def __exit__(self, *exc: object) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate = True
        assert not self._handler.seen, self._handler.seen[0]


def frame_splitter(data: bytes) -> None:
    """However a stream is cut, the same frames come out, and never is more held back than one frame."""
    cuts = [1 + byte for byte in data[:8]]
    stream = data[8:]
    whole, outcome = _frames([stream])
    pieces, at = [], 0
    while at < len(stream):
        size = cuts[len(pieces) % len(cuts)]
        pieces.append(stream[at : at + size])
        at += size
    assert _frames(pieces) == (whole, outcome)
    for frame in whole:
        try:
            parse_request_header(frame)
        except DecodeError:
            pass


def _frames(pieces: list[bytes]) -> tuple[list[bytes], str]:
    splitter, found = FrameSplitter(FRAME_LIMIT), []
    try:
        for piece in pieces:
            for frame in splitter.feed(piece):
                found.append(frame)
            assert splitter.pending <= FRAME_LIMIT + 4 + len(piece)
    except DecodeError as error:
        return found, str(error)
    return found, ""


def request_codec(data: bytes) -> None:
    """A request that can be read is written back as the same request."""
    if len(data) < 2:
        return
    kind: Any = getattr(messages, REQUESTS[data[0] % len(REQUESTS)])
    version = kind.MIN_VERSION + data[1] % (kind.MAX_VERSION - kind.MIN_VERSION + 1)
    try:
        message = kind.decode(data, version, 2)
    except DecodeError:
        return
    written = message.encode(version)
    assert kind.decode(written, version).encode(version) == written


def record_batches(data: bytes) -> None:
    """Any bytes as a fetch, and with a right length and checksum so that the records are looked at too."""
    for fetch in (data, resealed(data)):
        for read in (_read_all, decode_records, _validate):
            try:
                read(fetch)
            except RecordsError:
                pass


def _read_all(fetch: bytes) -> None:
    for pos, header in iter_batches(fetch):
        read_records(fetch, pos, header, max_size=1 << 20)


def _validate(fetch: bytes) -> None:
    validate_produce(fetch, version=9, rules=TopicRules(now_ms=1_000, compacted=True, max_message_bytes=1 << 15))


def record_bodies(data: bytes) -> None:
    """The records of a batch that is sound otherwise, in any codec: what a broker takes, every consumer can read."""
    count, codec = (data[0] % 8, Compression(data[1] % 5)) if len(data) > 1 else (1, Compression.NONE)
    head = bytearray(build_batch([Record(count - 1 if count else 0, 1_000, b"k", b"v")], compression=codec)[:61])
    head[23:27] = max(count - 1, 0).to_bytes(4, "big")
    head[57:61] = count.to_bytes(4, "big")
    batch = resealed(bytes(head) + bytes(compress(codec, data[2:])))
    for compacted in (False, True):
        try:
            validate_produce(batch, version=9, rules=TopicRules(now_ms=1_000, compacted=compacted))
        except RecordsError:
            taken = False
        else:
            taken = True
            read = read_records(batch, 0, read_header(batch))
            assert [record.offset for record in read] == list(range(count))
            assert decode_records(batch) == decode_records(batch, use_kernel=False) == read
        sound = is_sound(batch, 1_000, Limits(1 << 20, 1 << 40, 3_600_000, compacted))
        assert taken or not sound, "the quick check is no laxer than the whole one"


def resealed(batch: bytes) -> bytes:
    if len(batch) < 61:
        return batch
    batch = batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:16] + b"\2" + batch[17:]
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def coordinator_record(data: bytes) -> None:
    """A key and a value of `__consumer_offsets`."""
    size = data[0] if data else 0
    try:
        decode(data[1 : 1 + size], data[1 + size :] or None)
    except UnknownRecord:
        pass


class GroupWorld(World):
    """A broker with groups, whose offsets topic has one partition."""

    def __init__(self, store: Any = None) -> None:
        config = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
        super().__init__(config, store=store, groups=GroupService)
        if "t" not in self.core.topics.by_name:
            self.create_topic("t")

    def load(self) -> None:
        """Let it read its groups; it must come to an end."""
        self.turn()
        for _ in range(10_000):
            due_ms = self.core.next_wait()
            if due_ms is None or due_ms > self.now_ms:
                return
            self.advance(0)
        raise AssertionError("loading does not end")

    def serves_groups(self) -> None:
        client = self.connect()
        client.call(messages.FindCoordinatorRequest(key=GROUP), 2)
        kind = messages.OffsetCommitRequest
        row = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = kind(group_id=GROUP, topics=[kind.OffsetCommitRequestTopic(name="t", partitions=[row])])
        code = client.call(request, 8).topics[0].partitions[0].error_code
        shard = self.groups.coordinator.runtime.shards[0]
        if shard.life is Life.FAILED:  # it cannot be read whole, and says why
            assert shard.failure and code == ErrorCode.NOT_COORDINATOR, code
        else:  # What was loaded may be a group of this name with members.
            assert code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), code


def offsets_loader(data: bytes) -> None:
    """`__consumer_offsets` with these bytes in it: as records, and as a batch of nonsense with a right checksum."""
    world = GroupWorld()
    world.connect().call(messages.FindCoordinatorRequest(key=GROUP), 2)
    log = world.core.topics.by_name[OFFSETS_TOPIC].partitions[0].log
    size = data[0] if data else 0
    records = [Record(0, 1_000, data[1 : 1 + size], data[1 + size :]), Record(1, 1_000, data[1 + size :], data[:size])]
    nonsense = build_batch([], last_offset=1, max_timestamp=0) + data
    nonsense = resealed(nonsense[:57] + (2).to_bytes(4, "big") + nonsense[61:])
    for batch in (build_batch(records), nonsense):
        log.append(batch, leader_epoch=0, now_ms=world.now_ms)
    again = GroupWorld(world.store)
    with no_internal_errors():
        again.load()
        again.serves_groups()


class Served:
    """A broker that has seen much: frames go to it one after the other, and another client must notice nothing."""

    def __init__(self) -> None:
        self.world = GroupWorld()
        self.world.create_topic("orders", 2)
        self.client = self.world.connect()
        self.good = self.world.connect()
        self.good.call(messages.FindCoordinatorRequest(key=GROUP), 2)

    def frame(self, frame: bytes) -> None:
        if self.client.connection.closed:
            self.world.core.connection_lost(self.client.connection)
            self.client = self.world.connect()
        with no_internal_errors():
            self.client.send_raw(frame)
            self._turn()
            self.good.call(messages.MetadataRequest(topics=[]), 9)

    def _turn(self) -> None:
        """Answers to what is not known to have been asked are not decoded."""
        connection = self.client.connection
        for done in self.world.core.flush(self.world.now_ms):
            if done is connection:
                connection.take_output()
            else:
                done.shell.deliver()
        while (jobs := self.world.core.take_jobs()) or self.world.core.busy:
            for job in jobs:
                run_job(self.world.core, job, self.world.now_ms)
            self.world.core.flush(self.world.now_ms)
        connection.take_output()
        if len(connection.pending) > 100:
            connection.close("enough is waiting")

    def time_passes(self, ms: int) -> None:
        with no_internal_errors():
            self.world.now_ms += ms
            self.world.core.on_time(self.world.now_ms)
            self._turn()


def broker_frames(data: bytes) -> None:
    """Frames, each with a size of two bytes before it, to one broker; then an hour passes."""
    served = Served()
    at = 0
    while at + 2 <= len(data):
        (size,) = struct.unpack_from(">H", data, at)
        served.frame(data[at + 2 : at + 2 + size])
        at += 2 + size
    served.time_passes(3_600_000)
    served.world.connect().call(messages.MetadataRequest(topics=None), 9)


def response_codec(data: bytes) -> None:
    """What a client makes of an answer."""
    if len(data) < 2:
        return
    kind: Any = getattr(messages, REQUESTS[data[0] % len(REQUESTS)].replace("Request", "Response"))
    version = kind.MIN_VERSION + data[1] % (kind.MAX_VERSION - kind.MIN_VERSION + 1)
    try:
        decode_response(data[2:], version, kind)
    except DecodeError:
        pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        frame_splitter,
        request_codec,
        response_codec,
        record_batches,
        record_bodies,
        sasl_messages_of_clients,
        sasl_messages_of_brokers,
        coordinator_record,
        offsets_loader,
        broker_frames,
    )
}
