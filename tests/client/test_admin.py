"""Admin against kohort's broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kohort
from client.conftest import Topics, until
from kohort.client import KafkaError, OffsetAndMetadata, TopicPartition
from kohort.client.admin_types import NewTopic, Resource
from kohort.protocol.errors import ErrorCode


def test_topics(admin: kohort.Admin) -> None:
    admin.create_topics([NewTopic("admin-a", 3, 1, {"retention.ms": "1000"}), "admin-b"])
    assert {"admin-a", "admin-b"} <= set(admin.list_topics())
    described = admin.describe_topics(["admin-a"])["admin-a"]
    assert [partition.leader for partition in described.partitions] == [1, 1, 1]
    with pytest.raises(KafkaError, match=r"topic admin-a: .*already exists") as refused:
        admin.create_topics(["admin-a"])
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    admin.create_partitions({"admin-a": 5})
    assert len(admin.describe_topics(["admin-a"])["admin-a"].partitions) == 5
    with pytest.raises(KafkaError):
        admin.create_partitions({"admin-a": 2})
    admin.delete_topics(["admin-a", "admin-b"])
    with pytest.raises(KafkaError, match="no such topic: admin-a"):
        admin.describe_topics(["admin-a"])
    with pytest.raises(KafkaError, match="admin-a"):
        admin.delete_topics(["admin-a"])


def test_validate_only_creates_nothing(admin: kohort.Admin) -> None:
    admin.create_topics(["admin-c"], validate_only=True)
    assert "admin-c" not in admin.list_topics()


def test_configurations(admin: kohort.Admin, topics: Topics) -> None:
    resource = Resource.topic(topics.make())
    assert admin.describe_configs([resource])[resource]["retention.ms"].is_default
    admin.alter_configs({resource: {"retention.ms": "5000"}})
    entry = admin.describe_configs([resource])[resource]["retention.ms"]
    assert (entry.value, entry.is_default) == ("5000", False)
    admin.alter_configs({resource: {"retention.ms": None}})
    assert admin.describe_configs([resource])[resource]["retention.ms"].is_default
    with pytest.raises(KafkaError, match="retention"):
        admin.alter_configs({resource: {"retention.ms": "soon"}})
    broker = Resource.broker(1)
    assert "num.partitions" in admin.describe_configs([broker])[broker]


def test_offsets_and_records(admin: kohort.Admin, topics: Topics) -> None:
    topic = topics.make(1)
    topics.produce(topic, 10, partitions=1)
    tp = TopicPartition(topic, 0)
    assert admin.list_offsets({tp: "latest"})[tp].offset == 10
    assert admin.delete_records({tp: 4}) == {tp: 4}
    assert admin.list_offsets({tp: "earliest"})[tp].offset == 4
    impatient = kohort.Admin(bootstrap_servers=topics.servers, default_api_timeout_ms=500)
    with impatient, pytest.raises(KafkaError, match="does not exist"):
        impatient.list_offsets({(topic, 9): "latest"})


def test_groups(admin: kohort.Admin, topics: Topics, group_id: str, consumer: Callable[..., kohort.Consumer]) -> None:
    topic = topics.make(2)
    topics.produce(topic, 10, partitions=2)
    tp = TopicPartition(topic, 0)
    reader = consumer(client_id="reader")
    reader.subscribe(topic)
    until(lambda: reader.assignment(), "an assignment", lambda: reader.poll(0.1))
    reader.commit()
    group = admin.describe_groups([group_id])[group_id]
    assert (group.state, group.type, group.assignor, group.coordinator) == ("Stable", "classic", "range", 1)
    (member,) = group.members
    assert (member.client_id, member.topics, member.assignment) == ("reader", (topic,), reader.assignment())
    assert group_id in {listing.group_id for listing in admin.list_groups(states=["Stable"])}
    assert group_id not in {listing.group_id for listing in admin.list_groups(states=["Empty"])}

    with pytest.raises(KafkaError, match="has members: stop its consumers"):
        admin.alter_group_offsets(group_id, {tp: 0})
    with pytest.raises(KafkaError) as refused:
        admin.delete_groups([group_id])
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(KafkaError) as refused:
        admin.delete_group_offsets(group_id, [tp])
    assert refused.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    reader.close()
    admin.alter_group_offsets(group_id, {tp: OffsetAndMetadata(3, "moved")})
    assert admin.group_offsets(group_id)[tp][:2] == (3, "moved")
    other = TopicPartition(topic, 1)
    admin.delete_group_offsets(group_id, [other])
    assert admin.group_offsets(group_id, [other]) == {other: None}
    admin.delete_groups([group_id])
    assert admin.describe_groups([group_id])[group_id].state == "Dead"


def test_remove_a_static_member(
    admin: kohort.Admin, topics: Topics, group_id: str, consumer: Callable[..., kohort.Consumer]
) -> None:
    reader = consumer(group_instance_id="static")
    reader.subscribe(topics.make())
    until(lambda: reader.assignment(), "an assignment", lambda: reader.poll(0.1))
    reader.close()
    assert len(admin.describe_groups([group_id])[group_id].members) == 1
    admin.remove_members(group_id, group_instance_ids=["static"])
    assert admin.describe_groups([group_id])[group_id].members == []
    with pytest.raises(KafkaError, match="static in group"):
        admin.remove_members(group_id, group_instance_ids=["static"])
