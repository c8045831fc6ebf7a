"""Members of a consumer group made of other people's clients, each on a thread, noting what it reads and commits."""

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
from kafka.consumer.subscription_state import ConsumerRebalanceListener

LIMIT_S = 60
TOPIC = "orders"


def until(condition: Any, what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"waited {LIMIT_S} s for {what}"
        time.sleep(0.02)


class Ledger:
    """What all members have read, in order, and the periods in which they owned a partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reads: list[tuple[str, int, int, int]] = []  # member, partition, offset, period
        self.committed: dict[int, int] = {}
        self.violations: list[str] = []
        self._last: dict[tuple[str, int, int], int] = {}

    def read(self, member: str, partition: int, offset: int, period: int) -> None:
        with self._lock:
            where = (member, partition, period)
            last = self._last.get(where)
            if last is not None and offset != last + 1:
                self.violations.append(f"{member} read {partition}/{offset} right after {last}, in one assignment")
            if last is None and offset < self.committed.get(partition, 0):
                known = self.committed[partition]
                self.violations.append(f"{member} began {partition} at {offset}, below the commit {known}")
            self._last[where] = offset
            self.reads.append((member, partition, offset, period))

    def commit(self, partition: int, offset: int) -> None:
        with self._lock:
            if offset < self.committed.get(partition, 0):
                self.violations.append(f"the commit of {partition} went back to {offset}")
            self.committed[partition] = offset

    def offsets(self) -> dict[int, list[int]]:
        with self._lock:
            read: dict[int, list[int]] = defaultdict(list)
            for _, partition, offset, _ in self.reads:
                read[partition].append(offset)
            return read

    def has_all(self, partitions: int, per_partition: int) -> bool:
        read = self.offsets()
        return all(set(read[p]) >= set(range(per_partition)) for p in range(partitions))

    def duplicates(self) -> int:
        return sum(len(offsets) - len(set(offsets)) for offsets in self.offsets().values())


class Member:
    """A member on its own thread: reads, commits every few records and whenever partitions are taken from it."""

    def __init__(self, name: str, servers: str, ledger: Ledger, **config: Any) -> None:
        self.name, self.servers, self.ledger, self.config = name, servers, ledger, config
        self.assigned: set[int] = set()
        self.period = 0
        self.positions: dict[int, int] = {}
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        assert self.error is None, f"{self.name}: {self.error!r}"

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error

    def run(self) -> None:
        raise NotImplementedError

    def got(self, partition: int, offset: int, period: int | None = None) -> bool:
        """Notes a record; True when it is time to commit."""
        self.ledger.read(self.name, partition, offset, self.period if period is None else period)
        self.positions[partition] = offset + 1
        return offset % 10 == 9

    def committed(self, positions: dict[int, int]) -> None:
        for partition, offset in positions.items():
            self.ledger.commit(partition, offset)


class ConfluentMember(Member):
    def run(self) -> None:
        base = {
            "bootstrap.servers": self.servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1_000,
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
        consumer = ck.Consumer(base | self.config)
        consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            if self.got(message.partition(), message.offset()):
                self._commit(consumer, [message.partition()])
        consumer.close()

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.period += 1
        self.assigned |= {p.partition for p in partitions}

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._commit(consumer, [p.partition for p in partitions])
        self._forget(partitions)

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: list[Any]) -> None:
        for p in partitions:
            self.assigned.discard(p.partition)
            self.positions.pop(p.partition, None)
        self.period += 1

    def _commit(self, consumer: Any, partitions: list[int]) -> None:
        positions = {p: self.positions[p] for p in partitions if p in self.positions}
        if not positions:
            return
        offsets = [ck.TopicPartition(TOPIC, p, offset) for p, offset in positions.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except ck.KafkaException:
            return
        self.committed(positions)


class KafkaPythonMember(Member, ConsumerRebalanceListener):
    """Commits by itself, before it rejoins and when it closes: its listener runs where nothing may block."""

    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=50,
            **self.config,
        )
        consumer.subscribe([TOPIC], listener=self)
        while not self._stop.is_set():
            batches = consumer.poll(timeout_ms=100)
            period = self.period
            for records in batches.values():
                for record in records:
                    self.got(record.partition, record.offset, period)
        consumer.close()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.assigned.clear()
        self.period += 1

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned = {p.partition for p in assigned}
        self.period += 1


class AiokafkaMember(Member, aiokafka.ConsumerRebalanceListener):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self.consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=50,
            **self.config,
        )
        await self.consumer.start()
        self.consumer.subscribe([TOPIC], listener=self)
        while not self._stop.is_set():
            batches = await self.consumer.getmany(timeout_ms=100)
            for partition, records in batches.items():
                due = [self.got(record.partition, record.offset) for record in records]
                if any(due):
                    await self._commit([partition.partition])
        await self._commit(list(self.positions))
        await self.consumer.stop()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._commit([p.partition for p in revoked])
        self.assigned.clear()
        self.positions.clear()
        self.period += 1

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned = {p.partition for p in assigned}
        self.period += 1

    async def _commit(self, partitions: list[int]) -> None:
        positions = {p: self.positions[p] for p in partitions if p in self.positions}
        if positions:
            await self.consumer.commit({aiokafka.TopicPartition(TOPIC, p): offset for p, offset in positions.items()})
            self.committed(positions)
