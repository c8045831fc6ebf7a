"""A coordinator's partition whose records are in a store: blocks are fetched ahead, each once, and faults are told."""

from types import SimpleNamespace

import pytest

from kohort.broker.shard_loading import LOOK_AGAIN_MS, RECORDS_PER_SLICE, ShardLoader
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Record, build_batch
from kohort.storage.cold_segment import NotInMemory, StoreFailed
from kohort.storage.errors import StorageError

RECORDS = RECORDS_PER_SLICE  # of a block: one slice


class StoredLog:
    """A batch a block; none is in memory before it was fetched."""

    start_offset, failure = 0, None

    def __init__(self, blocks):
        self.blocks = [
            build_batch(
                [Record(n * RECORDS + i, 0, b"k%d-%d" % (n, i), b"v") for i in range(RECORDS)], base_offset=n * RECORDS
            )
            for n in range(blocks)
        ]
        self.end_offset = self.high_watermark = blocks * RECORDS
        self.config = SimpleNamespace(max_message_bytes=1 << 20)
        self.fetched = []
        self.fails = {}  # block -> what its next fetch raises

    def read(self, offset, max_bytes, max_offset=None):
        block = offset // RECORDS
        if block not in self.fetched:
            raise NotInMemory(f"block {block}", lambda: self.fetch(block))
        return [memoryview(self.blocks[block])]

    def warm(self, offset, max_bytes):
        """The block at the offset, or where that is in memory the next."""
        block = offset // RECORDS
        wanted = [n for n in (block, block + 1) if n < len(self.blocks) and n not in self.fetched]
        return (lambda: self.fetch(wanted[0])) if wanted else None

    def fetch(self, block):
        if block in self.fails:
            raise self.fails.pop(block)
        self.fetched.append(block)


class State:
    def __init__(self):
        self.keys = []
        self.now_ms = 0

    def read_all(self, offsets, keys, values):
        self.keys += keys

    def settle(self, limit):
        return True


class Loading:
    """A loader, its only shard, and the jobs that it wants run."""

    def __init__(self, log):
        self.jobs, self.ended = [], []
        self.shard = SimpleNamespace(incarnation=1, state=State())
        runtime = SimpleNamespace(
            is_loading=lambda shard, incarnation: not self.ended,
            loaded=lambda *args: self.ended.append("loaded"),
            load_failed=lambda shard, incarnation, reason: self.ended.append(reason),
        )
        self.loader = ShardLoader(runtime, 1, self.jobs.append)
        self.loader.start(self.shard, SimpleNamespace(log=log), 0)

    def run_job(self, now_ms=0):
        job, error = self.jobs.pop(0), None
        try:
            job.run()
        except Exception as raised:
            error = raised
        job.finish(error, now_ms)

    def run(self, now_ms=0):
        for _ in range(1000):
            if self.ended or (not self.jobs and self.loader.next_deadline(now_ms) > now_ms):
                return
            self.loader.step(now_ms)
            if self.jobs:
                self.run_job(now_ms)


def test_the_next_block_is_asked_for_while_one_is_read():
    log = StoredLog(3)
    loading = Loading(log)
    loading.loader.step(0)
    loading.run_job()
    assert log.fetched == [0]
    loading.loader.step(0)
    assert len(loading.shard.state.keys) == RECORDS
    assert len(loading.jobs) == 1
    loading.run_job()
    assert log.fetched == [0, 1]


def test_every_block_is_fetched_once_and_every_record_read():
    log = StoredLog(5)
    loading = Loading(log)
    loading.run()
    assert loading.ended == ["loaded"]
    assert log.fetched == list(range(5))
    assert len(set(loading.shard.state.keys)) == len(loading.shard.state.keys) == 5 * RECORDS


def test_who_is_quicker_than_the_store_waits_for_what_is_on_its_way():
    log = StoredLog(2)
    loading = Loading(log)
    loading.loader.step(0)
    loading.run_job()
    for _ in range(5):
        loading.loader.step(0)
    assert len(loading.jobs) == 1
    loading.run()
    assert loading.ended == ["loaded"]
    assert log.fetched == [0, 1]


@pytest.mark.parametrize("quick", [True, False])
def test_a_store_that_fails_is_asked_again(quick):
    """Whether the load waits for what it has asked for ahead, or comes to it later."""
    log = StoredLog(2)
    log.fails[1] = StoreFailed("no answer", lambda: None)
    loading = Loading(log)
    loading.loader.step(0)
    loading.run_job()
    for _ in range(5 if quick else 1):
        loading.loader.step(0)
    loading.run_job()
    loading.run()
    loading.run(LOOK_AGAIN_MS)
    assert loading.ended == ["loaded"]
    assert log.fetched == [0, 1]


def test_a_block_that_is_damaged_ends_the_load():
    log = StoredLog(2)
    loading = Loading(log)
    damage = StorageError("block 1 is damaged", ErrorCode.CORRUPT_MESSAGE)
    log.fails[1] = damage
    whole = log.read

    def read(offset, max_bytes, max_offset=None):
        if 1 not in log.fails and offset >= RECORDS:
            raise damage
        return whole(offset, max_bytes, max_offset)

    log.read = read
    loading.run()
    (reason,) = loading.ended
    assert "block 1 is damaged" in reason
