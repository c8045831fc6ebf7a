"""The console over a real Apache Kafka: live, and over what an ingest has taken from its `__consumer_offsets`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import kohort.spark
from apache_kafka import ApacheKafka
from console_running import Running, until
from kohort.console.kept import KeptSource
from kohort.console.live import LiveSource
from kohort.history.ingest import Ingest
from spark.query import create, unique

LIMIT_S = 60
PARTITIONS = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = kohort.spark.session("tests", "local[2]", {"spark.driver.memory": "512m", "spark.log.level": "ERROR"})
    yield session
    session.stop()


class Group:
    """Members of librdkafka, polled in turns."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.servers, self.group, self.topic = servers, group, topic
        self.members: dict[str, Consumer] = {}

    def joins(self, name: str) -> None:
        settings = {"group.id": self.group, "client.id": name, "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": self.servers, "enable.auto.commit": False, **settings})
        consumer.subscribe([self.topic])
        self.members[name] = consumer
        self.settle()

    def leaves(self, name: str) -> None:
        self.members.pop(name).close()
        self.settle()

    def settle(self) -> None:
        """Until all partitions are assigned, evenly; then everything is committed."""
        deadline = time.monotonic() + LIMIT_S
        wanted = [PARTITIONS // len(self.members)] * len(self.members)
        while [len(one.assignment()) for one in self.members.values()] != wanted:
            assert time.monotonic() < deadline, "the group does not settle"
            for one in self.members.values():
                one.consume(100, 0.1)
        for one in self.members.values():
            one.consume(100, 1)
            mine = one.assignment()
            reached = [place for place in one.position(mine) if place.offset >= 0]
            one.commit(offsets=reached or one.committed(mine, LIMIT_S), asynchronous=False)

    def close(self) -> None:
        for one in self.members.values():
            one.close()


def told(console: Running, group: str) -> dict[str, Any]:
    """The group's timeline once all of its past is read."""

    def look() -> Any:
        row = console.row(group)
        if row is None or row["members"] != 1 or row["rebalances_per_hour"] < 3:
            return None
        return console.get("group", group=group)

    view: dict[str, Any] = until(look, "the group's past is read")
    return view


def checked(view: dict[str, Any], topic: str) -> None:
    """One joined, two joined, two left: estimated, as no Kafka stores how long it took."""
    bands, bars = view["bands"], view["bars"]
    assert not view["exact"] and not any(bands["exact"])
    assert bands["members"] == [1, 2, 1]
    texts = [view["texts"][i] for i in bands["text"]]
    assert "two" in texts[1] and "joined" in texts[1] and "two" in texts[2]
    assert bands["moved"][1:] == [2, 2]
    held = [
        (view["lanes"][lane]["client_id"], bars["sets"][s]) for lane, s in zip(bars["lane"], bars["set"], strict=True)
    ]
    assert ("one", [[topic, [0, 1, 2, 3]]]) in held and {name for name, _ in held} == {"one", "two"}
    for still, start, end in zip(bands["standstill"][1:], bands["start"][1:], bands["end"][1:], strict=True):
        assert still is not None and 0 <= still == end - start < LIMIT_S * 1000
    assert {(row["partition"], row["lag"], row["reader"].split()[0]) for row in view["partitions"]} == {
        (partition, 0, "one") for partition in range(PARTITIONS)
    }


def test_a_real_kafkas_groups_live_and_from_an_ingest(apache_kafka: ApacheKafka, spark: Any, tmp_path: Path) -> None:
    servers, topic = apache_kafka.bootstrap_servers, unique("orders")
    create(servers, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(40):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    producer.flush(LIMIT_S)
    group = Group(servers, unique("workers"), topic)
    try:
        with Running(lambda: LiveSource(settings={"bootstrap.servers": servers}, look_every_s=0.5)) as live:
            group.joins("one")
            until(lambda: (row := live.row(group.group)) and row["members"] == 1, "it appears by itself")
            group.joins("two")
            group.leaves("two")
            checked(told(live, group.group), topic)
        with Running(lambda: LiveSource(settings={"bootstrap.servers": servers}, look_every_s=0.5)) as later:
            checked(told(later, group.group), topic)  # a console that is started afterwards reads the past
        Ingest(spark, servers, tmp_path).run()
        with Running(lambda: KeptSource(directory=tmp_path)) as kept:
            checked(told(kept, group.group), topic)
    finally:
        group.close()
