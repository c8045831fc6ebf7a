"""Topics that grow, that are deleted and created again, and runs that must not end before all was read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

import kohort
from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.spark import driver, fetch
from kohort.spark.accounting import DataLossError
from kohort.spark.options import OptionError
from kohort.spark.tags import CommitTag
from spark.query import (
    Query,
    commit,
    committed,
    create,
    create_again,
    grow,
    numbers,
    produce,
    stopping,
    unique,
    until,
)


@pytest.fixture
def topic(servers: str) -> str:
    name = unique("orders")
    create(servers, name, 2)
    return name


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "kohort.spark"):
        yield caplog


# -- topics that grow ------------------------------------------------------------------------------------------------


FUTURE = str(int(time.time() * 1000) + 10**9)


@pytest.mark.parametrize("starting", [{"startingOffsets": "latest"}, {"startingTimestamp": FUTURE}])
def test_new_partitions_are_read_from_their_first_record(servers: str, topic: str, starting: dict[str, str]) -> None:
    produce(servers, topic, numbers(0, 10), partition=0)
    group = unique()
    if "startingTimestamp" in starting:
        commit(servers, group, topic, {0: 10, 1: 0})
    query = Query(servers, group, subscribe=topic, **starting)
    with stopping(query):
        query.plan_nothing()
        grow(servers, topic, 4)
        produce(servers, topic, numbers(10, 20), partition=2)
        produce(servers, topic, numbers(20, 30), partition=3)
        query.step_until(20)
        assert sorted(query.values()) == numbers(10, 30)


def test_whoever_gets_a_new_partition_reads_it_from_its_first_record(servers: str, topic: str) -> None:
    """The query that saw the topic before it grew is gone, with its checkpoint: the group's commits tell."""
    group = unique()
    first = Query(servers, group, subscribe=topic, startingOffsets="latest")
    first.plan_nothing()
    first.stop()
    grow(servers, topic, 4)
    produce(servers, topic, numbers(0, 10), partition=3)
    second = Query(servers, group, subscribe=topic, startingOffsets="latest")
    with stopping(second):
        second.step_until(10)
        assert sorted(second.values()) == numbers(0, 10)


def test_partitions_that_were_there_when_the_group_began_start_where_it_was_asked_for(servers: str, topic: str) -> None:
    """A member may commit its share before another has seen its own."""
    produce(servers, topic, numbers(0, 10), partition=0)
    produce(servers, topic, numbers(10, 20), partition=1)
    group = unique()
    first = Query(servers, group, subscribe=topic, startingOffsets="latest")
    first.plan_nothing()
    first.stop()
    with kohort.Admin(bootstrap_servers=servers) as admin:
        admin.delete_group_offsets(group, [TopicPartition(topic, 1)])
    assert committed(servers, group, topic, 2) == {0: 10}
    second = Query(servers, group, subscribe=topic, startingOffsets="latest")
    with stopping(second):
        second.plan_nothing()
        assert committed(servers, group, topic, 2) == {0: 10, 1: 10}


def test_a_topic_that_comes_after_the_query_began_is_read_from_its_first_record(servers: str) -> None:
    topic, group = unique("late"), unique()
    query = Query(servers, group, subscribe=topic, startingOffsets="latest")
    query.plan_nothing()
    query.stop()
    create(servers, topic, 1)
    produce(servers, topic, numbers(0, 10), partition=0)
    again = Query(servers, group, checkpoint=query.offset, subscribe=topic, startingOffsets="latest")
    with stopping(again):
        again.step_until(10)


def test_starting_offsets_of_partitions_that_do_not_exist_are_refused(servers: str, topic: str) -> None:
    with pytest.raises(OptionError, match=f"{topic}-7"):
        Query(servers, unique(), subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 0, "1": 0, "7": 5}}}}')


# -- topics that are created again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
def test_a_topic_that_was_created_again_is_a_loss(
    servers: str, topic: str, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "GONE_PATIENCE_MS", 500)
    produce(servers, topic, numbers(0, 100), partition=0)
    group = unique()
    query = Query(servers, group, subscribe=topic)
    query.step_until(100)
    if not running:
        query.stop()
    create_again(servers, topic)
    produce(servers, topic, numbers(100, 250), partition=0)
    if not running:
        query = Query(servers, group, checkpoint=query.offset, subscribe=topic)
    with stopping(query), pytest.raises(DataLossError, match="created again"):
        until(query.step)


@pytest.mark.parametrize("strict", [True, False])
def test_a_topic_that_was_created_again_is_not_called_cut_off(
    servers: str, topic: str, strict: bool, monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture
) -> None:
    """It ends before the position, and its id has not been looked at for a while."""
    monkeypatch.setattr(driver, "TOPICS_AGE_SECONDS", 3600)
    produce(servers, topic, numbers(0, 100), partition=0)
    query = Query(servers, unique(), subscribe=topic, failOnDataLoss=str(strict).lower())
    query.step_until(100)
    create_again(servers, topic)
    produce(servers, topic, numbers(100, 150), partition=0)
    with stopping(query):
        if strict:
            with pytest.raises(DataLossError, match="was deleted and created again"):
                query.plan()
            return
        query.step_until(150)
        assert query.values()[-50:] == numbers(100, 150)
        assert "was deleted and created again" in warnings.text and "cut off" not in warnings.text


@pytest.mark.parametrize("running", [True, False])
def test_a_topic_that_was_created_again_is_read_from_its_first_record(
    servers: str, topic: str, running: bool, warnings: pytest.LogCaptureFixture
) -> None:
    produce(servers, topic, numbers(0, 100), partition=0)
    group = unique()
    query = Query(servers, group, subscribe=topic, failOnDataLoss="false")
    query.step_until(100)
    if not running:
        query.stop()
    create_again(servers, topic)
    produce(servers, topic, numbers(100, 250), partition=0)
    if not running:
        query = Query(servers, group, checkpoint=query.offset, subscribe=topic, failOnDataLoss="false")
    with stopping(query):
        until(lambda: query.step() is not None and "249" in query.values())
        query.plan_nothing()
        assert query.values()[-150:] == numbers(100, 250)
        assert committed(servers, group, topic, 2)[0] == 150
        assert "was deleted and created again" in warnings.text
    later = Query(servers, group, checkpoint=query.offset, subscribe=topic)
    with stopping(later):
        later.plan_nothing()


def test_a_topic_created_again_smaller_and_grown_is_read_from_its_first_records(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the new topic is noticed it lacks a partition, of which a position is known."""
    produce(servers, topic, numbers(0, 100), partition=1)
    query = Query(servers, unique(), subscribe=topic, failOnDataLoss="false", metadata_max_age_ms="600000")
    with stopping(query):
        query.step_until(100)
        create_again(servers, topic, 1)
        monkeypatch.setattr(driver, "PATIENCE_MS", 100)
        until(lambda: query.plan() or query.driver.holdings.positions().get(TopicPartition(topic, 1)) != 100)
        grow(servers, topic, 2)
        produce(servers, topic, numbers(100, 250), partition=1)
        until(lambda: query.step() is not None and "249" in query.values())
        assert query.values()[100:] == numbers(100, 250)


def test_a_run_reads_all_of_a_topic_that_is_created_again_meanwhile(servers: str, topic: str) -> None:
    """AvailableNow: the end that was noted at the start is one of the old topic."""
    produce(servers, topic, numbers(0, 20), partition=0)
    query = Query(servers, unique(), subscribe=topic, failOnDataLoss="false")
    with stopping(query):
        query.driver.stop_at_present_end()
        assert until(lambda: query.plan(5)) and query.run() == 5
        create_again(servers, topic)
        produce(servers, topic, numbers(20, 120), partition=0)
        while query.plan():
            query.run()
        assert query.values()[5:] == numbers(20, 120)


def test_a_commit_of_a_topic_that_was_created_again_is_a_loss_for_the_next_query_too(servers: str, topic: str) -> None:
    """The last commit of the old topic came after it was deleted, as it does where its member had not noticed."""
    produce(servers, topic, numbers(0, 100), partition=0)
    group = unique()
    first = Query(servers, group, subscribe=topic)
    first.step_until(100)
    until(lambda: committed(servers, group, topic, 2) == {0: 100, 1: 0})
    first.stop()
    settings = {"enable_auto_commit": False, "allow_auto_create_topics": False}
    with kohort.Consumer(bootstrap_servers=servers, group_id=group, **settings) as reader:
        partition = TopicPartition(topic, 0)
        reader.assign([partition])
        before = reader.committed([partition])
        create_again(servers, topic)
        reader.commit(before)
    assert committed(servers, group, topic, 2) == {0: 100}
    produce(servers, topic, numbers(100, 250), partition=0)
    second = Query(servers, group, subscribe=topic)
    with stopping(second), pytest.raises(DataLossError, match="was deleted and created again"):
        until(second.plan)


def test_a_batch_of_the_old_topic_does_not_read_the_new_one(servers: str, topic: str) -> None:
    produce(servers, topic, numbers(0, 100), partition=0)
    query = Query(servers, unique(), subscribe=topic, failOnDataLoss="false", request_timeout_ms="2000")
    with stopping(query):
        until(query.plan)
        create_again(servers, topic)
        produce(servers, topic, numbers(100, 250), partition=0)
        assert query.run() == 0, "offsets of the old topic are not to be found in the new one"
        until(lambda: query.step() is not None and len(query.rows) >= 150)
        assert query.values() == numbers(100, 250)


# -- commits that every client can read ------------------------------------------------------------------------------


def test_librdkafka_reads_the_metadata_of_commits(servers: str) -> None:
    topic, group = unique("wide"), unique()
    create(servers, topic, 40)
    query = Query(servers, group, subscribe=topic)
    query.plan_nothing()
    query.stop()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        found = consumer.committed([ConfluentPartition(topic, number) for number in range(40)], timeout=30)
    finally:
        consumer.close()
    assert len({tp.metadata for tp in found}) == 1
    prefix, name, topic_id, began = found[0].metadata.split(":")
    assert (prefix, len(name), len(topic_id), began) == ("kohort-spark", 16, 22, "40")


def test_other_clients_read_the_metadata_of_commits(servers: str, topic: str) -> None:
    group = unique()
    query = Query(servers, group, subscribe=topic)
    query.plan_nothing()
    query.stop()
    place = KafkaPythonPartition(topic, 0)
    reader = KafkaConsumer(bootstrap_servers=servers, group_id=group)
    try:
        theirs = reader.committed(place, metadata=True).metadata
    finally:
        reader.close()
    with kohort.Consumer(bootstrap_servers=servers, group_id=group) as own:
        found = own.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert found is not None and theirs == found.metadata
    tag = CommitTag.parse(theirs)
    assert tag is not None and tag.began == 2 and theirs.isprintable() is False and theirs.rstrip("\0").isprintable()


# -- AvailableNow ----------------------------------------------------------------------------------------------------


def available_now(query: Query, limit: int | None = None) -> list[str]:
    query.driver.stop_at_present_end()
    while query.plan(limit):
        query.run()
    return query.values()


def test_commits_that_cannot_be_had_for_a_moment_end_no_run(servers: str, topic: str, broker: kohort.Broker) -> None:
    produce(servers, topic, numbers(0, 10), partition=0)
    group = unique()
    broker.faults.fail("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3, group=group)
    query = Query(servers, group, subscribe=topic)
    with stopping(query):
        assert available_now(query) == numbers(0, 10)


def test_a_consumer_that_joins_takes_its_share_and_nothing_more(servers: str, topic: str) -> None:
    """With an eager assignor everything is given up for a moment, which is not the end."""
    for partition in (0, 1):
        produce(servers, topic, numbers(partition * 50, partition * 50 + 50), partition=partition)
    group = unique()
    query = Query(servers, group, subscribe=topic, partition_assignment_strategy="range")
    settings = {
        "bootstrap.servers": servers, "group.id": group, "partition.assignment.strategy": "range",
        "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200,
        "enable.auto.commit": False,
    }  # fmt: skip
    consumer, seen = Consumer(settings), []

    def consume() -> None:
        consumer.subscribe([topic])
        while len(seen) + len(query.rows) < 100 and time.monotonic() < deadline:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                seen.append(message.value().decode())
                consumer.commit(message, asynchronous=False)

    deadline = time.monotonic() + 60
    other = threading.Thread(target=consume)
    with stopping(query):
        query.driver.stop_at_present_end()
        assert query.plan(10)
        other.start()
        until(lambda: not query.driver._membership.settled, what="the rebalance is known to the query")
        query.run()
        while query.plan(10):
            query.run()
        other.join()
    consumer.close()
    assert set(query.values()) | set(seen) == set(numbers(0, 100))
    owned = {partition for _, partition, _, _ in query.rows}
    assert len(owned) == 2 and not set(query.values()) & set(seen)


def test_a_run_on_a_topic_that_does_not_exist_fails(servers: str) -> None:
    query = Query(servers, unique(), subscribe="no-such-topic")
    with stopping(query), pytest.raises(OptionError, match="no such topic or partition: no-such-topic"):
        available_now(query)


def test_a_run_that_gets_no_answer_fails_with_the_reason(servers: str, topic: str, broker: kohort.Broker) -> None:
    produce(servers, topic, numbers(0, 10), partition=0)
    group = unique()
    fault = broker.faults.fail("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None, group=group)
    query = Query(servers, group, subscribe=topic, max_poll_interval_ms="3000")
    try:
        with stopping(query), pytest.raises(TimeoutError, match="where to read"):
            available_now(query)
    finally:
        broker.faults.remove(fault)
