"""Plain values that Admin takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kohort.client.types import TopicPartition


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Resource:
    """What has a configuration: a topic by name, a broker by its id as text, a group by its id."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Resource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | str) -> Resource:
        return cls(ResourceType.BROKER, str(node_id))

    @classmethod
    def group(cls, name: str) -> Resource:
        return cls(ResourceType.GROUP, name)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`replicas` names the brokers of each partition, instead of counts. -1 stands for the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    replicas: Mapping[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    read_only: bool
    is_default: bool
    sensitive: bool
    source: int
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller_id: int
    nodes: dict[int, tuple[str, int, str | None]]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: frozenset[TopicPartition]
    target_assignment: frozenset[TopicPartition] | None = None
    member_epoch: int | None = None
    regex: str | None = None
    is_classic: bool = True
    """Whether it speaks the classic protocol; members of a group of the newer one may."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[MemberDescription]
    epoch: int | None = None
    assignment_epoch: int | None = None
    """Of the target that members are on their way to; behind `epoch` until there is a newer target."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`start_ms` is None where no transaction is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as the log of a partition knows it; `start_offset` is that of its open transaction there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """Open in a partition, though no coordinator will ever end it there."""

    producer: ProducerState
    why: str
