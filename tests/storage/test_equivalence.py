"""LocalLog and MemoryLog under the same random operations: they must agree on everything, also after a restart."""

import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.protocol.errors import ErrorCode
from kohort.records.batch import iter_batches, read_header, read_records
from kohort.records.control import ControlType, build_marker
from kohort.storage import LogConfig, MemoryLog
from kohort.storage.errors import OffsetOutOfRange
from storage_world import batch, open_store, records_of

NOW = 1_700_000_000_000

appends = st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 400), st.integers(0, 50_000))
idempotent = st.tuples(st.just("idempotent"), st.integers(1, 3), st.integers(1, 3))
transactional = st.tuples(st.just("transactional"), st.integers(11, 12), st.integers(1, 3))
markers = st.tuples(st.just("marker"), st.integers(11, 12), st.booleans())
epochs = st.tuples(st.just("epoch"), st.integers(1, 2))
deletes = st.tuples(st.just("delete_records"), st.floats(0, 1))
retention = st.tuples(st.just("retention"), st.integers(0, 80_000))
compaction = st.tuples(st.just("compact"))
flushes = st.tuples(st.just("flush"))
restarts = st.tuples(st.just("restart"), st.booleans())
operations = st.lists(
    st.one_of(
        appends, appends, idempotent, transactional, markers, epochs, deletes, retention, compaction, flushes, restarts
    ),
    max_size=40,
)
configs = st.sampled_from(
    [
        LogConfig(segment_bytes=700, index_interval_bytes=200, retention_ms=60_000),
        LogConfig(
            segment_bytes=1500, index_interval_bytes=0, retention_bytes=3000, cleanup_policy=("compact", "delete")
        ),
        LogConfig(
            segment_bytes=900, index_interval_bytes=4096, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0
        ),
        LogConfig(segment_ms=20_000, index_interval_bytes=300, message_timestamp_type="LogAppendTime"),
    ]
)


def committed(log):
    """What a read_committed consumer gets: the transaction index may differ where it does not matter."""
    aborted = log.aborted_transactions(log.start_offset, log.last_stable_offset)
    offsets = []
    for view in log.read(log.start_offset, 10**9, max_offset=log.last_stable_offset):
        for pos, header in iter_batches(view):
            skipped = header.is_transactional and any(
                txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in aborted
            )
            if not skipped and not header.is_control:
                offsets += [record.offset for record in read_records(view, pos, header)]
    return offsets


class Pair:
    """The same operation on both logs."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.directory = tempfile.mkdtemp(prefix="kohort-test-")
        self.store = open_store(self.directory, config, now_ms=NOW)
        self.local = self.store.create("t", 0, b"t" * 16, config, now_ms=NOW)
        self.memory = MemoryLog("t", 0, config, now_ms=NOW)
        self.now_ms = NOW
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.keys = 0

    def both(self, call):
        mine, theirs = call(self.local), call(self.memory)
        assert mine == theirs
        return mine

    def append(self, count, size, later_ms, **header):
        self.now_ms += later_ms
        records = [
            (f"k{(self.keys + i * 7) % 5}", None if (self.keys + i) % 11 == 3 else "v" * size) for i in range(count)
        ]
        self.keys += count
        data = batch(records, timestamp=self.now_ms, **header)
        self.both(lambda log: log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms))

    def idempotent(self, producer_id, count, transactional=False):
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        header = dict(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=transactional)
        probe = read_header(batch([("k", "v")] * count, **header))

        def check(log):
            return log.producers.check(probe, log.producers.admission(producer_id, 0, raises_epoch=False))

        assert self.both(check).error == ErrorCode.NONE
        self.append(count, 20, 10, **header)

    def transactional(self, producer_id, count):
        self.idempotent(producer_id, count, transactional=True)

    def marker(self, producer_id, commit):
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        data = build_marker(kind, timestamp=self.now_ms, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0)
        self.both(lambda log: log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms))

    def delete_records(self, share):
        start, end = self.memory.start_offset, self.memory.end_offset
        self.both(lambda log: log.delete_records_before(start + int((end - start) * share)))

    def retention(self, later_ms):
        self.now_ms += later_ms
        self.both(lambda log: log.enforce_retention(self.now_ms))

    def compact(self):
        self.both(lambda log: log.compact(self.now_ms))

    def flush(self):
        self.both(lambda log: log.flush())

    def restart(self, clean):
        if clean:
            self.store.close()
        else:
            self.store.abandon()
        self.store = open_store(self.directory, self.config, now_ms=self.now_ms)
        self.local = self.store.get("t", 0)

    def run(self, operation):
        name, *arguments = operation
        if name == "epoch":
            self.epoch += arguments[0]
        elif name == "append":
            self.append(*arguments)
        else:
            getattr(self, name)(*arguments)

    def compare(self):
        local, memory = self.local, self.memory
        for name in ("start_offset", "end_offset", "last_stable_offset", "size_bytes"):
            assert getattr(local, name) == getattr(memory, name), name
        start, end = memory.start_offset, memory.end_offset
        assert records_of(local, start) == records_of(memory, start)
        for offset in range(start, end + 1):
            for max_bytes in (0, 150, 600):
                for limit in (None, memory.last_stable_offset):
                    self.both(lambda log: b"".join(log.read(offset, max_bytes, max_offset=limit)))  # noqa: B023
        for epoch in range(-1, self.epoch + 2):
            self.both(lambda log: log.end_offset_for_epoch(epoch))  # noqa: B023
        for timestamp in range(NOW - 1, self.now_ms + 2, max((self.now_ms - NOW) // 7, 1)):
            self.both(lambda log: log.offset_for_timestamp(timestamp))  # noqa: B023
        self.both(lambda log: log.max_timestamp())
        self.both(committed)

    def close(self):
        self.store.close()
        shutil.rmtree(self.directory)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(config=configs, steps=operations)
def test_local_and_memory_logs_agree(config, steps):
    pair = Pair(config)
    try:
        for step in steps:
            pair.run(step)
        pair.compare()
        pair.restart(clean=False)
        pair.compare()
        pair.restart(clean=True)
        pair.compare()
    finally:
        pair.close()


def test_reads_outside_the_log_are_refused_alike(tmp_path):
    store = open_store(tmp_path, LogConfig())
    for log in (store.create("t", 0, b"t" * 16, LogConfig(), now_ms=0), MemoryLog("t", 0, LogConfig())):
        log.append(batch([("k", "v")]), leader_epoch=0, now_ms=0)
        assert log.read(1, 1000) == []
        for offset in (-1, 2):
            with pytest.raises(OffsetOutOfRange, match=r"holds 0\.\.1") as refused:
                log.read(offset, 1000)
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    store.close()
