"""A week of one commit a second in virtual time: how many objects and bytes the store of a cluster has meanwhile.
`python bench/run.py --only cluster --parts week --sides kohort`.

The real core, coordinator, journal, tidying and compaction of one broker over a store in memory; only the clock is not.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from kafka_socket import request_frame
from kohort.broker.cluster_topics import ClusterCatalog
from kohort.broker.config import BrokerConfig
from kohort.broker.connection import Connection
from kohort.broker.core import Core
from kohort.broker.groups import GroupService
from kohort.broker.membership import Membership
from kohort.cluster.memory_engine import MemoryStore
from kohort.cluster.meta_log import found_cluster
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.frames import decode_response
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from kohort.storage.journal_store import JournalStore
from tables import Table

COMMIT_VERSION = 7
WEEK_S = 7 * 24 * 3600
STEP_S = 5
LOOK_S = 7  # nothing that happens every so often happens so often


class Size(NamedTuple):
    objects: int
    data: int


class Broker:
    """Without threads or sockets; time passes when it is told to."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now_ms = 1_700_000_000_000
        engine = self.store.engine()
        state = found_cluster(engine, "week", "nonce")
        config = BrokerConfig({"node.id": 1, "broker.session.timeout.ms": 60_000})
        log_store = JournalStore(cluster_id=state.cluster_id, node_id=1)
        randbytes = random.Random(1).randbytes
        catalog = ClusterCatalog(config, log_store, randbytes, state)
        self.core = Core(config, log_store, random_bytes=randbytes, services=[GroupService], topics=catalog)
        self.core.membership = Membership(self.core, engine, state)
        self.core.start(self.now_ms)
        self.core.membership.join("localhost", 9092, self.now_ms)
        self.connection = Connection("127.0.0.1")
        self.pass_time(1)
        while not (self._has_coordinator() and self.commits(0)):
            self.pass_time(1)

    def _has_coordinator(self) -> bool:
        found = self.ask(FindCoordinatorRequest(key="orders"), 1)
        return found is not None and decode_response(found, 1, FindCoordinatorResponse).error_code == 0

    def pass_time(self, seconds: int) -> None:
        self.now_ms += 1000 * seconds
        self.core.on_time(self.now_ms)
        self._work()

    def ask(self, request: object, version: int) -> bytes | None:
        self.core.receive(self.connection, request_frame(request, version)[4:], self.now_ms)
        self._work()
        answer, self.connection.out = b"".join(map(bytes, self.connection.out)), []
        return answer[4:] or None

    def _work(self) -> None:
        self.core.flush(self.now_ms)
        while jobs := self.core.take_jobs():
            for job in jobs:
                job.run()
                self.core.job_done(job, None, self.now_ms)
            self.core.flush(self.now_ms)

    def commits(self, number: int) -> bool:
        answer = self.ask(commit(number), COMMIT_VERSION)
        if answer is None:
            raise RuntimeError("a commit was not answered")
        return decode_response(answer, COMMIT_VERSION, OffsetCommitResponse).topics[0].partitions[0].error_code == 0

    def size(self) -> Size:
        return Size(len(self.store.objects), sum(map(len, self.store.objects.values())))


def commit(offset: int) -> OffsetCommitRequest:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=offset % 50, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=OFFSETS_TOPIC, partitions=[part])
    return OffsetCommitRequest(group_id="orders", topics=[topic])


def run_seconds(seconds: int) -> list[Size]:
    """The largest of every hour."""
    broker = Broker()
    hours: list[Size] = []
    for number in range(seconds):
        if number % STEP_S == 0:
            broker.pass_time(STEP_S)
        if not broker.commits(number):
            raise RuntimeError(f"commit {number} was refused")
        if number % 3600 == 0:
            hours.append(broker.size())
        elif number % LOOK_S == 0:
            found, last = broker.size(), hours[-1]
            hours[-1] = Size(max(found.objects, last.objects), max(found.data, last.data))
    return hours


def measure_week(table: Table, seconds: int) -> None:
    began = time.perf_counter()
    hours = run_seconds(seconds)
    half = max(len(hours) // 2, 1)
    for what, rows in (("first", hours[:half]), ("second", hours[half:] or hours[:half])):
        name = f"one commit a second for {seconds / 3600:,.0f} hours, {what} half"
        table.put("kohort", name, max(row.objects for row in rows), "objects at most", goal="bounded")
        table.put("kohort", name, max(row.data for row in rows) / 2**20, "MB at most", goal="bounded")
    took_s = time.perf_counter() - began
    table.notes.append(f"{seconds:,} commits in virtual time, on a store in memory, took {took_s:.0f} s")
