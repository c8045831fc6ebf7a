"""Who looks after groups and topics in the simulated world, as tools do: asks, deletes, creates, grows, on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kohort.sim.client import Caller

if TYPE_CHECKING:
    pass

TIMEOUT_MS = 15_000
RETRY_MS = 500
MOST_OFFSETS_PARTITIONS = 8


class Administrator(Caller):
    def _some_groups(self) -> list[str]:
        groups = self._world.group_ids()
        return self._random.sample(groups, min(len(groups), self._random.randint(1, 2)))

    # Groups.

    def look(self) -> None:
        groups = self._some_groups()
        asked = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in groups]
        choices: list[tuple[Any, int]] = [
            (OffsetFetchRequest(groups=asked), self._random.choice((8, 9, 10))),
            (DescribeGroupsRequest(groups=groups), self._random.choice((5, 6))),
            (ListGroupsRequest(), 5),
        ]
        if self._world.has_modern_groups:
            choices.append((ConsumerGroupDescribeRequest(group_ids=groups), 1))
        request, max_version = self._random.choice(choices)
        self._send(request, max_version=max_version)

    def delete_groups(self) -> None:
        self._send(DeleteGroupsRequest(groups_names=self._some_groups()))

    def delete_offsets(self) -> None:
        topic = self._random.choice([*self._world.topics, *self._world.spares])
        count = max(self._world.topics.get(topic, 0), self._world.spares.get(topic, 0), 1)
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
        partitions = [partition(partition_index=i) for i in range(count) if self._random.random() < 0.5]
        asked = OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=partitions)
        self._send(OffsetDeleteRequest(group_id=self._random.choice(self._world.group_ids()), topics=[asked]))

    # Topics.

    def grow_offsets_topic(self) -> None:
        core = self._world.broker.core
        topic = core.topics.by_name.get(OFFSETS_TOPIC) if core is not None else None
        if topic is not None and topic.count < MOST_OFFSETS_PARTITIONS:
            self.grow(OFFSETS_TOPIC, topic.count + self._random.randint(1, 2))

    def recreate_topic(self) -> None:
        """Delete a spare topic and make it again later, perhaps with other partitions; or let it grow."""
        if not self._world.spares:
            return
        name = self._random.choice(sorted(self._world.spares))
        if self._random.random() < 0.3:
            self._world.spares[name] += 1
            self.grow(name, self._world.spares[name])
            return
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
        self._send(request)
        self._scheduler.after(self._random.choice((0, 100, 5_000)), self.create_topic, name)

    def create_topic(self, name: str) -> None:
        count = self._random.randint(1, 3)
        asked = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)

        def answered(response: Any) -> None:
            if response.topics[0].error_code == ErrorCode.NONE:
                self._world.spares[name] = count
            elif response.topics[0].error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                self._scheduler.after(RETRY_MS, self.create_topic, name)

        def failed(reason: str) -> None:
            self._scheduler.after(RETRY_MS, self.create_topic, name)

        self._channel.request(CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS), answered, failed, TIMEOUT_MS)

    def grow(self, name: str, count: int) -> None:
        asked = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        self._send(CreatePartitionsRequest(topics=[asked], timeout_ms=TIMEOUT_MS))

    def _send(
        self, request: Any, answered: Callable[[Any], None] | None = None, max_version: int | None = None
    ) -> None:
        self._channel.request(request, answered or _nothing, _nothing, TIMEOUT_MS, max_version)


def _nothing(told: Any) -> None:
    """Nobody acts on it: the checkers have seen the answer leave."""
