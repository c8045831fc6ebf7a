"""A query run without Spark: the calls Spark makes on the driver of a stream, one by one, and what its tasks read."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kohort.spark import fetch
from kohort.spark.driver import QueryDriver
from kohort.spark.offsets import StreamOffset
from kohort.spark.options import parse_read_options

QUICK = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "200",
    "metadata.max.age.ms": "500",
    "default.api.timeout.ms": "20000",
}


def until(condition: Callable[[], Any], seconds: float = 60, what: str = "", every: float = 0.02) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(every)
    return found


class Query:
    """One run of a streaming query. `offset` is its checkpoint: pass it to the next run."""

    def __init__(self, servers: str, group: str, checkpoint: dict[str, Any] | None = None, **options: str) -> None:
        given = {"kafka.bootstrap.servers": servers, "group.id": group, **QUICK}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        if given.get("group.protocol") == "consumer":
            del given["session.timeout.ms"], given["heartbeat.interval.ms"]
        if "startingTimestamp" not in given:
            given.setdefault("startingOffsets", "earliest")
        if "subscribePattern" not in given:
            given.setdefault("subscribe", "orders")
        self.options = parse_read_options(given, "stream")
        self.driver = QueryDriver(self.options)
        self.driver.start()
        try:
            self.offset = checkpoint or self.driver.initial_offset()
        except BaseException:
            self.driver.stop("it has failed")
            raise
        self.planned: dict[str, Any] | None = None
        self.idle = False
        """Whether Spark was told that nothing is left to read; a batch without rows says something else."""
        self.rows: list[tuple[str, int, int, str]] = []

    def plan(self, limit: int | None = None) -> bool:
        """latestOffset: whether there is a batch to run. All before it is durable by now."""
        end = self.driver.latest_offset(self.offset, limit)
        self.idle = end == self.offset
        if not any(stop > first for spans in end["offsets"].values() for first, stop in spans.values()):
            self.offset = end
        self.planned = None if end == self.offset else end
        return self.planned is not None

    def run(self) -> int:
        """Run the planned batch and make it durable."""
        assert self.planned is not None
        found = read_batch(self, self.planned)
        self.rows += found
        self.offset, self.planned = self.planned, None
        return len(found)

    def step(self, limit: int | None = None) -> int:
        return self.run() if self.plan(limit) else 0

    def step_until(self, rows: int) -> None:
        until(lambda: self.step() is not None and len(self.rows) >= rows, what=f"{rows} rows, {len(self.rows)} so far")
        self.plan_nothing()

    def plan_nothing(self) -> None:
        """The call after the last batch, which commits it."""
        assert not self.plan()

    def owned(self) -> set[tuple[str, int]]:
        return {tuple(tp) for tp in self.driver.holdings.owned()}

    def values(self) -> list[str]:
        return [row[3] for row in self.rows]

    def stop(self) -> None:
        self.driver.stop("the test is over")

    def vanish(self) -> None:
        """End without a word, as kill -9 does."""
        member = self.driver._membership
        member._left = True
        member._driver.wake()
        member._thread.join()


def read_batch(query: Query, end: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    rows: list[tuple[str, int, int, str]] = []
    columns = ("topic", "partition", "offset", "value")
    ids = StreamOffset.from_json(end).topic_ids()
    for pieces in query.driver.tasks(end):
        task = fetch.ReadTask(pieces, columns, query.options.settings, query.options.fail_on_data_loss, ids)
        for batch in fetch.read(task):
            rows += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return [(topic, partition, offset, value.decode()) for topic, partition, offset, value in rows]


@contextlib.contextmanager
def stopping(*queries: Query) -> Iterator[None]:
    try:
        yield
    finally:
        for query in queries:
            query.stop()


# -- the world around it -------------------------------------------------------------------------------------------


def unique(prefix: str = "g") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def numbers(first: int, stop: int) -> list[str]:
    return [str(number) for number in range(first, stop)]


def produce(
    servers: str, topic: str, values: list[str], partition: int | None = None, client: dict[str, str] | None = None
) -> None:
    """Round robin over four partitions unless one is named."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **(client or {})})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 4 if partition is None else partition)
    assert producer.flush(30) == 0


def produce_transactions(servers: str, topic: str) -> Producer:
    """Three of three records each to one partition, of which the second is aborted; the producer, for more."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("till")})
    producer.init_transactions(60)
    for name, keep in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{name}{number}", partition=0)
        producer.flush()
        producer.commit_transaction(60) if keep else producer.abort_transaction(60)
    return producer


def create(servers: str, topic: str, partitions: int = 4, client: dict[str, str] | None = None, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, **(client or {})})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def grow(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)


def create_again(servers: str, topic: str, partitions: int = 2) -> None:
    delete(servers, topic)
    until(lambda: topic not in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics)
    create(servers, topic, partitions)


def commit(servers: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """As an operator does with an empty group."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    wanted = [ConfluentPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def committed(
    servers: str, group: str, topic: str, partitions: int = 4, client: dict[str, str] | None = None
) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, **(client or {})})
    try:
        found = consumer.committed([ConfluentPartition(topic, number) for number in range(partitions)], timeout=30)
    finally:
        consumer.close()
    return {tp.partition: tp.offset for tp in found if tp.offset >= 0}


def members(servers: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": servers})
    return len(admin.describe_consumer_groups([group])[group].result(30).members)
