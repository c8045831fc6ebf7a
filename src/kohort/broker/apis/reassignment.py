"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: which broker is to lead a partition.

A partition of a cluster has one broker, its leader, and the store keeps the records: of the replicas that are asked for
the first is to lead. A broker that stands alone leads everything, and can be asked for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kohort.broker.topics import Partition, Topic
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

_PREFERRED, _UNCLEAN = 0, 1
_NO_ONE = -1
ROWS_AT_ONCE = 500


def elect_leaders(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.ElectLeadersResponse()
    election = request.election_type if call.version >= 1 else _PREFERRED
    every = request.topic_partitions is None
    asked = _everything(core) if every else [(row.topic, row.partitions) for row in request.topic_partitions]
    if (every or asked) and (refusal := _refusal(request.timeout_ms, election)) is not None:
        return _refused(response, call.version, [] if every else asked, refusal)
    count = 0
    for name, indexes in asked:
        found = []
        for index in indexes:
            count += 1
            if count % ROWS_AT_ONCE == 0:
                yield
            row = _elected(core, name, index, election)
            if not (every and row.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                found.append(row)
        response.replica_election_results.append(response.ReplicaElectionResult(topic=name, partition_result=found))
    return response


def _refusal(timeout_ms: int, election: int = _PREFERRED) -> KafkaError | None:
    """Why nothing of a request is done. Somebody who does not wait is told that it takes too long, as by Kafka."""
    if timeout_ms <= 0:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    if election not in (_PREFERRED, _UNCLEAN):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election}")
    return None


def _refused(response: Any, version: int, asked: list[tuple[str, list[int]]], refusal: KafkaError) -> Any:
    """Version 0 has no place for the code but the rows."""
    response.error_code = refusal.code if version >= 1 else ErrorCode.NONE
    for name, indexes in asked:
        rows = [
            response.PartitionResult(partition_id=index, error_code=refusal.code, error_message=_said(refusal))
            for index in indexes
        ]
        response.replica_election_results.append(response.ReplicaElectionResult(topic=name, partition_result=rows))
    return response


def _said(error: KafkaError) -> str | None:
    """What there is to say beyond the code."""
    return error.message if error.message != error.code.message else None


def _everything(core: Core) -> list[tuple[str, list[int]]]:
    return [(topic.name, [partition.index for partition in topic.partitions]) for topic in core.topics.by_name.values()]


def _elected(core: Core, name: str, index: int, election: int) -> Any:
    row = messages.ElectLeadersResponse.PartitionResult(partition_id=index, error_message=None)
    try:
        _elect(core, name, index, election)
    except KafkaError as error:
        row.error_code, row.error_message = error.code, error.message
    return row


def _elect(core: Core, name: str, index: int, election: int) -> None:
    topic = core.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    leader = core.leader_of(partition)
    preferred = core.membership.preferred(partition) if core.membership is not None else core.node_id
    if leader != _NO_ONE and (election == _UNCLEAN or leader == preferred):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    if preferred == _NO_ONE:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        raise KafkaError(code if election == _PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    if core.membership is not None and core.membership.wanted(partition) != preferred:
        core.topics.want_leader(topic, index, preferred, once=True)
    elif core.membership is not None:
        core.topics.want_leader(topic, index, preferred)


def alter_partition_reassignments(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.AlterPartitionReassignmentsResponse(error_message=None)
    if not request.topics:
        response.error_message = ""
        return response
    may_change = request.allow_replication_factor_change
    refusal = _refusal(request.timeout_ms)
    if refusal is not None:
        response.error_code = refusal.code
    else:
        response.allow_replication_factor_change = may_change
    count = 0
    for asked in request.topics:
        rows = []
        for wanted in asked.partitions:
            count += 1
            if count % ROWS_AT_ONCE == 0:
                yield
            rows.append(_reassigned(core, asked.name, wanted, may_change, refusal))
        response.responses.append(response.ReassignableTopicResponse(name=asked.name, partitions=rows))
    return response


def _reassigned(core: Core, name: str, wanted: Any, may_change: bool, refusal: KafkaError | None) -> Any:
    row = messages.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(error_message=None)
    row.partition_index = wanted.partition_index
    try:
        if refusal is not None:
            raise refusal
        topic, partition = _partition(core, name, wanted.partition_index)
        if wanted.replicas is None:
            _cancel(core, topic, partition)
        else:
            _reassign(core, topic, partition, wanted.replicas, may_change)
    except KafkaError as error:
        row.error_code, row.error_message = error.code, _said(error)
    return row


def _partition(core: Core, name: str, index: int) -> tuple[Topic, Partition]:
    topic = core.topics.by_name.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, partition


def _cancel(core: Core, topic: Topic, partition: Partition) -> None:
    if core.membership is None or _goes_to(core, partition) is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    core.topics.want_leader(topic, partition.index, _NO_ONE)


def _reassign(core: Core, topic: Topic, partition: Partition, replicas: list[int], may_change: bool) -> None:
    _check_replicas(core, replicas)
    if not may_change and len(replicas) != 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from 1 to {len(replicas)}"
        )
    core.topics.want_leader(topic, partition.index, replicas[0])


def _check_replicas(core: Core, replicas: list[int]) -> None:
    start = "The manual partition assignment includes"
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start} an empty replica list.")
    known = {broker.node_id for broker in core.brokers()}
    for before, node_id in pairwise([None, *sorted(replicas)]):
        if node_id not in known:
            reason = f"{start} broker {node_id}, but no such broker is registered."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        if node_id == before:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start} the broker {node_id} more than once.")


def _goes_to(core: Core, partition: Partition) -> int | None:
    """Whom a partition is on its way to, by an operator's wish."""
    if core.membership is None:
        return None
    wanted = core.membership.wanted(partition)
    return None if wanted in (_NO_ONE, core.leader_of(partition)) else wanted


def list_partition_reassignments(core: Core, call: Call, request: Any, now_ms: int) -> Steps:
    response = messages.ListPartitionReassignmentsResponse(error_message=None)
    count = 0
    for topic, partitions in _listed(core, request):
        rows = []
        for partition in partitions:
            count += 1
            if count % ROWS_AT_ONCE == 0:
                yield
            to = _goes_to(core, partition)
            if to is not None:
                now = [leader] if (leader := core.leader_of(partition)) != _NO_ONE else []
                rows.append(
                    response.OngoingPartitionReassignment(
                        partition_index=partition.index,
                        replicas=[to, *now],
                        adding_replicas=[to],
                        removing_replicas=now,
                    )
                )
        if rows:
            response.topics.append(response.OngoingTopicReassignment(name=topic.name, partitions=rows))
    return response


def _listed(core: Core, request: Any) -> Iterator[tuple[Topic, Iterable[Partition]]]:
    if request.topics is None:
        yield from ((topic, topic.partitions) for topic in list(core.topics.by_name.values()))
        return
    for asked in request.topics:
        topic = core.topics.by_name.get(asked.name)
        if topic is not None:
            found = map(topic.partition, asked.partition_indexes)
            yield topic, (partition for partition in found if partition is not None)
