"""Metadata, DescribeTopicPartitions, DescribeCluster: who leads what. A broker that stands alone leads everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.broker import leaders
from kohort.broker.acls import CLUSTER_NAME, Operation, Resource
from kohort.broker.internal_topics import ensure_offsets_topic
from kohort.broker.topics import INTERNAL_TOPICS, METADATA_TOPIC, Partition, Topic, check_name
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

# Bit sets of AclOperation: without an authorizer everybody may do everything that a resource has.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NO_OPERATIONS = -(2**31)
ROWS_AT_ONCE = 1000
NAMES_AT_ONCE = 20_000
_BROKER_ENDPOINT = 1
Shown = tuple[Any, Sequence[Partition]]
"""A topic's row of an answer, without its partitions, and these."""


def handle(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    kind = messages.MetadataResponse
    topics: list[Any] = []
    encoded, rows = kind.rows(kind.MetadataResponseTopic.__name__, call.version), 0
    for shown in _topics(core, call, request):
        if shown is None:
            yield
            continue
        topic, partitions = shown
        if request.include_topic_authorized_operations:
            topic.topic_authorized_operations = _topic_operations(core, call, topic.name)
        topics.append(topic)
        rows += 1
        for start in range(0, len(partitions), ROWS_AT_ONCE):
            some = partitions[start : start + ROWS_AT_ONCE]
            topic.partitions += _partitions(core, kind.MetadataResponsePartition, some)
            rows += len(some)
            if rows > ROWS_AT_ONCE:
                rows = 0
                yield
        if rows > ROWS_AT_ONCE or len(topics) >= ROWS_AT_ONCE:
            # Rows as objects take some twenty times the room of their bytes.
            encoded.add(topics)
            topics.clear()
            rows = 0
            yield
    if encoded:
        encoded.add(topics)
    include_cluster = request.include_cluster_authorized_operations and 8 <= call.version <= 10
    row, brokers = kind.MetadataResponseBroker, core.brokers_for(call.connection)
    return kind(
        brokers=[row(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in brokers],
        cluster_id=core.topics.cluster_id,
        controller_id=leaders.controller_id(core, brokers),
        topics=encoded or topics,
        cluster_authorized_operations=_cluster_operations(core, call) if include_cluster else NO_OPERATIONS,
    )


def _topic_operations(core: Core, call: Call, name: str | None) -> int:
    return TOPIC_OPERATIONS if core.gate is None else core.gate.operations(call, Resource.TOPIC, name or "")


def _cluster_operations(core: Core, call: Call) -> int:
    if core.gate is None:
        return CLUSTER_OPERATIONS
    if not core.gate.allows(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return 0
    return core.gate.operations(call, Resource.CLUSTER, CLUSTER_NAME)


def _topics(core: Core, call: Call, request: Any) -> Iterator[Shown | None]:
    """No list asks for all topics, and so does an empty one in version 0. None where others should have a turn."""
    if request.topics is None or (call.version == 0 and not request.topics):
        yield from (_topic(topic) for topic in list(core.topics.by_name.values()))
        return
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    for number, asked in enumerate(request.topics, 1):
        if number % NAMES_AT_ONCE == 0:
            yield None
        if asked.topic_id != ZERO_UUID:
            ids[asked.topic_id] = None
        if call.version < 12 and (ids or asked.name is None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Metadata v{call.version} knows topics by name only")
        names[asked.name] = None
    if ids:
        yield from (_by_id(core, topic_id) for topic_id in ids)
        return
    create = request.allow_auto_topic_creation and core.config["auto.create.topics.enable"]
    yield from (_by_name(core, name, create) for name in names)


def _by_id(core: Core, topic_id: bytes) -> Shown:
    topic = core.topics.by_id.get(topic_id)
    if topic is not None:
        return _topic(topic)
    row = messages.MetadataResponse.MetadataResponseTopic
    return row(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id), ()


def _by_name(core: Core, name: str, create: bool) -> Shown:
    topic = core.topics.by_name.get(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        try:
            check_name(name)
            if create and name != METADATA_TOPIC:
                topic = auto_create(core, name)
        except KafkaError as refused:
            error = refused.code
    if topic is not None:
        return _topic(topic)
    row = messages.MetadataResponse.MetadataResponseTopic
    return row(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS), ()


def auto_create(core: Core, name: str) -> Topic:
    """A topic that somebody asked for, with the broker's defaults. It is ready at once, so the asker need not retry."""
    if name == OFFSETS_TOPIC:
        return ensure_offsets_topic(core)
    return core.topics.create(name, core.config["num.partitions"])


def _topic(topic: Topic) -> Shown:
    row = messages.MetadataResponse.MetadataResponseTopic
    return row(name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal), topic.partitions


def _partitions(core: Core, row: Callable[..., Any], partitions: Sequence[Partition]) -> list[Any]:
    return [
        row(
            error_code=ErrorCode.NONE if (leader := core.leader_of(p)) >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=p.index,
            leader_id=leader,
            leader_epoch=p.leader_epoch,
            replica_nodes=(nodes := [leader] if leader >= 0 else []),
            isr_nodes=nodes,
        )
        for p in partitions
    ]


def describe_topic_partitions(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    """Pages through partitions in the order of topic names (KIP-966)."""
    response = messages.DescribeTopicPartitionsResponse()
    left = max(min(request.response_partition_limit, core.config["max.request.partition.size.limit"]), 1)
    first, start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
    for number, name in enumerate(_names_from(core, request, first), 1):
        if number % ROWS_AT_ONCE == 0:
            yield
        topic = core.topics.by_name.get(name)
        if topic is None:
            response.topics.append(_missing(core, call, response, name))
            continue
        begin = start if name == first else 0
        if left <= 0:
            response.next_cursor = response.Cursor(topic_name=name, partition_index=begin)
            break
        shown = topic.partitions[begin : begin + left]
        left -= len(shown)
        response.topics.append(_described(core, call, response, topic, shown))
        if begin + len(shown) < len(topic.partitions):
            response.next_cursor = response.Cursor(topic_name=name, partition_index=begin + len(shown))
            break
    return response


def _names_from(core: Core, request: Any, first: str) -> Iterator[str]:
    names = {asked.name for asked in request.topics} if request.topics else set(core.topics.by_name)
    return iter(sorted(name for name in names if name >= first))


def _missing(core: Core, call: Call, response: Any, name: str) -> Any:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as refused:
        error = refused.code
    return response.DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=_topic_operations(core, call, name)
    )


def _described(core: Core, call: Call, response: Any, topic: Topic, partitions: list[Any]) -> Any:
    row = response.DescribeTopicPartitionsResponsePartition
    return response.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=_topic_operations(core, call, topic.name),
        partitions=_partitions(core, partial(row, eligible_leader_replicas=[], last_known_elr=[]), partitions),
    )


def describe_cluster(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    if request.endpoint_type != _BROKER_ENDPOINT:
        return messages.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
            endpoint_type=_BROKER_ENDPOINT,
        )
    include = request.include_cluster_authorized_operations
    brokers = core.brokers_for(call.connection)
    response = messages.DescribeClusterResponse(
        endpoint_type=_BROKER_ENDPOINT,
        cluster_id=core.topics.cluster_id,
        controller_id=leaders.controller_id(core, brokers),
        cluster_authorized_operations=_cluster_operations(core, call) if include else NO_OPERATIONS,
    )
    response.brokers = [
        response.DescribeClusterBroker(broker_id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in brokers
    ]
    return response
