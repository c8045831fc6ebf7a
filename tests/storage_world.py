"""Helpers of the storage tests: batches from plain pairs, records out of a log, stores that can be abandoned."""

from kohort.records.batch import Record, build_batch, iter_batches, read_records
from kohort.storage import LogConfig, LogStore


def batch(pairs, *, timestamp=1000, **header):
    """A batch of (key, value) strings, as a producer sends it; timestamps increase by one."""
    records = [
        Record(i, timestamp + i, key and key.encode(), value if value is None else value.encode())
        for i, (key, value) in enumerate(pairs)
    ]
    return build_batch(records, **header)


def records_of(log, offset=None, **limits):
    """Every record from `offset` on, in order."""
    found = []
    offset = log.start_offset if offset is None else offset
    while offset < log.end_offset:
        data = b"".join(log.read(offset, 100_000, **limits))
        if not data:
            break
        for pos, header in iter_batches(data):
            found += [record for record in read_records(data, pos, header) if record.offset >= offset]
            offset = max(offset, header.next_offset)
    return found


class TestStore(LogStore):
    """A store that can end as a killed process ends: nothing flushed, nothing noted, only the lock is gone."""

    __test__ = False

    def abandon(self):
        for log in self.logs.values():
            log.release()
        self.committer.stop()
        self._lock.release()


def open_store(path, config=None, *, now_ms=0, **options):
    store = TestStore(path, **options)
    store.load(lambda topic: config or LogConfig(), now_ms=now_ms)
    return store
