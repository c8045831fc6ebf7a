"""What the log costs: microseconds per append and MB/s read, files and memory, and opening many partitions."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable

from kohort.records.batch import Record, build_batch
from kohort.storage import Log, LogConfig, LogStore, MemoryStore

NOW_MS = 1_700_000_000_000


def timed(run: Callable[[], None], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    run()
    return clock() - start


def cpu_seconds(run: Callable[[], None]) -> float:
    """CPU time of this thread: what the broker's loop would spend, however busy the machine is."""
    return timed(run, time.thread_time)


def batch_of(size: int, **header: int) -> bytes:
    return build_batch([Record(0, NOW_MS, b"key", b"v" * (size - 80))], **header)


def bench_append(log: Log, size: int, count: int) -> str:
    data = batch_of(size)

    def run() -> None:
        for _ in range(count):
            log.append(data, leader_epoch=0, now_ms=NOW_MS)

    seconds = cpu_seconds(run)
    return f"{seconds / count * 1e6:8.2f} us  {count * size / seconds / 1e6:8.0f} MB/s"


def bench_read(log: Log, max_bytes: int) -> str:
    """Reads the whole log in pieces; every byte is copied once, as sending it would."""
    pieces = total = 0
    sink = bytearray(2 * max_bytes)

    def run() -> None:
        nonlocal pieces, total
        offset = log.start_offset
        while offset < log.end_offset:
            position = 0
            for view in log.read(offset, max_bytes):
                sink[position : position + len(view)] = view
                position += len(view)
            offset += position // size
            pieces += 1
            total += position

    size = len(b"".join(log.read(0, 1)))
    seconds = cpu_seconds(run)
    return f"{seconds / pieces * 1e6:8.2f} us  {total / seconds / 1e6:8.0f} MB/s"


def bench_tail(log: Log, size: int, count: int) -> str:
    """Append and read it back at once, as a consumer that keeps up does."""
    data = batch_of(size)

    def run() -> None:
        for _ in range(count):
            done = log.append(data, leader_epoch=0, now_ms=NOW_MS)
            log.read(done.base_offset, 1_000_000)

    return f"{cpu_seconds(run) / count * 1e6:8.2f} us"


def bench_group_commit(log: Log, waiters: int, rounds: int) -> str:
    data = batch_of(1024)

    def run() -> None:
        for _ in range(rounds):
            left = threading.Semaphore(0)
            for _ in range(waiters):
                log.append(data, leader_epoch=0, now_ms=NOW_MS)
                log.flush_async(lambda error, left=left: left.release())
            for _ in range(waiters):
                left.acquire()

    seconds = timed(run)
    return f"{waiters * rounds / seconds:8.0f} durable appends/s"


def bench_partitions(directory: str, count: int) -> None:
    config = LogConfig()
    store = LogStore(directory)
    store.load(lambda topic: config, now_ms=NOW_MS)

    def create() -> None:
        for partition in range(count):
            store.create("__consumer_offsets", partition, b"t" * 16, config, now_ms=NOW_MS)

    print(f"create {count} partitions           {timed(create) * 1e3:8.1f} ms")
    print(f"close, all empty                {timed(store.close) * 1e3:8.1f} ms")
    for content in ("empty", "with records"):
        store = LogStore(directory)
        seconds = timed(lambda store=store: store.load(lambda topic: config, now_ms=NOW_MS))
        print(f"open, {content:26}{seconds * 1e3:8.1f} ms  {len(os.listdir('/proc/self/fd'))} descriptors")
        data = batch_of(1024, producer_id=1, producer_epoch=0, base_sequence=0)
        for log in store.logs.values():
            for _ in range(20):
                log.append(data, leader_epoch=0, now_ms=NOW_MS)
        print(f"close, with records             {timed(store.close) * 1e3:8.1f} ms")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with LogStore(f"{directory}/logs") as store:
            store.load(lambda topic: LogConfig(), now_ms=NOW_MS)
            for name, kind in (("files", store), ("memory", MemoryStore())):
                for size, count in ((1024, 100_000), (65_536, 4_000)):
                    log = kind.create(f"t{size}", 0, b"t" * 16, LogConfig(), now_ms=NOW_MS)
                    print(f"{name:6} append {size:6}            {bench_append(log, size, count)}")
                    for max_bytes in (65_536, 1_048_576):
                        print(f"{name:6} read {max_bytes:8}, batches {size:6}{bench_read(log, max_bytes)}")
                    print(f"{name:6} append {size:6} and read it{bench_tail(log, size, 2_000)}")
            log = store.create("durable", 0, b"t" * 16, LogConfig(flush_messages=1), now_ms=NOW_MS)
            for waiters, rounds in ((1, 100), (256, 40)):
                print(f"files  group commit, {waiters:3} waiters  {bench_group_commit(log, waiters, rounds)}")
        bench_partitions(f"{directory}/many", 50)


if __name__ == "__main__":
    main()
