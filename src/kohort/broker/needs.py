"""What each api needs of whoever asks: one row an api, Kafka's permissions and Kafka's refusals. How: `gate.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker import error_answers
from kohort.broker.acls import CLUSTER_NAME, Operation, Resource
from kohort.broker.asking import Asking, Need
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import InitProducerIdResponse

_FAILED = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_O, _R = Operation, Resource
_CONFIGURED = {2: _R.TOPIC, 4: _R.CLUSTER, 8: _R.CLUSTER, 16: _R.CLUSTER, 32: _R.GROUP}
"""What a config resource belongs to."""


def _nothing(asking: Asking) -> None:
    asking.serve()


def _cluster(operation: Operation) -> Need:
    def need(asking: Asking) -> None:
        if asking.may(operation, _R.CLUSTER):
            asking.serve()
        else:
            asking.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return need


def _group(operation: Operation) -> Need:
    def need(asking: Asking) -> None:
        if asking.may(operation, _R.GROUP, asking.request.group_id):
            asking.serve()
        else:
            asking.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    return need


def _group_and_topics(group: Operation, topic: Operation) -> Need:
    def need(asking: Asking) -> None:
        if not asking.may(group, _R.GROUP, asking.request.group_id):
            asking.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return
        _refuse_topics(asking, topic)
        asking.serve()

    return need


def _refuse_topics(asking: Asking, operation: Operation) -> None:
    verdicts: dict[str, bool] = {}

    def denied(row: error_answers.Identity) -> bool:
        name = asking.topic_name(row)
        if name is None:
            return False
        if name not in verdicts:
            verdicts[name] = asking.may(operation, _R.TOPIC, name)
        return not verdicts[name]

    asking.refuse_rows(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _topics(operation: Operation) -> Need:
    def need(asking: Asking) -> None:
        _refuse_topics(asking, operation)
        asking.serve()

    return need


def _rows(operation: Operation, resource: Resource, meaning: str) -> Need:
    """Rows that name groups, or transactions."""

    def need(asking: Asking) -> None:
        asking.refuse_rows(lambda row: not asking.may(operation, resource, row[meaning]), _FAILED[resource])
        asking.serve()

    return need


def _produce(asking: Asking) -> None:
    transaction = asking.request.transactional_id
    if transaction is not None and not asking.may(_O.WRITE, _R.TRANSACTIONAL_ID, transaction):
        asking.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    _refuse_topics(asking, _O.WRITE)
    asking.serve()


def _fetch(asking: Asking) -> None:
    session = asking.core.fetch_sessions.get(asking.request.session_id)
    if session is not None and asking.request.session_epoch > 0:
        named = "topic_id" if session.uses_topic_ids else "topic"
        names = {asking.topic_name({named: topic}) for topic, _ in list(session.partitions)}
        if not all(name is None or asking.may(_O.READ, _R.TOPIC, name) for name in names):
            asking.end_session()  # asked for in full, each part is answered
            asking.refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
    _refuse_topics(asking, _O.READ)
    asking.serve()


def _metadata(asking: Asking) -> None:
    core, request = asking.core, asking.request
    if request.topics is None or (asking.call.version == 0 and not request.topics):
        asking.hide(lambda answer: _keep(answer, "topics", lambda row: asking.may(_O.DESCRIBE, _R.TOPIC, row.name)))
    else:
        _refuse_topics(asking, _O.DESCRIBE)
        makes = request.allow_auto_topic_creation and core.config["auto.create.topics.enable"]
        if makes and not asking.may(_O.CREATE, _R.CLUSTER):
            asking.refuse_rows(lambda row: _cannot_be_made(asking, row), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    asking.serve()


def _cannot_be_made(asking: Asking, row: error_answers.Identity) -> bool:
    name = asking.topic_name(row)
    return name is not None and name not in asking.core.topics.by_name and not asking.may(_O.CREATE, _R.TOPIC, name)


def _keep(answer: Any, rows: str, wanted: Callable[[Any], bool]) -> None:
    setattr(answer, rows, [row for row in getattr(answer, rows) if wanted(row)])


def _create_topics(asking: Asking) -> None:
    if not asking.may(_O.CREATE, _R.CLUSTER):
        _refuse_topics(asking, _O.CREATE)
    asking.hide(lambda answer: _hide_configs(asking, answer))
    asking.serve()


def _hide_configs(asking: Asking, answer: Any) -> None:
    for row in answer.topics:
        if asking.call.version >= 5 and not row.error_code and not asking.may(_O.DESCRIBE_CONFIGS, _R.TOPIC, row.name):
            row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.num_partitions = row.replication_factor = -1
            row.configs = []


def _delete_topics(asking: Asking) -> None:
    if not asking.may(_O.DELETE, _R.CLUSTER):
        _refuse_topics(asking, _O.DELETE)
    asking.serve()


def _configs(operation: Operation) -> Need:
    def need(asking: Asking) -> None:
        for kind, resource in _CONFIGURED.items():

            def denied(row: error_answers.Identity, kind: int = kind, resource: Resource = resource) -> bool:
                name = CLUSTER_NAME if resource == _R.CLUSTER else row["resource"]
                return row["resource_type"] == kind and not asking.may(operation, resource, name)

            asking.refuse_rows(denied, _FAILED[resource])
        asking.serve()

    return need


def _init_producer_id(asking: Asking) -> None:
    transaction = asking.request.transactional_id
    if transaction is not None:
        if asking.may(_O.WRITE, _R.TRANSACTIONAL_ID, transaction):
            asking.serve()
        else:
            _refuse_producer_id(asking, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    connection = asking.call.connection
    writes = connection.principal is None or asking.gate.acls.allows_any(
        connection.principal, connection.host, _O.WRITE, _R.TOPIC
    )
    if writes or asking.may(_O.IDEMPOTENT_WRITE, _R.CLUSTER):
        asking.serve()
    else:
        _refuse_producer_id(asking, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _refuse_producer_id(asking: Asking, code: ErrorCode) -> None:
    answer = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    asking.answer(answer)


def _find_coordinator(asking: Asking) -> None:
    request = asking.request
    resource = {0: _R.GROUP, 1: _R.TRANSACTIONAL_ID}.get(request.key_type)
    if resource is None:
        _cluster(_O.CLUSTER_ACTION)(asking)
    elif asking.call.version < 4:
        if asking.may(_O.DESCRIBE, resource, request.key):
            asking.serve()
        else:
            asking.refuse(_FAILED[resource])
    else:
        _rows(_O.DESCRIBE, resource, "group")(asking)


def _list_groups(asking: Asking) -> None:
    if not asking.may(_O.DESCRIBE, _R.CLUSTER):
        asking.hide(lambda answer: _keep(answer, "groups", lambda row: asking.may(_O.DESCRIBE, _R.GROUP, row.group_id)))
    asking.serve()


def _describe_groups(asking: Asking) -> None:
    if asking.request.include_authorized_operations:

        def fill(answer: Any) -> None:
            for row in answer.groups:
                if not row.error_code:
                    row.authorized_operations = asking.gate.operations(asking.call, _R.GROUP, row.group_id)

        asking.edit(fill)
    _rows(_O.DESCRIBE, _R.GROUP, "group")(asking)


def _offset_fetch(asking: Asking) -> None:
    version, request = asking.call.version, asking.request
    if version < 8:
        if not asking.may(_O.DESCRIBE, _R.GROUP, request.group_id):
            asking.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return
        asked_all = request.topics is None
        asking.hide(lambda answer: _hide_offsets(asking, answer, asked_all))
        asking.serve()
        return
    denied = {g.group_id for g in request.groups if not asking.may(_O.DESCRIBE, _R.GROUP, g.group_id)}
    all_topics = {group.group_id for group in request.groups if group.topics is None}

    def change(answer: Any) -> None:
        for group in answer.groups:
            if group.group_id in denied:
                group.error_code, group.topics = ErrorCode.GROUP_AUTHORIZATION_FAILED, []
            else:
                _hide_offsets(asking, group, group.group_id in all_topics)

    asking.hide(change)
    asking.serve()


def _hide_offsets(asking: Asking, owner: Any, asked_all: bool) -> None:
    """Of topics that may not be described nothing is told, or the code where they were asked for by name."""
    for topic in list(owner.topics):
        if asking.may(_O.DESCRIBE, _R.TOPIC, asking.topic_name(_identity(topic, asking.call.version))):
            continue
        if asked_all:
            owner.topics.remove(topic)
            continue
        for row in topic.partitions:
            row.error_code, row.committed_offset = ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1
            row.committed_leader_epoch, row.metadata = -1, ""


def _identity(topic: Any, version: int) -> error_answers.Identity:
    return {"topic_id": topic.topic_id} if version >= 10 else {"topic": topic.name}


def _modern_heartbeat(asking: Asking) -> None:
    request = asking.request
    if not asking.may(_O.READ, _R.GROUP, request.group_id):
        asking.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not all(asking.may(_O.DESCRIBE, _R.TOPIC, name) for name in request.subscribed_topic_names or ()):
        asking.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        asking.serve()


def _transaction(*also: Callable[[Asking], ErrorCode]) -> Need:
    def need(asking: Asking) -> None:
        transaction = getattr(asking.request, "transactional_id", None)
        if transaction is not None and not asking.may(_O.WRITE, _R.TRANSACTIONAL_ID, transaction):
            asking.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        for check in also:
            if code := check(asking):
                asking.refuse(code)
                return
        asking.serve()

    return need


def _reads_group(asking: Asking) -> ErrorCode:
    allowed = asking.may(_O.READ, _R.GROUP, asking.request.group_id)
    return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


def _txn_offsets(asking: Asking) -> None:
    request = asking.request
    if not asking.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.transactional_id):
        asking.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not asking.may(_O.READ, _R.GROUP, request.group_id):
        asking.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    else:
        _refuse_topics(asking, _O.READ)
        asking.serve()


def _partitions_to_txn(asking: Asking) -> None:
    if asking.call.version >= 4:
        _cluster(_O.CLUSTER_ACTION)(asking)
        return
    request = asking.request
    if not asking.may(_O.WRITE, _R.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        asking.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    denied = [t.name for t in request.v3_and_below_topics if not asking.may(_O.WRITE, _R.TOPIC, t.name)]
    if denied:
        _refuse_topics(asking, _O.WRITE)
        asking.refuse_rows(lambda row: True, ErrorCode.OPERATION_NOT_ATTEMPTED)
    asking.serve()


def _list_transactions(asking: Asking) -> None:
    def shown(row: Any) -> bool:
        return asking.may(_O.DESCRIBE, _R.TRANSACTIONAL_ID, row.transactional_id)

    asking.hide(lambda answer: _keep(answer, "transaction_states", shown))
    asking.serve()


NEEDS: dict[str, Need] = {
    "ApiVersions": _nothing,
    "SaslHandshake": _nothing,
    "SaslAuthenticate": _nothing,
    "DescribeCluster": _nothing,
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _topics(_O.DESCRIBE),
    "Metadata": _metadata,
    "OffsetCommit": _group_and_topics(_O.READ, _O.READ),
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _group(_O.READ),
    "Heartbeat": _group(_O.READ),
    "LeaveGroup": _group(_O.READ),
    "SyncGroup": _group(_O.READ),
    "DescribeGroups": _describe_groups,
    "ListGroups": _list_groups,
    "DeleteGroups": _rows(_O.DELETE, _R.GROUP, "group"),
    "OffsetDelete": _group_and_topics(_O.DELETE, _O.READ),
    "ConsumerGroupHeartbeat": _modern_heartbeat,
    "ConsumerGroupDescribe": _rows(_O.DESCRIBE, _R.GROUP, "group"),
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _topics(_O.DELETE),
    "CreatePartitions": _topics(_O.ALTER),
    "OffsetForLeaderEpoch": _topics(_O.DESCRIBE),
    "DescribeTopicPartitions": _topics(_O.DESCRIBE),
    "DescribeProducers": _topics(_O.READ),
    "DescribeConfigs": _configs(_O.DESCRIBE_CONFIGS),
    "AlterConfigs": _configs(_O.ALTER_CONFIGS),
    "IncrementalAlterConfigs": _configs(_O.ALTER_CONFIGS),
    "ListConfigResources": _cluster(_O.DESCRIBE_CONFIGS),
    "ElectLeaders": _cluster(_O.ALTER),
    "AlterPartitionReassignments": _cluster(_O.ALTER),
    "ListPartitionReassignments": _cluster(_O.DESCRIBE),
    "DescribeLogDirs": _cluster(_O.DESCRIBE),
    "UpdateFeatures": _cluster(_O.ALTER),
    "InitProducerId": _init_producer_id,
    "AddPartitionsToTxn": _partitions_to_txn,
    "AddOffsetsToTxn": _transaction(_reads_group),
    "EndTxn": _transaction(),
    "TxnOffsetCommit": _txn_offsets,
    "WriteTxnMarkers": _cluster(_O.CLUSTER_ACTION),
    "DescribeTransactions": _rows(_O.DESCRIBE, _R.TRANSACTIONAL_ID, "transaction"),
    "ListTransactions": _list_transactions,
    "DescribeAcls": _cluster(_O.DESCRIBE),
    "CreateAcls": _cluster(_O.ALTER),
    "DeleteAcls": _cluster(_O.ALTER),
    "DescribeUserScramCredentials": _cluster(_O.DESCRIBE),
    "AlterUserScramCredentials": _cluster(_O.ALTER),
    "DescribeClientQuotas": _cluster(_O.DESCRIBE_CONFIGS),
    "AlterClientQuotas": _cluster(_O.ALTER_CONFIGS),
}
