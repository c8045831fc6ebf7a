"""Records that are in segments of the store are read from there when they are asked for, through a bounded memory."""

import logging
import threading
import time

import pytest

import kohort
from kohort.broker.apis import fetch
from kohort.cluster.memory_engine import Mishap
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.storage.cold_segment import ColdSegment

CACHE = 1024 * 1024
CONFIG = {
    "kohort.cluster.cache.bytes": CACHE,
    "kohort.cluster.journal.objects": 20,
    "kohort.cluster.balance.delay.ms": 3_600_000,
}
BEGAN = int(time.time() * 1000) - 60_000
VALUE = 4_000
COUNT = 1_500
ORDERS = kohort.TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def full():
    """Two brokers, and one partition with six times of what each may have in memory."""
    with kohort.Cluster(2, config=CONFIG) as cluster:
        cluster.create_topic("orders", 1)
        with kohort.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            sent = [producer.send("orders", b"%06d" % n + bytes(VALUE), timestamp_ms=BEGAN + n) for n in range(COUNT)]
            for delivery in sent:
                delivery.result()
        yield cluster


def leader(cluster):
    return cluster.brokers[cluster.leader_of("orders", 0)]


def membership(broker):
    return broker._call(lambda running: running.core.membership)


def log_of(broker):
    return broker._call(lambda running: running.core.topics.partition("orders", 0).log)


def settle(cluster):
    """All but the newest is in segments."""
    cluster._until(lambda: log_of(leader(cluster)).fresh_bytes <= CACHE // 4 or None, "not all is in segments")


def numbers(cluster):
    return [int(record.value[:6]) for record in cluster.records("orders", 0)]


def forget(broker):
    """Nothing is in memory any more."""
    cache = membership(broker).cache
    for segment in log_of(broker).segments:
        if isinstance(segment, ColdSegment):
            cache.forget(segment.row)


@pytest.fixture
def cold(full):
    settle(full)
    broker = leader(full)
    forget(broker)
    yield broker
    broker.engine.chance = None


def test_memory_is_bounded_and_all_can_be_read(full):
    settle(full)
    cache = membership(leader(full)).cache
    assert numbers(full) == list(range(COUNT))
    assert cache.loads > 5
    assert cache.used_bytes <= CACHE
    assert log_of(leader(full)).fresh_bytes <= CACHE // 4
    assert log_of(leader(full)).size_bytes > 5 * CACHE


def test_the_tail_comes_from_memory(full):
    settle(full)
    forget(leader(full))
    with kohort.Producer(bootstrap_servers=full.bootstrap_servers) as producer:
        last = producer.send("orders", b"%06d" % COUNT).result().offset
    cache = membership(leader(full)).cache
    before = cache.loads
    with kohort.Consumer(bootstrap_servers=full.bootstrap_servers) as reader:
        reader.assign([ORDERS])
        reader.seek(ORDERS, last)
        assert reader.poll(10)[0].offset == last
    assert cache.loads == before


def test_a_take_over_reads_no_segments(full):
    settle(full)
    was = leader(full)
    expected = numbers(full)
    other = next(broker for broker in full.brokers.values() if broker is not was)
    loads = membership(other).cache.loads
    full.kill(was.node_id)
    assert leader(full) is other
    assert membership(other).cache.loads == loads
    assert log_of(other).end_offset == len(expected)
    full.start(was.node_id)
    assert numbers(full) == expected


def test_a_store_that_fails_gives_an_error_on_which_clients_ask_again(full, cold):
    cold.engine.chance = lambda verb, name: Mishap.REFUSED if name.startswith("seg/") else Mishap.NONE
    with pytest.raises(KafkaError) as refused:
        numbers(full)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    cold.engine.chance = None
    assert numbers(full)[:COUNT] == list(range(COUNT))


def test_a_store_that_is_slow_holds_up_nobody_else(full, cold, monkeypatch):
    monkeypatch.setattr(fetch, "STORE_WAIT_MS", 50)
    go_on, asked = threading.Event(), threading.Event()

    def slow(verb, name):
        if name.startswith("seg/") and verb == "get":
            asked.set()
            go_on.wait(30)
        return Mishap.NONE

    cold.engine.chance = slow
    try:
        with pytest.raises(KafkaError) as refused:
            numbers(full)
        assert asked.is_set()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with kohort.Producer(bootstrap_servers=full.bootstrap_servers) as producer:
            producer.send("orders", b"%06d" % COUNT).result()
    finally:
        go_on.set()
    monkeypatch.undo()
    assert numbers(full)[:COUNT] == list(range(COUNT))


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_segment_is_told_of_and_nothing_is_skipped(full, cold, caplog, damage):
    name = log_of(cold).segments[0].row.name
    objects = full.store.objects
    whole = objects[name]
    try:
        if damage == "changed":
            objects[name] = whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:]
        else:
            del objects[name]
        with caplog.at_level(logging.ERROR), pytest.raises(KafkaError) as refused:
            numbers(full)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
        assert name in caplog.text and "restored from a copy" in caplog.text
    finally:
        objects[name] = whole
        membership(cold).cache._told.clear()
    assert numbers(full)[:COUNT] == list(range(COUNT))


def test_a_time_in_old_segments_is_found(full, cold):
    with kohort.Consumer(bootstrap_servers=full.bootstrap_servers) as reader:
        found = reader.offsets_for_times({ORDERS: BEGAN + 700})
    assert found[ORDERS].offset == 700


def test_groups_are_loaded_from_segments(full):
    with kohort.Consumer(
        bootstrap_servers=full.bootstrap_servers, group_id="billing", enable_auto_commit=False
    ) as reader:
        reader.assign([ORDERS])
        for offset in range(60):
            reader.commit({ORDERS: offset})
    was = full.brokers[full.coordinator_of("billing")]
    full._until(lambda: any(_is_cold(was, "billing")) or None, "no commits are in segments")
    other = next(broker for broker in full.brokers.values() if broker is not was)
    loads = membership(other).cache.loads
    full.kill(was.node_id)
    assert full.committed("billing") == {("orders", 0): 59}
    assert membership(other).cache.loads > loads
    full.start(was.node_id)


def _is_cold(broker, group):
    topics = broker._call(lambda running: running.core.topics)
    partitions = topics.by_name["__consumer_offsets"].partitions
    return [isinstance(s, ColdSegment) for p in partitions if p.leads for s in p.log.segments]
