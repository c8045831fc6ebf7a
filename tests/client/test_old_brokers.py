"""Brokers as old as Kafka 2.1: the same consumer with only the versions that such a broker offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kohort
from client.conftest import Topics, until
from kohort.client.compat import downgrade, upgrade
from kohort.client.connection import Connection
from kohort.client.errors import KafkaError
from kohort.client.types import TopicPartition
from kohort.protocol.apis import ApiKey
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

KAFKA_2_1 = {
    ApiKey.FETCH: 10,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.METADATA: 7,
    ApiKey.OFFSET_COMMIT: 6,
    ApiKey.OFFSET_FETCH: 5,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.DELETE_GROUPS: 1,
}


@pytest.fixture
def old_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    versions_of = Connection._versions_of

    def versions_of_old(response: Any) -> dict[int, tuple[int, int]]:
        versions = versions_of(response)
        return {
            key: (versions[key][0], min(high, versions[key][1])) for key, high in KAFKA_2_1.items() if key in versions
        }

    monkeypatch.setattr(Connection, "_versions_of", staticmethod(versions_of_old))


def test_a_whole_life_on_an_old_broker(
    old_broker: None, topics: Topics, consumer: Callable[..., kohort.Consumer]
) -> None:
    topic = topics.make(records=100)
    first = consumer()
    first.subscribe(topic)
    values: list[int] = []
    until(lambda: len(values) == 100, "100 records", lambda: values.extend(int(r.value) for r in first.poll(0.5)))
    assert sorted(values) == list(range(100))
    first.commit()
    second = consumer()
    second.subscribe(topic)

    def both() -> None:
        first.poll(0.05)
        second.poll(0.05)

    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, "two each", both)
    second.close()
    until(lambda: len(first.assignment()) == 4, "all again", lambda: first.poll(0.1))
    assert {found.offset for found in first.committed(first.assignment()).values()} == {25}


def test_admin_on_an_old_broker(old_broker: None, broker: kohort.Broker, group_id: str) -> None:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([f"old-{group_id}"])
        tp = TopicPartition(f"old-{group_id}", 0)
        admin.alter_group_offsets(group_id, {tp: 0})
        assert admin.group_offsets(group_id, [tp])[tp].offset == 0
        assert admin.describe_groups([group_id])[group_id].state == "Empty"
        assert group_id in [listing.group_id for listing in admin.list_groups()]
        admin.delete_groups([group_id])
        admin.delete_topics([tp.topic])


def test_what_an_old_broker_cannot_do_is_said(
    old_broker: None, consumer: Callable[..., kohort.Consumer], topics: Topics
) -> None:
    reader = consumer(group_instance_id="static")
    reader.subscribe(topics.make())
    with pytest.raises(KafkaError, match="JoinGroup"):
        until(lambda: False, "the refusal", lambda: reader.poll(0.2))


def test_shapes_of_old_versions() -> None:
    find = downgrade(FindCoordinatorRequest(coordinator_keys=["g"]), 3)
    assert (find.key, find.coordinator_keys) == ("g", [])
    answer = FindCoordinatorResponse(node_id=4, host="h", port=9)
    upgraded = upgrade(FindCoordinatorRequest(coordinator_keys=["g"]), answer, 3)
    assert (upgraded.coordinators[0].node_id, upgraded.coordinators[0].host) == (4, "h")

    leave = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id="m")])
    assert downgrade(leave, 2).member_id == "m"
    assert downgrade(leave, 3) is leave

    topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[1])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    fetch = OffsetFetchRequest(groups=[group], require_stable=True)
    old = downgrade(fetch, 6)
    assert (old.group_id, old.topics[0].partition_indexes, old.require_stable) == ("g", [1], False)
    old.encode(6)
    assert upgrade(fetch, OffsetFetchResponse(error_code=3), 6).groups[0].error_code == 3
