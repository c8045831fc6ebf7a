"""confluent-kafka (librdkafka): a worker that commits after its work, tested through a rebalance, a crash, an outage.

pip install kohort confluent-kafka pytest, then `pytest test_confluent_kafka.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

GROUP = "billing"
ORDERS = [b"%d" % number for number in range(40)]


class Worker:
    """The application: it would be imported."""

    def __init__(self, servers: str, done: list[bytes], name: str, **settings: Any) -> None:
        self.name, self._done = name, done
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,  # a test learns of a rebalance from the next heartbeat
                "reconnect.backoff.max.ms": 100,  # and comes back quickly after an outage
                "log_level": 2,
                **settings,
            }
        )
        self._consumer.subscribe(["orders"])

    def work(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None or message.error():
            return
        self._done.append(message.value())
        try:
            self._consumer.commit(message, asynchronous=False)
        except confluent_kafka.KafkaException:
            pass  # the partition is somebody else's now, who does this order again

    def close(self) -> None:
        self._consumer.close()


def work_until(condition: Callable[[], bool], *workers: Worker) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "it never came true"
        for worker in workers:
            worker.work()


@pytest.fixture
def done() -> list[bytes]:
    return []


@pytest.fixture
def hire(kohort_broker, kohort_topic, done) -> Iterator[Callable[..., Worker]]:
    kohort_topic("orders", partitions=4, records=ORDERS)
    hired: list[Worker] = []

    def start(name: str, **settings: Any) -> Worker:
        hired.append(Worker(kohort_broker.bootstrap_servers, done, name, **settings))
        return hired[-1]

    yield start
    for worker in hired:
        worker.close()


def test_two_workers_share_the_orders(hire, done, kohort_broker):
    workers = hire("one"), hire("two")
    work_until(lambda: len(kohort_broker.group(GROUP).members) == 2, *workers)
    work_until(lambda: set(done) == set(ORDERS), *workers)
    shares = [member.assignment["orders"] for member in kohort_broker.wait_stable(GROUP, members=2).members]
    assert sorted(map(len, shares)) == [2, 2]


def test_a_crash_loses_nothing(hire, done, kohort_broker, kohort_clock):
    crashing = hire("crashing", **{"session.timeout.ms": 10_000})
    work_until(lambda: len(done) >= 5, crashing)
    kohort_broker.faults.disconnect("LeaveGroup", client="crashing")  # librdkafka says goodbye, but nobody hears it
    crashing.close()
    survivor = hire("survivor")
    kohort_clock.advance(10)
    work_until(lambda: set(done) == set(ORDERS), survivor)
    assert "MemberEvicted" in [event.type for event in kohort_broker.story(GROUP)]


def test_thrown_out_while_it_works(hire, done, kohort_broker):
    only = hire("only")
    work_until(lambda: len(done) >= 5, only)
    kohort_broker.evict(GROUP, client="only")
    work_until(lambda: set(done) == set(ORDERS), only)
    assert sum(kohort_broker.committed(GROUP).values()) == len(ORDERS)


def test_an_outage_is_survived(hire, done, kohort_broker):
    only = hire("only")
    work_until(lambda: len(done) >= 5, only)
    kohort_broker.restart()
    work_until(lambda: set(done) == set(ORDERS), only)


def test_what_it_sends(hire, done, kohort_broker, kohort_requests):
    only = hire("only")
    work_until(lambda: len(done) == len(ORDERS), only)
    commits = kohort_requests("OffsetCommit", client="only")
    assert len(commits) == len(ORDERS)
    assert all(len(commit.topics[0].partitions) == 1 for commit in commits)
