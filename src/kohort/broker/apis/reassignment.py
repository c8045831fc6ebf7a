"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: which broker is to lead a partition.

A partition of a cluster has one broker, its leader, and the store keeps the records: of the replicas that are asked for
the first is to lead. A broker that stands alone leads everything, and can be asked for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kohort.broker.topics import Partition, Topic
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core

_PREFERRED, _UNCLEAN = 0, 1
_NO_ONE = -1


def elect_leaders(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.ElectLeadersResponse()
    election = request.election_type if call.version >= 1 else _PREFERRED
    if election not in (_PREFERRED, _UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election}")
    every = request.topic_partitions is None
    rows: dict[str, list[Any]] = {}
    for name, index in _elected(core, request):
        row = response.PartitionResult(partition_id=index, error_message=None)
        try:
            _elect(core, name, index, election)
        except KafkaError as error:
            if every and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            row.error_code, row.error_message = error.code, error.message
        rows.setdefault(name, []).append(row)
    response.replica_election_results = [
        response.ReplicaElectionResult(topic=name, partition_result=found) for name, found in rows.items()
    ]
    return response


def _elected(core: Core, request: Any) -> Iterator[tuple[str, int]]:
    if request.topic_partitions is None:
        yield from ((t.name, p.index) for t in core.topics.by_name.values() for p in t.partitions)
    else:
        yield from ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)


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


def alter_partition_reassignments(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.AlterPartitionReassignmentsResponse(error_message=None)
    response.allow_replication_factor_change = request.allow_replication_factor_change
    for asked in request.topics:
        rows = []
        for wanted in asked.partitions:
            row = response.ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            rows.append(row)
            try:
                topic, partition = _partition(core, asked.name, wanted.partition_index)
                if wanted.replicas is None:
                    _cancel(core, topic, partition)
                else:
                    _reassign(core, topic, partition, wanted.replicas, request.allow_replication_factor_change)
            except KafkaError as error:
                row.error_code, row.error_message = error.code, error.message
        response.responses.append(response.ReassignableTopicResponse(name=asked.name, partitions=rows))
    return response


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
    twice = [node_id for node_id, count in Counter(replicas).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{start} the broker {twice[0]} more than once.")
    known = {broker.node_id for broker in core.brokers()}
    for node_id in replicas:
        if node_id not in known:
            reason = f"{start} broker {node_id}, but no such broker is registered."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _goes_to(core: Core, partition: Partition) -> int | None:
    """Whom a partition is on its way to, by an operator's wish."""
    if core.membership is None:
        return None
    wanted = core.membership.wanted(partition)
    return None if wanted in (_NO_ONE, core.leader_of(partition)) else wanted


def list_partition_reassignments(core: Core, call: Call, request: Any, now_ms: int) -> Any:
    response = messages.ListPartitionReassignmentsResponse(error_message=None)
    for topic, partitions in _listed(core, request):
        rows = []
        for partition in partitions:
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


def _listed(core: Core, request: Any) -> Iterator[tuple[Topic, list[Partition]]]:
    if request.topics is None:
        yield from ((topic, topic.partitions) for topic in core.topics.by_name.values())
        return
    for asked in request.topics:
        topic = core.topics.by_name.get(asked.name)
        if topic is not None:
            found = [topic.partition(index) for index in asked.partition_indexes]
            yield topic, [partition for partition in found if partition is not None]
