"""Reading a coordinator's partitions back: a slice a turn, so that the broker serves others meanwhile.

A partition is served when it has been read whole, every batch checked, up to what is safe on disk. Where that cannot be
had its shard fails, with the reason and the place: half of a state is worse than none. What a store has to be asked for
is asked for ahead, while what came before is applied. Nothing here knows of groups.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic

from kohort.coordinator.scan import HUGE_BATCH, LARGE_BATCH, key_values
from kohort.coordinator.shard import Damage, S, Shard
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.records.batch import BatchHeader, check_crc, iter_batches
from kohort.records.errors import RecordsError
from kohort.storage.cold_segment import NotInMemory, StoreFailed

if TYPE_CHECKING:
    from kohort.broker.topics import Partition
    from kohort.coordinator.runtime import Runtime
    from kohort.coordinator.scanner import Scanner

logger = logging.getLogger("kohort.groups")

RECORDS_PER_SLICE = 8_000
BATCH_COSTS = 8  # as many records
SETTLED_PER_SLICE = 2_000
PROGRESS_EVERY_MS = 5_000
LOOK_AGAIN_MS = 1_000  # at what has yet to reach the disk; usually the disk tells


class _Load(Generic[S]):
    """One partition on its way into its shard."""

    def __init__(
        self,
        shard: Shard[S],
        partition: Partition,
        scanner: Callable[[], Scanner],
        buffer_bytes: int,
        now_ms: int,
    ) -> None:
        self.shard = shard
        self.incarnation = shard.incarnation
        self.partition = partition
        self.started_ms = now_ms
        self.end_offset = partition.log.end_offset
        self.records = 0
        self.is_settled = False
        self._offset = partition.log.start_offset
        self._scanner = scanner
        self._buffer_bytes = buffer_bytes
        self._batches: Iterator[tuple[memoryview, int, BatchHeader]] = iter(())
        self.missing: Callable[[], None] | None = None  # to be run elsewhere before there is more to read
        self.ahead: Callable[[], None] | None = None  # to be run elsewhere while what is there is read
        self.is_fetching = False  # one of them is being run

    def step(self) -> bool:
        """Another slice; True when all of it is read and applied."""
        if not self._read_slice():
            return False
        self.is_settled = self.is_settled or self.shard.state.settle(SETTLED_PER_SLICE)
        return self.is_settled

    @property
    def is_safe(self) -> bool:
        """Whether no power cut takes back what was read."""
        log = self.partition.log
        if log.failure is not None:
            raise Damage(self.end_offset, log.failure.message)
        return log.high_watermark >= self.end_offset

    def _read_slice(self) -> bool:
        budget = RECORDS_PER_SLICE
        while budget > 0:
            batch = next(self._batches, None)
            if batch is not None:
                budget -= self._replay(*batch) + BATCH_COSTS
            elif self._offset < self.end_offset:
                chunks = self._read()
                if self.missing is not None:
                    return False
                self._batches = self._all_checked(chunks)
            else:
                return True
        return False

    def _read(self) -> list[memoryview]:
        log = self.partition.log
        self._offset = max(self._offset, log.start_offset)  # which may have moved meanwhile
        try:
            found = log.read(self._offset, self._buffer_bytes, max_offset=self.end_offset)
            self.ahead = log.warm(self._offset, sum(map(len, found)) + self._buffer_bytes)
            return found
        except (NotInMemory, StoreFailed) as missing:
            self.missing = log.warm(self._offset, self._buffer_bytes) or missing.load
            return []
        except KafkaError as error:
            raise Damage(self._offset, error.message) from error

    def _all_checked(self, chunks: list[memoryview]) -> Iterator[tuple[memoryview, int, BatchHeader]]:
        """The batches of a buffer, each checked before it is given out."""
        began = self._offset
        for chunk in chunks:
            yield from self._checked(chunk)
        if self._offset == began < self.end_offset:
            raise Damage(began, f"nothing is there, and the log goes on to {self.end_offset}")

    def _checked(self, chunk: memoryview) -> Iterator[tuple[memoryview, int, BatchHeader]]:
        end = 0
        try:
            for pos, header in iter_batches(chunk):
                if header.last_offset < self._offset:
                    raise Damage(self._offset, f"a batch of offset {header.base_offset} follows")
                if not check_crc(chunk, pos, header):
                    raise Damage(header.base_offset, "the checksum of the batch is wrong")
                yield chunk, pos, header
                self._offset = header.next_offset
                end = pos + header.size
        except RecordsError as error:
            raise Damage(self._offset, error.message) from error
        if end != len(chunk):
            raise Damage(self._offset, f"{len(chunk) - end} bytes are no whole batch")

    def _replay(self, chunk: memoryview, pos: int, header: BatchHeader) -> int:
        state = self.shard.state
        count = 0
        offset = header.base_offset
        try:
            if header.is_control:
                for _, key, _ in key_values(chunk, pos, header):
                    state.read_marker(header.producer_id, int.from_bytes(key[2:4], "big") == 1)
                return 0
            if LARGE_BATCH <= header.record_count < HUGE_BATCH and not header.is_transactional:
                found = self._scanner().key_values(chunk, pos, header)
                state.read_all(*found)
                count = len(found.offsets)
            else:
                producer_id = header.producer_id if header.is_transactional else -1
                for offset, key, value in key_values(chunk, pos, header):
                    state.read(key, value, offset, producer_id)
                    count += 1
        except RecordsError as error:
            raise Damage(offset, error.message) from error
        self.records += count
        return count


class _Fetch(Generic[S]):
    """What a load needs from the store of a cluster, now or next."""

    reads_records = True

    def __init__(self, loader: ShardLoader[S], load: _Load[S], fetch: Callable[[], None]) -> None:
        self._loader = loader
        self._load = load
        self._fetch = fetch

    def run(self) -> None:
        self._fetch()

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        self._loader.fetched(self._load, error, now_ms)


class ShardLoader(Generic[S]):
    def __init__(self, runtime: Runtime[S], buffer_bytes: int, run_elsewhere: Callable[[Any], None]) -> None:
        self._runtime = runtime
        self._buffer_bytes = buffer_bytes
        self._run_elsewhere = run_elsewhere
        self._made_scanner: Scanner | None = None
        self._waiting: dict[_Load[S], int | None] = {}  # for the store, or until they ask it again
        self._loads: deque[_Load[S]] = deque()
        self._unsafe: list[_Load[S]] = []  # read, and waiting for the disk
        self._done = 0
        self._records = 0
        self._started_ms = 0
        self._said_ms = 0

    def _scanner(self) -> Scanner:
        """One for all loads; a new broker, which has nothing to load, never needs it."""
        if self._made_scanner is None:
            from kohort.coordinator.scanner import Scanner

            self._made_scanner = Scanner()
        return self._made_scanner

    def start(self, shard: Shard[S], partition: Partition, now_ms: int) -> None:
        """Empty partitions answer at once; the others when they have been read."""
        if not self._loads:
            self._started_ms = self._said_ms = now_ms
            self._done = self._records = 0
        load = _Load(shard, partition, self._scanner, self._buffer_bytes, now_ms)
        if load.end_offset > partition.log.start_offset:
            self._loads.append(load)
        else:
            self._advance(load, now_ms)

    @property
    def is_idle(self) -> bool:
        return not self._loads and not self._unsafe and not self._waiting

    def next_deadline(self, now_ms: int) -> int:
        if self._loads:
            return now_ms
        return min([at_ms for at_ms in self._waiting.values() if at_ms is not None], default=now_ms + LOOK_AGAIN_MS)

    def _fetch(self, load: _Load[S], fetch: Callable[[], None]) -> None:
        load.is_fetching = True
        self._run_elsewhere(_Fetch(self, load, fetch))

    def fetched(self, load: _Load[S], error: BaseException | None, now_ms: int) -> None:
        """Whoever waits for it reads on: at once, or a while later where the store has failed. What was asked for ahead
        is asked for again when it is needed, and is not there."""
        load.is_fetching = False
        if load not in self._waiting:
            return
        damaged = isinstance(error, KafkaError) and error.code == ErrorCode.CORRUPT_MESSAGE
        retry = error is not None and not damaged
        if retry:
            logger.warning("%s is still loading: %s", load.partition, error)
        self._waiting[load] = now_ms + (LOOK_AGAIN_MS if retry else 0)

    def step(self, now_ms: int) -> None:
        """The next slice; never raises."""
        if self._unsafe:
            self.look_again(now_ms)
        for load in [load for load, at_ms in self._waiting.items() if at_ms is not None and at_ms <= now_ms]:
            del self._waiting[load]
            load.missing = None
            self._loads.append(load)
        if not self._loads:
            return
        load = self._loads[0]
        if not self._runtime.is_loading(load.shard, load.incarnation) or self._advance(load, now_ms):
            self._loads.popleft()
            self._done += 1
            if not self._loads and self._records:
                logger.info("loaded %d records in %d ms", self._records, now_ms - self._started_ms)
            return
        if load.missing is not None:
            self._waiting[self._loads.popleft()] = None
            if not load.is_fetching:
                self._fetch(load, load.missing)
            return
        if load.ahead is not None and not load.is_fetching:
            self._fetch(load, load.ahead)
            load.ahead = None
        if now_ms - self._said_ms >= PROGRESS_EVERY_MS:
            self._said_ms = now_ms
            total = self._done + len(self._loads) + len(self._waiting)
            logger.info("loading: %d of %d partitions, %d records so far", self._done, total, self._records)

    def look_again(self, now_ms: int) -> None:
        """Something may have reached the disk."""
        unsafe, self._unsafe = self._unsafe, []
        for load in unsafe:
            self._advance(load, now_ms)

    def _advance(self, load: _Load[S], now_ms: int) -> bool:
        """Whether there is no more to read of it."""
        shard = load.shard
        if not self._runtime.is_loading(shard, load.incarnation):
            return True
        shard.state.now_ms = now_ms
        try:
            before = load.records
            is_read = load.step()
            self._records += load.records - before
            if not is_read:
                return False
            if not load.is_safe:
                self._unsafe.append(load)
                return True
            limit = load.partition.log.config.max_message_bytes
            self._runtime.loaded(shard, load.incarnation, load.end_offset, now_ms, limit)
        except Damage as damage:
            self._failed(load, str(damage))
            return True
        except Exception as error:
            logger.exception("%s cannot be loaded", load.partition)
            self._failed(load, repr(error))
            return True
        self._finished(load, now_ms)
        return True

    def _failed(self, load: _Load[S], reason: str) -> None:
        if self._runtime.load_failed(load.shard, load.incarnation, reason):
            logger.error(
                "%s cannot be read whole and is not served, %s; see `kohort log check`, which also says what a repair "
                "would cost",
                load.partition,
                reason,
            )

    def _finished(self, load: _Load[S], now_ms: int) -> None:
        if not load.records:
            return
        logger.info("loaded %s: %d records in %d ms", load.partition, load.records, now_ms - load.started_ms)
        skipped: dict[str, int] = getattr(load.shard.state, "skipped", {})
        for why, count in skipped.items():
            logger.warning("%s: skipped %d records: %s", load.partition, count, why)
