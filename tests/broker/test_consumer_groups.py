"""KIP-848 groups on the broker: the wire, group-level configuration, topics that come, grow and go, real clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

import kohort
from kafka_socket import KafkaSocket
from kohort.broker.groups import GroupService
from kohort.coordinator import expressions
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from wire import CoreClient, World

CONFIG = {"offsets.topic.num.partitions": 1, "group.consumer.assignment.interval.ms": 0}


@pytest.fixture
def world() -> World:
    made = World(CONFIG, None, GroupService)
    made.create_topic("orders", 2)
    client = made.connect()
    client.call(messages.FindCoordinatorRequest(key="g"), 1)
    return made


def heartbeat(client: CoreClient, epoch: int, **fields: Any) -> Any:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["orders"], "topic_partitions": []} | fields
    return client.call(
        messages.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **fields), 1
    )


def partitions(answer: Any) -> list[int]:
    return [number for row in answer.assignment.topic_partitions for number in row.partitions]


def test_what_a_group_is_configured_to_be_has_its_effect(world: World) -> None:
    client = world.connect()
    assert heartbeat(client, 0).heartbeat_interval_ms == 5_000
    kind = messages.IncrementalAlterConfigsRequest
    row = kind.AlterableConfig(name="consumer.heartbeat.interval.ms", value="7000")
    resource = kind.AlterConfigsResource(resource_type=32, resource_name="g", configs=[row])
    assert not client.call(kind(resources=[resource]), 1).responses[0].error_code
    assert heartbeat(client, 2).heartbeat_interval_ms == 7_000


def test_topics_that_come_grow_and_go(world: World) -> None:
    client = world.connect()
    joined = heartbeat(client, 0, subscribed_topic_names=["orders", "bills"])
    assert partitions(joined) == [0, 1]
    world.create_topic("bills", 1)
    came = heartbeat(client, 2)
    assert (came.member_epoch, sorted(partitions(came))) == (3, [0, 0, 1])
    kind = messages.CreatePartitionsRequest
    grow = kind.CreatePartitionsTopic(name="orders", count=4, assignments=None)
    assert not client.call(kind(topics=[grow], timeout_ms=1_000), 3).results[0].error_code
    grew = heartbeat(client, 3)
    assert (grew.member_epoch, sorted(partitions(grew))) == (4, [0, 0, 1, 2, 3])
    delete = messages.DeleteTopicsRequest(topic_names=["bills"], timeout_ms=1_000)
    assert not client.call(delete, 5).responses[0].error_code
    assert sorted(partitions(heartbeat(client, 4))) == [0, 1, 2, 3]


def test_an_assignor_that_does_not_exist_is_told_at_the_start() -> None:
    with pytest.raises(ValueError, match="use uniform, range or"):
        World({"group.consumer.assignors": "sticky"}, None, GroupService)


def test_a_group_can_be_described_by_the_old_api_only_as_gone(world: World) -> None:
    client = world.connect()
    heartbeat(client, 0)
    answer = client.call(messages.DescribeGroupsRequest(groups=["g"]), 6).groups[0]
    assert (answer.error_code, answer.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_expressions_are_resolved_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("re2")
    release, matching = threading.Event(), expressions.matching

    def slow(regex: str, names: Iterable[str]) -> frozenset[str]:
        assert release.wait(60)
        return matching(regex, names)

    monkeypatch.setattr(expressions, "matching", slow)
    kind = messages.ConsumerGroupHeartbeatRequest
    said = {"rebalance_timeout_ms": 1_000, "topic_partitions": []}
    with kohort.Broker(config=CONFIG) as broker, KafkaSocket(broker.bootstrap_servers) as connection:
        broker.create_topic("orders", partitions=2)
        connection.call(messages.FindCoordinatorRequest(key="g"), 1)
        waiting = kind(group_id="g", member_id="m", member_epoch=0, subscribed_topic_regex="ord.*", **said)
        epoch = connection.call(waiting, 1).member_epoch
        try:
            served = kind(group_id="other", member_id="m", member_epoch=0, subscribed_topic_names=["orders"], **said)
            assert partitions(connection.call(served, 1)) == [0, 1]
            beat = kind(group_id="g", member_id="m", member_epoch=epoch)
            assert connection.call(beat, 1).assignment is None
        finally:
            release.set()
        limit = time.monotonic() + 60
        while (answer := connection.call(beat, 1)).assignment is None:
            assert time.monotonic() < limit
        assert partitions(answer) == [0, 1]


def test_confluent_kafka_with_an_expression_an_instance_id_and_an_assignor_of_the_broker() -> None:
    confluent = pytest.importorskip("confluent_kafka")
    pytest.importorskip("re2")
    config = {"group.consumer.min.heartbeat.interval.ms": 50, "group.consumer.heartbeat.interval.ms": 100}
    with kohort.Broker(config=config) as broker:
        for name in ("orders-a", "orders-b", "bills"):
            broker.create_topic(name, partitions=2)

        def consumer() -> Any:
            made = confluent.Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": "g",
                    "group.protocol": "consumer",
                    "group.remote.assignor": "range",
                    "group.instance.id": "one",
                }
            )
            made.subscribe(["^orders-.*"])
            return made

        def assigned(one: Any) -> set[tuple[str, int]]:
            limit = time.monotonic() + 60
            while len(found := one.assignment()) < 4:
                assert time.monotonic() < limit
                one.poll(0.05)
            return {(place.topic, place.partition) for place in found}

        everything = {(name, number) for name in ("orders-a", "orders-b") for number in (0, 1)}
        first = consumer()
        assert assigned(first) == everything
        with KafkaSocket(broker.bootstrap_servers) as connection:

            def described() -> Any:
                return connection.call(messages.ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0]

            before = described()
            assert before.assignor_name == "range"
            assert [row.instance_id for row in before.members] == ["one"]
            assert before.members[0].subscribed_topic_regex == "(^orders-.*)"
            first.close()
            again = consumer()
            assert assigned(again) == everything
            assert described().group_epoch == before.group_epoch, "nothing moved"
            again.close()


def test_confluent_kafka_with_the_consumer_protocol() -> None:
    """Two members share, one leaves, and the group moves to a classic member and back while records flow."""
    confluent = pytest.importorskip("confluent_kafka")
    config = {
        "group.consumer.assignment.interval.ms": 50,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.initial.rebalance.delay.ms": 0,
    }
    with kohort.Broker(config=config) as broker:
        broker.create_topic("orders", partitions=4)
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(200):
            producer.produce("orders", str(number), partition=number % 4)
        producer.flush()
        seen: list[bytes] = []

        def consumer(protocol: str) -> Any:
            made = confluent.Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": "g",
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                }
                | ({"heartbeat.interval.ms": 200} if protocol == "classic" else {})
            )
            made.subscribe(["orders"])
            return made

        def until(done: Any, *consumers: Any) -> None:
            limit = time.monotonic() + 60
            while not done():
                assert time.monotonic() < limit, [len(one.assignment()) for one in consumers]
                for one in consumers:
                    record = one.poll(0.05)
                    if record is not None and record.error() is None:
                        seen.append(record.value())

        first = consumer("consumer")
        until(lambda: len(seen) >= 200, first)
        assert sorted(map(int, seen)) == list(range(200))
        second = consumer("consumer")
        until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
        first.close()
        until(lambda: len(second.assignment()) == 4, second)
        old = consumer("classic")
        until(lambda: len(second.assignment()) == len(old.assignment()) == 2, second, old)
        second.close()
        until(lambda: len(old.assignment()) == 4, old)
        new = consumer("consumer")
        until(lambda: len(new.assignment()) == len(old.assignment()) == 2, new, old)
        old.close()
        until(lambda: len(new.assignment()) == 4, new)
        new.close()
