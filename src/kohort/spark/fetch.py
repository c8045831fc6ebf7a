"""A task's read: offsets [first, stop) of partitions, from leaders or near replicas, to Arrow; stateless and blocking.

The next Fetch, of the same partition or of the task's next, is on its way while the last is decoded. Leader changes,
broker restarts and damaged answers are retried from the next offset; every offset is accounted for (accounting.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kohort.client.blocking import BlockingTransport
from kohort.client.config import Config
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FetchRequest
from kohort.records.errors import RecordsError
from kohort.spark import opening
from kohort.spark.accounting import Account, DataLossError
from kohort.spark.cluster import READ_COMMITTED, Cluster, Retry, TopicGone, is_transient
from kohort.spark.connection import POOL
from kohort.spark.offsets import EARLIEST, Piece

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.spark")

ROWS_PER_BATCH = 65_536
"""Arrow batches of 16k to 64k rows pass to the JVM fastest."""
UNKNOWN_RECORD_BYTES = 1024
SPARE_FETCH_BYTES = 64 * 1024
FIRST_FETCH_BYTES = 1024 * 1024
"""A task's first fetch is small: Spark and this process have nothing to do until it has come."""
GONE_PATIENCE_MS = 10_000
"""A new topic is not known to every broker at once; one missing for this long does not exist."""
GONE_EVERYWHERE_SECONDS = 1.0
"""And one of which no broker knows, all of them asked, not even for this long."""
_GONE = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip

_clusters: dict[tuple[tuple[str, str], ...], Cluster] = {}
_gone_since: dict[tuple[str, str], float] = {}
"""Topics and their ids of which no broker knows any more: what was planned of them need not wait once more."""
_record_bytes: dict[str, float] = {}
"""What a record of a topic took in earlier reads of this process: the better guess, the less is fetched in vain."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything an executor needs; travels pickled."""

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...]
    settings: Mapping[str, Any]
    fail_on_data_loss: bool
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """In Kafka's base64: offsets are those of a topic with this id, whatever has its name by now."""
    rows_per_batch: int = ROWS_PER_BATCH


def cluster_for(settings: Mapping[str, Any]) -> Cluster:
    """The view of the cluster this process keeps between tasks."""
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    if key not in _clusters:
        _clusters[key] = Cluster(Config(settings))
    return _clusters[key]


def read(task: ReadTask) -> Iterator[pa.RecordBatch]:
    cluster = cluster_for(task.settings)
    readers = [RangeReader(task, piece, cluster) for piece in task.pieces]
    for reader, following in pairwise(readers):
        reader.following = following
    try:
        opening.open_together(readers, cluster)
        for number, reader in enumerate(readers):
            yield from reader.batches(FIRST_FETCH_BYTES if number == 0 else None)
    finally:
        for reader in readers:
            reader.close()


class RangeReader:
    """One pass over one range."""

    def __init__(self, task: ReadTask, piece: Piece, cluster: Cluster) -> None:
        self.following: RangeReader | None = None
        """What the task reads next."""
        self._task, self._cluster, self._config = task, cluster, cluster.config
        self.partition = TopicPartition(piece.topic, piece.partition)
        self.topic_id = task.topic_ids.get(piece.topic, "")
        self.given: Any = None
        """The answer to what was asked for with other ranges."""
        self._account = Account(self.partition, piece.first, piece.stop)
        self._isolation = opening.isolation(self._config)
        self._size_limit: int = self._config["max.partition.fetch.bytes"]
        self._connection: BlockingTransport | None = None
        self._rack: str = self._config["client.rack"]
        """Sent so that the leader can name a nearer replica (KIP-392); not any more once that one was of no use."""
        self._at_replica = False
        self._asked_for: int | None = None
        self._retry: Retry | None = None

    # -- the loop ------------------------------------------------------------------------------------------------------

    def batches(self, first_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """`first_bytes` limits the first fetch."""
        account = self._account
        self._size_limit = min(first_bytes or self._size_limit, self._size_limit)
        while not account.complete:
            first = account.next_offset
            try:
                answer = self._fetch()
                if answer is None:
                    continue
                if not account.walk(answer.records or b""):
                    self._nothing_there(answer)
                    continue
                self._retry = None
                self._ask_ahead()
                yield from self._decode(answer, first)
            except RecordsError as error:
                # Rows of this answer may have gone out already: the task as a whole is to be repeated, as Spark does.
                raise RuntimeError(f"{self.partition} near offset {first} cannot be decoded: {error}") from error
            except KafkaError as error:
                self._again(error)
        self._settle()

    def _fetch(self) -> Any | None:
        """The partition's part of the answer; None where the position changed instead."""
        if self.given is not None:
            answer, self.given = self.given, None
            return answer
        if self._asked_for != self._account.next_offset:
            self._release()
            self._ask(self._account.next_offset)
        assert self._connection is not None
        response = self._connection.receive()
        self._asked_for = None
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        answer = response.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return None
        if answer.preferred_read_replica >= 0 and not answer.records:
            self._go_to_replica(answer.preferred_read_replica)
            return None
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise KafkaError(code, f"fetch of {self.partition}: {code.message}")
        return answer

    def _ask_ahead(self) -> None:
        """The rows just received are not handed out yet: whatever goes wrong here is met again by the next fetch."""
        reader: RangeReader | None = self
        if self._account.complete:
            self._release()
            _record_bytes[self.partition.topic] = self._account.bytes_per_record
            reader = self.following
        if reader is not None and reader.given is None:
            try:
                reader._ask(reader._account.next_offset)
            except KafkaError:
                reader._release()

    def _ask(self, offset: int) -> None:
        if self._connection is None:
            replica = self._cluster.replica(self.partition) if self._rack else None
            self._at_replica = replica is not None
            host, port = replica or self._cluster.leader(self.partition)
            self._connection = POOL.take(host, port, self._config)
        opening.ask(self._connection, [self], self._config, rack=self._rack)
        self._size_limit = self._config["max.partition.fetch.bytes"]
        self._asked_for = offset

    @property
    def expected_bytes(self) -> int:
        return self._account.bytes_left(_record_bytes.get(self.partition.topic, UNKNOWN_RECORD_BYTES))

    def wanted(self) -> FetchRequest.FetchPartition:
        return FetchRequest.FetchPartition(
            partition=self.partition.partition,
            fetch_offset=self._account.next_offset,
            partition_max_bytes=min(self.expected_bytes + SPARE_FETCH_BYTES, self._size_limit),
        )

    def _decode(self, answer: Any, first: int) -> Iterator[pa.RecordBatch]:
        from kohort.records.columns import decode_batches

        aborted = [(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()]
        yield from decode_batches(
            answer.records,
            first,
            self._account.stop,
            topic=self.partition.topic,
            partition=self.partition.partition,
            columns=self._task.columns,
            aborted=aborted if self._isolation == READ_COMMITTED else (),
            check_crc=self._config["check.crcs"],
            max_rows=self._task.rows_per_batch,
        )

    # -- what can go wrong ---------------------------------------------------------------------------------------------

    def _again(self, error: Exception) -> None:
        """Wait and look for the leader again, or give up."""
        if self._at_replica and is_transient(error):
            self._back_to_leader(str(error))
            return
        self._release()
        self._cluster.forget(self.partition)
        gone = isinstance(error, TopicGone) or getattr(error, "code", None) in _GONE
        if not is_transient(error):
            raise error
        if gone and self._is_gone_everywhere():
            self._gone()
            return
        if self._retry is None:
            self._retry = Retry(self._config, GONE_PATIENCE_MS if gone else None)
            log.warning("%s at offset %d: %s; trying again", self.partition, self._account.next_offset, error)
        try:
            self._retry.wait(error)
        except KafkaError:
            if not gone:
                raise
            self._gone()

    def _is_gone_everywhere(self) -> bool:
        """Whether every broker has said, for a while, that there is no such topic any more."""
        key = (self.partition.topic, self.topic_id)
        ids = self._cluster.ids_everywhere(self.partition.topic)
        if ids is None or (self.topic_id in ids if self.topic_id else ids != {""}):
            _gone_since.pop(key, None)
            return False
        return time.monotonic() - _gone_since.setdefault(key, time.monotonic()) >= GONE_EVERYWHERE_SECONDS

    def _gone(self) -> None:
        ids = (self._cluster.ids_everywhere(self.partition.topic) or set()) - {"", self.topic_id}
        why = "(any more)"
        if self.topic_id:
            then = f", and created again as {', '.join(sorted(ids))}" if ids else " after this batch was planned"
            why = f"as topic {self.topic_id} any more: it was deleted{then}"
        left = f"offsets [{self._account.next_offset}, {self._account.stop}) of this batch are gone with it"
        self._lost(f"{self.partition} does not exist {why}; {left}", self._account.stop)

    def _go_to_replica(self, node_id: int) -> None:
        self._release()
        if not self._cluster.prefer(self.partition, node_id):
            self._back_to_leader(f"node {node_id} is not known")

    def _back_to_leader(self, why: str) -> None:
        """For the rest of the range. What a follower lacks is no loss: it may be behind."""
        log.info("%s: reading from the leader instead of a near replica: %s", self.partition, why)
        self._rack = ""
        self._release()
        self._cluster.forget(self.partition)

    def _nothing_there(self, answer: Any) -> None:
        """An answer without a whole batch: the end of the log lies before the end of the range, for now or for good."""
        if self._at_replica:
            self._back_to_leader(f"it has nothing at offset {self._account.next_offset} yet")
            return
        if self._retry is None:
            self._retry = Retry(self._config, self._config["request.timeout.ms"])
        end = answer.last_stable_offset if self._isolation == READ_COMMITTED else answer.high_watermark
        cause = KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.partition}: nothing at offset {self._account.next_offset}, the log ends at {end}",
        )
        try:
            self._retry.wait(cause)
        except KafkaError as error:
            self._lost(str(error), self._account.stop)

    def _out_of_range(self) -> None:
        if self._at_replica:
            self._back_to_leader(f"it does not have offset {self._account.next_offset}")
            return
        limits = self._cluster.list_offsets({self.partition: EARLIEST})
        start = limits.get(self.partition)
        position = self._account.next_offset
        if start is not None and start > position:
            reason = f"{self.partition}: offsets [{position}, {start}) were deleted before they were read (retention)"
            self._lost(reason, min(start, self._account.stop))
        else:
            reason = f"{self.partition}: the log ends before offset {position}: it was truncated or created anew"
            self._lost(reason, self._account.stop)

    def _lost(self, reason: str, go_on_at: int) -> None:
        if self._task.fail_on_data_loss:
            raise DataLossError(f"{reason}. Set failOnDataLoss=false to go on with what there is")
        log.warning("%s; going on at %d, as failOnDataLoss=false says", reason, go_on_at)
        self._account.next_offset = go_on_at
        self._retry = None

    def _settle(self) -> None:
        """All offsets were seen or have a reason."""
        account = self._account
        harmless, loss = account.explain_gaps(lambda: self._cluster.cleanup_policy(self.partition.topic))
        if loss:
            self._lost(loss, account.stop)
        elif harmless:
            log.info(harmless)
        if account.markers or account.compacted:
            log.debug(
                "%s: %d transaction markers, %d compacted records", self.partition, account.markers, account.compacted
            )

    # -- the connection ------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Back to the pool, or closed where an answer is still under way."""
        if self._connection is not None:
            POOL.give_back(self._connection, self._config)
        self._connection = self._asked_for = None
        self._at_replica = False

    def close(self) -> None:
        self._release()
