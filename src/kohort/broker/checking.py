"""The records of produced batches, checked before they are queued: at once if they are few, else on another thread.

What a connection produces stays in order: while one of its batches is checked elsewhere, the later ones wait behind it.
Nothing here appends or answers; whoever asked is told the outcome.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from kohort.records.batch import CREATE_TIME, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from kohort.records.compression import Buffer, Compression, OutputTooSmall, decompress_into
from kohort.records.errors import CorruptBatch, InvalidBatch, RecordsError
from kohort.records.validate import Limits, TopicRules, check_records, is_sound, readable
from kohort.storage.config import LogConfig

if TYPE_CHECKING:
    from kohort.broker.connection import Connection
    from kohort.broker.core import Core
    from kohort.broker.topics import Partition

AT_ONCE_BYTES = 256 * 1024
"""What is inflated on the loop; more takes longer than others should wait."""
PLAIN_AT_ONCE_BYTES = 4 * 1024 * 1024
CHECKED_AT_ONCE = 25
"""Of those that have waited for another one; then others have a turn."""
SMALL_BYTES = 128 * 1024
"""What is copied and checked in one call."""
_LONG_MAX = 2**63 - 1
_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Asker(Protocol):
    """Who wants a batch checked."""

    def checked(self, check: Check, now_ms: int) -> None: ...
    def is_wanted(self) -> bool: ...


def topic_rules(config: LogConfig, now_ms: int) -> TopicRules:
    codec = _CODECS.get(config.compression_type)
    return TopicRules(
        max_message_bytes=config.max_message_bytes,
        now_ms=now_ms,
        timestamp_type=LOG_APPEND_TIME if config.log_append_time else CREATE_TIME,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compacted=config.compact,
        codec=codec,
        codec_level=_level(codec, config),
    )


def _limits(config: LogConfig) -> Limits | None:
    """None where plain batches are not stored as they came."""
    if _CODECS.get(config.compression_type):
        return None
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if config.log_append_time:
        before_ms = after_ms = _LONG_MAX
    return Limits(config.max_message_bytes, before_ms, after_ms, config.compact)


def _level(codec: Compression | None, config: LogConfig) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec) if codec is not None else None
    return None if codec == Compression.GZIP and level == -1 else level


class Check:
    """One batch for one partition; `records`, `header` and `error` say the outcome. A Job of the core."""

    __slots__ = ("asker", "error", "header", "lane", "partition", "purpose", "records", "rules")
    uses_processor = True

    def __init__(
        self,
        asker: Asker,
        partition: Partition,
        records: Buffer,
        header: BatchHeader,
        rules: TopicRules,
        purpose: Any,
    ) -> None:
        self.asker = asker
        self.partition = partition
        self.records = records
        self.header = header
        self.rules = rules
        self.purpose = purpose
        self.error: RecordsError | None = None
        self.lane: Lane | None = None

    def at_once(self, scratch: memoryview) -> bool:
        """Whether it is small enough to be checked here and now, and then is."""
        body: Buffer = memoryview(self.records)[HEADER_SIZE : self.header.size]
        if self.header.compression == Compression.NONE:
            if len(body) > (PLAIN_AT_ONCE_BYTES if self.rules.codec in (None, Compression.NONE) else AT_ONCE_BYTES):
                return False
        elif len(body) > len(scratch):
            return False
        else:
            try:
                body = scratch[: decompress_into(self.header.compression, body, scratch)]
            except OutputTooSmall:
                return False
            except CorruptBatch as error:
                self.error = InvalidBatch(error.message)
                return True
        self._check(body)
        return True

    def _check(self, body: Buffer) -> None:
        try:
            self.records, self.header = check_records(self.records, self.header, body, self.rules)
        except RecordsError as error:
            self.error = _bare(error)

    def run(self) -> None:
        try:
            body = readable(self.records, self.header, self.rules.max_inflated_bytes)
        except RecordsError as error:
            self.error = _bare(error)
        else:
            self._check(body)

    def finish(self, error: BaseException | None, now_ms: int) -> None:
        if error is not None and self.error is None:
            self.error = InvalidBatch(f"the records cannot be checked: {error}")
        assert self.lane is not None
        self.lane.finished(self, now_ms)


def _bare(error: RecordsError) -> RecordsError:
    """Without the frames that it came through: they hold what was inflated, and the check that holds the error."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


class Lane:
    """The batches of one connection that wait to be checked, in order; the first of them is being checked."""

    def __init__(self, checking: Checking, connection: Connection) -> None:
        self._checking = checking
        self._connection = connection
        self._waiting: deque[Check] = deque()

    def add(self, check: Check) -> None:
        check.lane = self
        self._waiting.append(check)
        if len(self._waiting) == 1:
            self._checking.core.run_elsewhere(check)

    def finished(self, check: Check, now_ms: int) -> None:
        assert self._waiting[0] is check
        self._waiting.popleft()
        check.asker.checked(check, now_ms)
        left = CHECKED_AT_ONCE
        while self._waiting:
            following = self._waiting[0]
            if following.asker.is_wanted():
                if not left or not following.at_once(self._checking.scratch):
                    self._checking.core.run_elsewhere(following)
                    return
                following.asker.checked(following, now_ms)
                left -= 1
            self._waiting.popleft()
        self._checking.lanes.pop(self._connection, None)


class Checking:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.lanes: dict[Connection, Lane] = {}
        self._buffer: memoryview | None = None
        self._rules_of: LogConfig | None = None
        self._rules = TopicRules()
        self._limits_of: LogConfig | None = None
        self._limits: Limits | None = None

    def passes(self, connection: Connection, records: bytes, config: LogConfig, now_ms: int) -> bool:
        """Whether a small batch can be appended as it came. If not, it is to be checked step by step: `check`."""
        if connection in self.lanes:
            return False
        if config is not self._limits_of:
            self._limits_of, self._limits = config, _limits(config)
        return self._limits is not None and is_sound(records, now_ms, self._limits)

    def rules(self, config: LogConfig, now_ms: int) -> TopicRules:
        """`topic_rules`; many batches of a turn are for the same topic."""
        if config is not self._rules_of or now_ms != self._rules.now_ms:
            self._rules_of, self._rules = config, topic_rules(config, now_ms)
        return self._rules

    @property
    def scratch(self) -> memoryview:
        if self._buffer is None:
            self._buffer = memoryview(bytearray(AT_ONCE_BYTES))
        return self._buffer

    def check(self, connection: Connection, check: Check, now_ms: int) -> None:
        """Have a batch checked; its asker is told, now or later."""
        lane = self.lanes.get(connection)
        if lane is None:
            if check.at_once(self.scratch):
                check.asker.checked(check, now_ms)
                return
            lane = self.lanes[connection] = Lane(self, connection)
        lane.add(check)
