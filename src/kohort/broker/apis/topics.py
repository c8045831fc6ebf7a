"""Topic administration: create, delete, add partitions, delete records. One topic's error is never another's.

A change whose time is over when it arrives (timeout_ms of 0 or less) is not begun, as in Kafka: REQUEST_TIMED_OUT for
all of it, unless there is nothing to be begun. Once begun it is done, however long that takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from kohort.broker import error_answers
from kohort.broker.config_rows import topic_sources
from kohort.broker.throttling import Mutations
from kohort.broker.topics import MAX_PARTITIONS, Topic
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.uuids import ZERO_UUID
from kohort.storage.config import LogConfig

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

_HIGH_WATERMARK = -1
DELETED_AT_ONCE = 20
NAMES_AT_ONCE = 5
"""Each that is made or removed has the state of all written."""
_CREATE_STRICT_SINCE, _DELETE_STRICT_SINCE, _GROW_STRICT_SINCE = 6, 5, 3


def create_topics(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.CreateTopicsResponse()
    mutations = Mutations.of(core, call, _CREATE_STRICT_SINCE)
    names = Counter(asked.name for asked in request.topics)
    if _is_over(request, names):
        return _timed_out(call, request)
    for name, count in names.items():
        if count > 1:
            row = response.CreatableTopicResult(name=name)
            _refuse(row, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            row.configs = []  # as Kafka writes it
            response.topics.append(row)
    for number, asked in enumerate(request.topics, 1):
        if number % NAMES_AT_ONCE == 0:
            yield
        if names[asked.name] > 1:
            continue
        row = response.CreatableTopicResult(name=asked.name, error_message=None)
        response.topics.append(row)
        try:
            yield from _create(core, asked, row, request.validate_only, call.version, mutations)
        except KafkaError as error:
            _refuse(row, error)
    response.throttle_time_ms = mutations.wait_ms
    return response


def _is_over(request: Any, asked: Counter[Any]) -> bool:
    """What is asked for twice is refused without a look at the time."""
    return request.timeout_ms <= 0 and any(count == 1 for count in asked.values())


def _timed_out(call: Call, request: Any) -> Any:
    return error_answers.entire(call.entry.name, call.version, request, ErrorCode.REQUEST_TIMED_OUT)


def _said(error: KafkaError) -> str | None:
    """Kafka says nothing more of a quota that is exceeded: the wait is in the answer."""
    return None if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED else error.message


def _refuse(row: Any, error: KafkaError) -> None:
    row.error_code = error.code
    row.error_message = _said(error)
    row.num_partitions = row.replication_factor = -1
    row.configs = None


def _create(
    core: Core, asked: Any, row: Any, validate_only: bool, version: int, mutations: Mutations
) -> Generator[None, None, None]:
    core.topics.check_new(asked.name)
    partitions = _partition_count(core, asked)
    overrides = _overrides(asked)
    config = LogConfig.parse(overrides, core.topics.base_config)
    mutations.count(asked.name, partitions)
    if not validate_only:
        topic = yield from core.topics.creating(asked.name, partitions, overrides)
        row.topic_id = topic.topic_id
        config = topic.config
    if version >= 5:
        row.num_partitions, row.replication_factor = partitions, 1
        row.configs = [
            messages.CreateTopicsResponse.CreatableTopicConfigs(name=name, value=value, config_source=source)
            for name, value, source in topic_sources(core.config, config, overrides)
        ]


def _overrides(asked: Any) -> dict[str, str]:
    overrides = {}
    for config in asked.configs:
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        overrides[config.name] = config.value
    return overrides


def _partition_count(core: Core, asked: Any) -> int:
    """How many partitions to make, from a number or a manual assignment."""
    if asked.assignments:
        return _assigned_count(core, asked)
    replicas, partitions = asked.replication_factor, asked.num_partitions
    if replicas < -1 or replicas == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replicas == -1:
        replicas = core.config["default.replication.factor"]
    if replicas > (registered := len(core.brokers())):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} "
            f"cannot be reached because only {registered} broker(s) are registered.",
        )
    partitions = core.config.integer("num.partitions") if partitions == -1 else partitions
    _check_limit(partitions)
    return partitions


def _check_limit(partitions: int) -> None:
    if partitions > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _assigned_count(core: Core, asked: Any) -> int:
    for field, value in (("numPartitions", asked.num_partitions), ("replicationFactor", asked.replication_factor)):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
    _check_limit(len(asked.assignments))
    indexes = {assignment.partition_index for assignment in asked.assignments}
    if indexes != set(range(len(asked.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for assignment in asked.assignments:
        _check_brokers(core, assignment.broker_ids)
    return len(asked.assignments)


def _check_brokers(core: Core, broker_ids: list[int]) -> None:
    reason = None
    if not broker_ids:
        reason = "The manual partition assignment includes an empty replica list."
    elif len(set(broker_ids)) != len(broker_ids):
        reason = "The manual partition assignment includes the same broker more than once."
    elif unknown := [broker for broker in broker_ids if core.endpoint(broker) is None]:
        reason = f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
    if reason:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def delete_topics(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DeleteTopicsResponse()
    if call.version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    deleted: list[Topic] = []
    mutations = Mutations.of(core, call, _DELETE_STRICT_SINCE)
    counts = Counter(asked)
    if core.config["delete.topic.enable"] and _is_over(request, counts):
        return _timed_out(call, request)
    for number, (name, topic_id) in enumerate(counts, 1):
        if number % NAMES_AT_ONCE == 0:
            yield
        row = response.DeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(row)
        try:
            if counts[name, topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            topic = _to_delete(core, name, topic_id, call.version)
            mutations.count(topic.name, len(topic.partitions))
            yield from core.topics.deleting(topic)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, _said(error)
            continue
        row.name, row.topic_id = topic.name, topic.topic_id
        deleted.append(topic)
    for topic in deleted:
        core.changed(topic.partitions, now_ms)
    if deleted:
        core.topics_deleted({topic.name: topic.topic_id for topic in deleted}, now_ms)
    response.throttle_time_ms = mutations.wait_ms
    return response


def _to_delete(core: Core, name: str | None, topic_id: bytes, version: int) -> Topic:
    if not core.config["delete.topic.enable"]:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "Topic deletion is disabled.")
    if name is not None and topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    topic = core.topics.by_id.get(topic_id) if name is None else core.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def create_partitions(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.CreatePartitionsResponse()
    mutations = Mutations.of(core, call, _GROW_STRICT_SINCE)
    names = Counter(asked.name for asked in request.topics)
    if _is_over(request, names):
        return _timed_out(call, request)
    for number, asked in enumerate({asked.name: asked for asked in request.topics}.values(), 1):
        if number % NAMES_AT_ONCE == 0:
            yield
        row = response.CreatePartitionsTopicResult(name=asked.name)
        response.results.append(row)
        try:
            if names[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = _to_grow(core, asked)
            mutations.count(asked.name, asked.count - len(topic.partitions))
            if request.validate_only:
                continue
            yield from core.topics.growing(topic, asked.count)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, _said(error)
            continue
        core.topic_grew(topic.name, now_ms)
    response.throttle_time_ms = mutations.wait_ms
    return response


def _to_grow(core: Core, asked: Any) -> Topic:
    topic = core.topics.by_name.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    now = len(topic.partitions)
    if asked.count == now:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if asked.count < now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {now} partition(s); {asked.count} would not be an increase.",
        )
    _check_limit(asked.count - now)
    if asked.assignments is not None:
        if len(asked.assignments) != asked.count - now:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {asked.count - now} additional partition(s), "
                f"but only {len(asked.assignments)} assignment(s) were specified.",
            )
        for assignment in asked.assignments:
            _check_brokers(core, assignment.broker_ids)
    return topic


def delete_records(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.DeleteRecordsResponse()
    count = 0
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            count += 1
            if count % DELETED_AT_ONCE == 0:
                yield
            row = response.DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            rows.append(row)
            try:
                row.low_watermark = _delete_before(core, topic.name, asked, now_ms)
            except KafkaError as error:
                row.error_code = error.code
        response.topics.append(response.DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    return response


def _delete_before(core: Core, name: str, asked: Any, now_ms: int) -> int:
    partition = core.topics.partition(name, asked.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not partition.leads:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.topic.internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = partition.log
    if log.config.compact and not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    start = log.delete_records_before(offset)
    core.changed([partition], now_ms)
    return start
