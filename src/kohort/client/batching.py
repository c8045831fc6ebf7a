"""Records into batches, batches into requests, answers into results: a producer without its connections. Pure.

One batch per partition is on its way at a time, so a retry can neither reorder nor double records; the batches behind
it fill up meanwhile. With idempotence the broker checks that as well: the sequence numbers are given out here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kohort.client.errors import KafkaTimeoutError
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import ProduceRequest
from kohort.records.batch import Header, Record, build_batch
from kohort.records.compression import Buffer, Compression
from kohort.records.encode_plain import encode_plain
from kohort.records.encoded import EncodedRecords

RECORD_OVERHEAD = 21
HEADER_OVERHEAD = 10
BATCH_OVERHEAD = 61
MAX_SEQUENCE = 2**31
_tuple = tuple.__new__  # of a Record, without its call

# The broker knows nothing of our last sequence number: take a new producer id and number from 0.
_FORGOTTEN = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


@dataclass(frozen=True, slots=True)
class BatchingConfig:
    acks: int = -1
    batch_size: int = 262_144
    linger_ms: int = 5
    compression: Compression = Compression.NONE
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    max_request_size: int = 1_048_576
    idempotent: bool = True
    transactional_id: str | None = None


class ProducerId(NamedTuple):
    producer_id: int = -1
    epoch: int = -1


NO_PRODUCER_ID = ProducerId()


class Stored(NamedTuple):
    """Where a batch is in the log (-1 with acks=0); `log_append_time_ms` is -1 where the records' time counts."""

    base_offset: int
    log_append_time_ms: int = -1


class Batch:
    """Records of one partition that travel and succeed or fail together; `promise` is whatever the shell waits on.

    Either `records`, to which others may be added until it is sent, or such as are `encoded` already.
    Where the broker finds it too large it is sent in halves, each a batch whose `root` is the one that was promised.
    """

    __slots__ = (
        "attempts",
        "created_ms",
        "encoded",
        "not_before_ms",
        "open_parts",
        "parts",
        "promise",
        "records",
        "root",
        "sequence",
        "size",
        "start",
        "tp",
    )

    def __init__(self, tp: TopicPartition, now_ms: int, promise: Any) -> None:
        self.tp = tp
        self.created_ms = now_ms
        self.promise = promise
        self.records: list[Record] = []
        self.encoded: EncodedRecords | None = None
        self.size = BATCH_OVERHEAD
        self.sequence: int | None = None
        self.attempts = 0
        self.not_before_ms = 0
        self.root = self
        self.start = 0
        self.open_parts = 1
        self.parts: list[Part] = []

    @property
    def count(self) -> int:
        return len(self.records) if self.encoded is None else self.encoded.record_count

    @property
    def is_closed(self) -> bool:
        """Whether no record may be added any more."""
        return self.encoded is not None or self.sequence is not None or self.attempts > 0

    def halves(self) -> list[Batch]:
        if self.encoded is not None:
            self.records, self.encoded = self.encoded.records(), None
        middle = len(self.records) // 2
        made = []
        for start, records in ((0, self.records[:middle]), (middle, self.records[middle:])):
            half = Batch(self.tp, self.created_ms, None)
            half.root, half.start, half.attempts = self.root, self.start + start, self.attempts
            half.records = [record._replace(offset=place) for place, record in enumerate(records)]
            half.size += sum(record_size(r.key, r.value, r.headers) for r in records)
            half.sequence = None if self.sequence is None else (self.sequence + start) % MAX_SEQUENCE
            made.append(half)
        self.root.open_parts += 1
        return made


class Part(NamedTuple):
    """The records from place `start` of a batch on: where they are in the log, or why they are not."""

    start: int
    stored: Stored | None
    error: KafkaError | None


class Outcome(NamedTuple):
    """A batch that is done, part by part in the order of its records; one part unless the broker wanted it smaller."""

    batch: Batch
    parts: list[Part]

    @property
    def error(self) -> KafkaError | None:
        return next((part.error for part in self.parts if part.error is not None), None)


def record_size(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    """An upper bound of the bytes of a record before compression."""
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name) + len(content or b"")
    return size


class Batching:
    """`append` records, `drain` what can be sent, give back each answer with `answered` or `unanswered`."""

    def __init__(self, config: BatchingConfig, new_promise: Callable[[], Any]) -> None:
        self.config = config
        self.buffered_bytes = 0
        self.flushing = False
        self._new_promise = new_promise
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        self._in_flight: dict[TopicPartition, Batch] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._producer_id = NO_PRODUCER_ID
        self._id_wanted = config.idempotent
        # Partitions that the open transaction is known to hold; None where there are no transactions.
        self.enlisted: set[TopicPartition] | None = None if config.transactional_id is None else set()
        self.enlists_itself = False  # by being written to: TV2

    # -- records in ---------------------------------------------------------------------------------------------------

    def append(self, tp: TopicPartition, record: Record, size: int, now_ms: int) -> tuple[Batch, int, bool]:
        """The batch, the record's place in it, and whether there is something new to send or to wait for."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = deque()
        batch, limit = queue[-1] if queue else None, self.config.batch_size
        news = False
        if batch is None or batch.is_closed or batch.size + size > limit:
            batch = Batch(tp, now_ms, self._new_promise())
            queue.append(batch)
            news = True
        records = batch.records
        place = len(records)
        records.append(_tuple(Record, (place, *record[1:])) if place else record)
        batch.size += size
        self.buffered_bytes += size
        return batch, place, news or batch.size >= limit

    def append_encoded(self, tp: TopicPartition, encoded: EncodedRecords, now_ms: int) -> tuple[Batch, bool]:
        """A whole batch, which waits for nothing but those before it; and whether to `drain`: none is on its way, after
        which that would be done anyhow."""
        batch = Batch(tp, now_ms, self._new_promise())
        batch.encoded = encoded
        batch.size += encoded.size
        self.buffered_bytes += encoded.size
        self._queues.setdefault(tp, deque()).append(batch)
        return batch, tp not in self._in_flight

    @property
    def pending(self) -> int:
        """Batches that are not done."""
        return len(self._in_flight) + sum(map(len, self._queues.values()))

    def promises(self) -> list[Any]:
        """Of all batches that are not done."""
        batches = [*self._in_flight.values(), *(batch for queue in self._queues.values() for batch in queue)]
        return list({id(batch.root): batch.root.promise for batch in batches}.values())

    # -- requests out -------------------------------------------------------------------------------------------------

    @property
    def wants_producer_id(self) -> bool:
        """A new id may be asked for once nothing is left that was numbered under the old one."""
        return self._id_wanted and not self._numbered()

    def _numbered(self) -> bool:
        return bool(self._in_flight) or any(q and q[0].sequence is not None for q in self._queues.values())

    def use_producer_id(self, producer_id: ProducerId) -> None:
        self._producer_id = producer_id
        self._id_wanted = False
        self._sequences.clear()

    def drain(self, now_ms: int, leaders: Mapping[TopicPartition, int]) -> dict[int, list[Batch]]:
        """Batches to send now, by the node that leads their partition; each is in flight from here on."""
        by_node: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        for tp, queue in self._queues.items():
            if not queue or tp in self._in_flight or not self._due(queue, now_ms):
                continue
            if self.enlisted is not None and not self.enlists_itself and tp not in self.enlisted:
                continue
            batch, node_id = queue[0], leaders.get(tp, -1)
            if node_id < 0 or not self._number(batch):
                continue
            if sizes.get(node_id, 0) + batch.size > self.config.max_request_size and node_id in by_node:
                continue
            sizes[node_id] = sizes.get(node_id, 0) + batch.size
            batch.attempts += 1
            if self.enlisted is not None:
                self.enlisted.add(tp)
            self._in_flight[tp] = queue.popleft()
            by_node.setdefault(node_id, []).append(batch)
        return by_node

    def unenlisted(self) -> list[TopicPartition]:
        """Partitions that have to be in the transaction before anything is sent to them."""
        if self.enlisted is None or self.enlists_itself:
            return []
        return [tp for tp, queue in self._queues.items() if queue and tp not in self.enlisted]

    def drop_queued(self, error: KafkaError) -> list[Outcome]:
        """Fail what is not on its way yet."""
        queued = [batch for queue in self._queues.values() for batch in queue]
        for queue in self._queues.values():
            queue.clear()
        return [outcome for batch in queued for outcome in self._done(batch, None, error)]

    def _due(self, queue: deque[Batch], now_ms: int) -> bool:
        first = queue[0]
        if first.attempts:
            return now_ms >= first.not_before_ms
        full = len(queue) > 1 or first.encoded is not None or first.size >= self.config.batch_size
        return full or self.flushing or now_ms >= first.created_ms + self.config.linger_ms

    def _number(self, batch: Batch) -> bool:
        if not self.config.idempotent or batch.sequence is not None:
            return True
        if self._id_wanted:
            return False
        batch.sequence = self._sequences.get(batch.tp, 0)
        self._sequences[batch.tp] = (batch.sequence + batch.count) % MAX_SEQUENCE
        return True

    def next_deadline(self) -> int | None:
        """When `drain` or `expire` has something to do again without any news."""
        due: list[int] = []
        for tp, queue in self._queues.items():
            if queue and tp not in self._in_flight:
                first = queue[0]
                due.append(first.not_before_ms if first.attempts else first.created_ms + self.config.linger_ms)
                due.append(first.created_ms + self.config.delivery_timeout_ms)
        return min(due, default=None)

    def request(self, batches: list[Batch]) -> ProduceRequest:
        topics: dict[str, list[Any]] = {}
        for batch in batches:
            data = self._encode(batch)
            entry = ProduceRequest.PartitionProduceData(index=batch.tp.partition, records=data)
            topics.setdefault(batch.tp.topic, []).append(entry)
        return ProduceRequest(
            transactional_id=self.config.transactional_id,
            acks=self.config.acks,
            timeout_ms=self.config.request_timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()
            ],
        )

    def _encode(self, batch: Batch) -> Buffer:
        producer = self._producer_id if batch.sequence is not None else NO_PRODUCER_ID
        sequence = -1 if batch.sequence is None else batch.sequence
        transactional = self.enlisted is not None
        if batch.encoded is not None:
            return batch.encoded.framed(*producer, sequence, transactional)
        plain = encode_plain(batch.records)
        if plain is not None:
            return plain.compressed(self.config.compression).framed(*producer, sequence, transactional)
        return build_batch(
            batch.records,
            compression=self.config.compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    # -- answers ------------------------------------------------------------------------------------------------------

    def answered(self, batches: list[Batch], response: Any, now_ms: int) -> list[Outcome]:
        """What the broker says about each; what may pass is queued again, in front."""
        rows = {
            TopicPartition(topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        outcomes: list[Outcome] = []
        for batch in batches:
            row = rows.get(batch.tp)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if row is None else ErrorCode.of(row.error_code)
            if row is not None and code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                outcomes += self._done(batch, Stored(row.base_offset, row.log_append_time_ms), None)
            else:
                text = (row.error_message if row is not None else None) or code.message
                outcomes += self._refused(batch, KafkaError(code, f"{batch.tp}: {text}"), now_ms)
        return outcomes

    def unacknowledged(self, batches: list[Batch]) -> list[Outcome]:
        """acks=0: sent is done."""
        return [outcome for batch in batches for outcome in self._done(batch, Stored(-1), None)]

    def unanswered(self, batches: list[Batch], error: KafkaError, now_ms: int) -> list[Outcome]:
        """The connection was lost: stored or not, nobody knows; the sequence numbers make a repetition harmless."""
        return [outcome for batch in batches for outcome in self._refused(batch, error, now_ms)]

    def failed(self, batches: list[Batch], error: KafkaError) -> list[Outcome]:
        """They could not even be sent."""
        return [outcome for batch in batches for outcome in self._done(batch, None, error)]

    def _refused(self, batch: Batch, error: KafkaError, now_ms: int) -> list[Outcome]:
        code = error.code
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._in_flight.pop(batch.tp, None)
            halves = batch.halves()
            self.buffered_bytes += sum(half.size - BATCH_OVERHEAD for half in halves) - (batch.size - BATCH_OVERHEAD)
            self._queues[batch.tp].extendleft(reversed(halves))
            return []
        if code in _FORGOTTEN and self.config.idempotent and self.enlisted is None:
            self._id_wanted = True
            for waiting in (batch, *self._queues[batch.tp]):
                waiting.sequence = None
            return self._again(batch, error, now_ms)
        if code.retriable and self.config.acks != 0:
            return self._again(batch, error, now_ms)
        return self._done(batch, None, error)

    def _again(self, batch: Batch, error: KafkaError, now_ms: int) -> list[Outcome]:
        if self._expired(batch, now_ms):
            return self._done(batch, None, self._too_late(batch, error))
        self._in_flight.pop(batch.tp, None)
        batch.not_before_ms = now_ms + self.config.retry_backoff_ms
        self._queues[batch.tp].appendleft(batch)
        return []

    def _too_late(self, batch: Batch, cause: KafkaError | None) -> KafkaError:
        seconds = self.config.delivery_timeout_ms / 1000
        why = f"the last answer was: {cause}" if cause else "no leader of it could be reached"
        return KafkaTimeoutError(f"{batch.count} records to {batch.tp} not stored within {seconds:g} s; {why}")

    def expire(self, now_ms: int) -> list[Outcome]:
        """Give up on what waited longer than delivery.timeout.ms."""
        outcomes: list[Outcome] = []
        for tp, queue in self._queues.items():
            while queue and tp not in self._in_flight and self._expired(queue[0], now_ms):
                batch = queue.popleft()
                outcomes += self._done(batch, None, self._too_late(batch, None))
        return outcomes

    def _expired(self, batch: Batch, now_ms: int) -> bool:
        return now_ms >= batch.created_ms + self.config.delivery_timeout_ms

    def _done(self, batch: Batch, stored: Stored | None, error: KafkaError | None) -> list[Outcome]:
        if self._in_flight.get(batch.tp) is batch:
            del self._in_flight[batch.tp]
        self.buffered_bytes -= batch.size - BATCH_OVERHEAD
        if error is not None and batch.sequence is not None and self.enlisted is None:
            self._id_wanted = True  # a gap in the numbers: begin anew under another id
        root = batch.root
        batch.encoded = None  # whoever waits for it needs its bytes no more
        root.parts.append(Part(batch.start, stored, error))
        root.open_parts -= 1
        return [] if root.open_parts else [Outcome(root, sorted(root.parts, key=lambda part: part.start))]

    def abandon(self, error: KafkaError) -> list[Outcome]:
        """Fail everything that is not done: the producer closes."""
        left = [*self._in_flight.values(), *(batch for queue in self._queues.values() for batch in queue)]
        self._queues.clear()
        return [outcome for batch in left for outcome in self._done(batch, None, error)]
