"""Fetch: whole batches by reference, now or when there are enough of them or the wait is over.

A fetch is set up once (its session, its partitions), then tried: at once, whenever one of its partitions grows, and at
its deadline. Sessions themselves are in `fetch_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from kohort.broker import leaders
from kohort.broker.epochs import epoch_end, epoch_error
from kohort.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchPartition, FetchSession, Key
from kohort.broker.throttling import fetch_wait_ms
from kohort.broker.topics import Partition
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.storage.cold_segment import NotInMemory
from kohort.storage.errors import StorageError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

MANY_PARTITIONS = 5_000
PARTITIONS_AT_ONCE = 500
_READ_COMMITTED = 1
_TOPIC_IDS_SINCE = 13
_LEADER_SINCE = 16
_NO_RECORDS = b""
STORE_WAIT_MS = 5_000
"""So long a fetch waits for the store of a cluster; then clients are told to ask again."""


class PendingFetch:
    """One fetch until it is answered. A Waiter of the purgatory."""

    __slots__ = (
        "_resolved",
        "asked",
        "call",
        "committed",
        "connection",
        "core",
        "done",
        "full",
        "max_bytes",
        "min_bytes",
        "session",
        "session_epoch",
        "waits_for_store",
    )

    def __init__(self, core: Core, call: Call, request: Any, asked: list[FetchPartition]) -> None:
        self.core = core
        self.call = call
        self.connection = call.connection
        self.asked: Iterable[FetchPartition] = asked
        self.committed = request.isolation_level == _READ_COMMITTED
        self.max_bytes = min(request.max_bytes, core.config["fetch.max.bytes"])
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.full = False
        self.session: FetchSession | None = None
        self.session_epoch = 0
        self.done = False
        self.waits_for_store = False
        self._resolved: list[Partition] = []

    def partitions(self) -> list[Partition]:
        return self._resolved

    def try_complete(self, now_ms: int, expired: bool) -> bool:
        if self.connection.close_reason is not None:
            return True
        if self.waits_for_store and not expired:
            return False
        read = Read(self)
        read.some(self.asked)
        if not (expired or read.urgent or read.size >= self.min_bytes):
            return False
        rows = Rows(self.call.version)
        rows.add(read.results)
        self.answer(read, rows, now_ms)
        return True

    def answer(self, read: Read, rows: Rows, now_ms: int) -> None:
        response = messages.FetchResponse()
        session = self.session
        if session is not None:
            response.session_id = session.session_id
            if session.epoch != self.session_epoch:
                # A second request of the same epoch overtook this one: the client has started over.
                response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
                self.core.reply(self.call, response)
                return
        response.responses = list(rows.topics.values())
        if self.core.quotas.active and (wait_ms := fetch_wait_ms(self.core, self.call, read.size)):
            session_id = NO_SESSION if session is None else session.session_id
            self.core.reply(self.call, messages.FetchResponse(session_id=session_id, throttle_time_ms=wait_ms))
            return
        if read.leaders:
            response.node_endpoints = leaders.endpoints(self.core, response.NodeEndpoint, read.leaders)
        read.remember(session)
        if self.full:
            response.session_id = self.core.fetch_sessions.create(
                [asked for asked, _ in read.results], self.call.version >= _TOPIC_IDS_SINCE, now_ms
            )
        if rows.count > MANY_PARTITIONS:
            self.core.long_work.encode(self.call, response)
        else:
            self.core.reply(self.call, response)


class Read:
    """One look at all partitions of a fetch, in order, within its limits."""

    __slots__ = ("_fetch", "_first", "_left", "leaders", "results", "size", "urgent")

    def __init__(self, fetch: PendingFetch) -> None:
        self._fetch = fetch
        self._left = fetch.max_bytes
        self._first = True
        self.size = 0
        self.urgent = False
        self.leaders: dict[int, None] = {}  # that the answer names (KIP-951)
        self.results: list[tuple[FetchPartition, Any]] = []

    def some(self, partitions: Iterable[FetchPartition]) -> None:
        session = self._fetch.session
        for asked in partitions:
            if session is not None and _is_quiet(asked):
                continue
            row = self._row(asked)
            if session is None or _has_news(asked, row):
                self.results.append((asked, row))

    def remember(self, session: FetchSession | None) -> None:
        """What the client now knows; partitions that gave records go last, so that none starves."""
        for asked, row in self.results:
            asked.high_watermark = -1 if row.error_code else row.high_watermark
            asked.log_start_offset = row.log_start_offset
            if row.records:
                asked.partition.bytes_out += sum(map(len, row.records))  # type: ignore[union-attr]
                if session is not None:
                    session.partitions.move_to_end(asked.key)

    def _row(self, asked: FetchPartition) -> Any:
        partition = asked.partition
        if partition is None or partition.deleted:
            self.urgent = self.urgent or partition is not None
            row = _error(asked, _unknown(self._fetch.core, asked))
            row.aborted_transactions = []
            return row
        if not partition.leads:
            self.urgent = True
            return self._led_elsewhere(asked, partition)
        log = partition.log
        row_of = messages.FetchResponse.PartitionData
        if asked.current_leader_epoch >= 0 and (error := epoch_error(partition, asked.current_leader_epoch)):
            self.urgent = True
            row = _error(asked, error)
            if error == ErrorCode.FENCED_LEADER_EPOCH and self._fetch.call.version >= _LEADER_SINCE:
                self._show_leader(row, partition)
            return row
        if asked.last_fetched_epoch >= 0 and (diverging := _diverging(partition, asked)):
            self.urgent = True
            return diverging
        end = log.high_watermark
        limit = log.last_stable_offset if self._fetch.committed else end
        offset = asked.fetch_offset
        records: Any = _NO_RECORDS
        if offset < limit:
            try:
                records = self._records(log, offset, asked.max_bytes, limit if limit != log.end_offset else None)
            except NotInMemory as error:  # it was, and others needed the room: the client asks again
                self.urgent = True
                if self._fetch.waits_for_store:
                    return _error(asked, self._storage_error(error))
            except KafkaError as error:
                self.urgent = True
                return _error(asked, self._storage_error(error))
        elif offset > log.end_offset:
            self.urgent = True
            return _error(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
        row = row_of(
            partition_index=asked.index,
            high_watermark=end,
            last_stable_offset=limit if self._fetch.committed else log.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=records,
        )
        if self._fetch.committed:
            row.aborted_transactions = _aborted(log, offset, limit) if records else []
        return row

    def _led_elsewhere(self, asked: FetchPartition, partition: Partition) -> Any:
        row = _error(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leaders.is_known_elsewhere(self._fetch.core, partition) and self._fetch.call.version >= _LEADER_SINCE:
            self._show_leader(row, partition)
        return row

    def _show_leader(self, row: Any, partition: Partition) -> None:
        leader_id = self._fetch.core.leader_of(partition)
        self.leaders[leader_id] = None
        row.current_leader = messages.FetchResponse.LeaderIdAndEpoch(
            leader_id=leader_id, leader_epoch=partition.leader_epoch
        )

    def _records(self, log: Any, offset: int, max_bytes: int, max_offset: int | None) -> Any:
        parts = log.read(offset, min(max_bytes, self._left), max_offset=max_offset, at_least_one=self._first)
        if not parts:
            return _NO_RECORDS
        size = sum(map(len, parts))
        self.size += size
        self._left = max(self._left - size, 0)
        self._first = False
        return parts

    def _storage_error(self, error: KafkaError) -> ErrorCode:
        """Clients before version 6 do not know KAFKA_STORAGE_ERROR, but look for another leader on this one."""
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR and self._fetch.call.version <= 5:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error.code


def handle(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    by_id = call.version >= _TOPIC_IDS_SINCE
    if sum([len(topic.partitions) for topic in request.topics]) > MANY_PARTITIONS:
        return _handle_many(core, call, request, by_id, now_ms)
    asked = list(_asked(request, by_id))
    fetch = PendingFetch(core, call, request, asked)
    try:
        _set_up_session(core, fetch, request, asked, by_id, now_ms)
    except KafkaError as error:
        return messages.FetchResponse(error_code=error.code)
    fetch._resolved = _resolve(core, fetch.asked)
    cold = _cold_reads(fetch)
    if cold:
        core.run_elsewhere(WarmUp(fetch, cold, request.max_wait_ms))
        if core.membership is not None:
            fetch.waits_for_store = True
            core.purgatory.park(fetch, now_ms + STORE_WAIT_MS)
    else:
        _first_try(fetch, request.max_wait_ms, now_ms)
    return None


def _asked(request: Any, by_id: bool) -> Iterator[FetchPartition]:
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield FetchPartition(name, partition)


def _handle_many(core: Core, call: Call, request: Any, by_id: bool, now_ms: int) -> Steps:
    """More than a turn has time for: in slices, and answered as soon as it is through."""
    yield
    fetch = PendingFetch(core, call, request, [])
    read, rows = Read(fetch), Rows(call.version, encoded=request.session_epoch == FINAL_EPOCH)
    source = _asked(request, by_id)
    if request.session_epoch != FINAL_EPOCH:
        asked: list[FetchPartition] = []
        while some := list(islice(source, PARTITIONS_AT_ONCE)):
            asked += some
            yield
        fetch.asked = asked
        try:
            _set_up_session(core, fetch, request, asked, by_id, now_ms)
        except KafkaError as error:
            return messages.FetchResponse(error_code=error.code)
        source = iter(fetch.asked)
    elif request.session_id != NO_SESSION:
        core.fetch_sessions.remove(request.session_id)
    while some := list(islice(source, PARTITIONS_AT_ONCE)):
        _resolve(core, some)
        read.some(some)
        if rows.encoded:
            read.remember(None)
            rows.add(read.results)
            read.results = []
        yield
    for start in range(0, len(read.results), PARTITIONS_AT_ONCE):
        rows.add(read.results[start : start + PARTITIONS_AT_ONCE])
        yield
    fetch.answer(read, rows, now_ms)
    return None


def _first_try(fetch: PendingFetch, max_wait_ms: int, now_ms: int) -> None:
    if not fetch.try_complete(now_ms, expired=max_wait_ms <= 0 or not fetch.partitions()):
        fetch.core.purgatory.park(fetch, now_ms + max_wait_ms)


def _set_up_session(
    core: Core, fetch: PendingFetch, request: Any, asked: list[FetchPartition], by_id: bool, now_ms: int
) -> None:
    sessions = core.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.remove(request.session_id)
        fetch.full = request.session_epoch == INITIAL_EPOCH
        return
    session = sessions.resume(request.session_id, request.session_epoch, by_id, now_ms)
    session.update(asked, _forgotten(request, by_id))
    if not session.partitions:
        sessions.remove(session.session_id)
        return
    fetch.session = session
    fetch.session_epoch = session.epoch
    fetch.asked = list(session.partitions.values())


def _forgotten(request: Any, by_id: bool) -> Iterable[Key]:
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            yield (topic.topic_id if by_id else topic.topic, index)


def _resolve(core: Core, asked: Iterable[FetchPartition]) -> list[Partition]:
    found = []
    for wanted in asked:
        partition = wanted.partition
        if partition is None or partition.deleted:
            name = wanted.topic
            topic = core.topics.by_id.get(name) if isinstance(name, bytes) else core.topics.by_name.get(name)
            partition = wanted.partition = topic.partition(wanted.index) if topic is not None else None
        if partition is not None:
            found.append(partition)
    return found


def _unknown(core: Core, asked: FetchPartition) -> ErrorCode:
    if isinstance(asked.topic, bytes) and asked.topic not in core.topics.by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_quiet(asked: FetchPartition) -> bool:
    """Whether there is nothing to say, found without building a row: most partitions of a large session, most times."""
    partition = asked.partition
    if partition is None or partition.deleted or not partition.leads or asked.last_fetched_epoch >= 0:
        return False
    log = partition.log
    return (
        asked.fetch_offset == log.high_watermark == asked.high_watermark
        and asked.log_start_offset == log.start_offset
        and asked.current_leader_epoch in (-1, partition.leader_epoch)
    )


def _has_news(asked: FetchPartition, row: Any) -> bool:
    """Whether an incremental answer must mention the partition."""
    return bool(
        row.records
        or row.error_code
        or row.high_watermark != asked.high_watermark
        or row.log_start_offset != asked.log_start_offset
        or row.diverging_epoch.epoch >= 0
    )


def _error(asked: FetchPartition, error: ErrorCode) -> Any:
    return messages.FetchResponse.PartitionData(
        partition_index=asked.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=_NO_RECORDS,
    )


def _diverging(partition: Partition, asked: FetchPartition) -> Any:
    """Whether the client's last record is not in this log (KIP-595): it must go back to where the epochs part."""
    epoch, end = epoch_end(partition, asked.last_fetched_epoch)
    if epoch < 0:
        return _error(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= asked.last_fetched_epoch and end >= asked.fetch_offset:
        return None
    log = partition.log
    return messages.FetchResponse.PartitionData(
        partition_index=asked.index,
        high_watermark=log.high_watermark,
        log_start_offset=log.start_offset,
        diverging_epoch=messages.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end),
        aborted_transactions=None,
        records=_NO_RECORDS,
    )


def _aborted(log: Any, offset: int, limit: int) -> list[Any]:
    row = messages.FetchResponse.AbortedTransaction
    return [
        row(producer_id=txn.producer_id, first_offset=txn.first_offset)
        for txn in log.aborted_transactions(offset, limit)
    ]


class Rows:
    """What was read, by topic. Rows that nobody has to look at again are `encoded` at once: bytes take less room."""

    __slots__ = ("_version", "count", "encoded", "topics")

    def __init__(self, version: int, *, encoded: bool = False) -> None:
        self._version = version
        self.encoded = encoded
        self.count = 0
        self.topics: dict[bytes | str, Any] = {}

    def add(self, results: list[tuple[FetchPartition, Any]]) -> None:
        self.count += len(results)
        if self.encoded:
            self._encode(results)
            return
        for asked, row in results:
            topic = self.topics.get(asked.topic) or self._topic(asked.topic)
            topic.partitions.append(row)

    def _encode(self, results: list[tuple[FetchPartition, Any]]) -> None:
        by_name: dict[bytes | str, list[Any]] = {}
        for asked, row in results:
            by_name.setdefault(asked.topic, []).append(row)
        for name, rows in by_name.items():
            (self.topics.get(name) or self._topic(name)).partitions.add(rows)

    def _topic(self, name: bytes | str) -> Any:
        kind = messages.FetchResponse
        made = self.topics[name] = kind.FetchableTopicResponse()
        if self.encoded:
            made.partitions = kind.rows(kind.PartitionData.__name__, self._version)
        if self._version >= _TOPIC_IDS_SINCE:
            made.topic_id = name
        else:
            made.topic = name
        return made


class WarmUp:
    """Reads cold bytes into memory on another thread, so that the loop never waits for a disk."""

    reads_records = True

    def __init__(self, fetch: PendingFetch, reads: list[Callable[[], None]], max_wait_ms: int) -> None:
        self.fetch = fetch
        self.reads = reads
        self.max_wait_ms = max_wait_ms

    def run(self) -> None:
        for read in self.reads:
            try:
                read()
            except StorageError:
                pass  # whoever reads there is told

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        if self.fetch.waits_for_store:
            if self.fetch.done:
                return  # it has waited for too long, or nobody waits any more
            self.fetch.core.purgatory.take_out(self.fetch)
            self.fetch.waits_for_store = False
        _first_try(self.fetch, self.max_wait_ms, now_ms)


def _cold_reads(fetch: PendingFetch) -> list[Callable[[], None]]:
    reads, left = [], fetch.max_bytes
    for asked in fetch.asked:
        partition = asked.partition
        if partition is None or asked.fetch_offset >= partition.log.high_watermark or left <= 0:
            continue
        size = min(asked.max_bytes, left)
        left -= size
        read = partition.log.warm(asked.fetch_offset, size)
        if read is not None:
            reads.append(read)
    return reads
