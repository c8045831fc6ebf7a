"""Requests of an administrator to one group's coordinator, each a function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.assignors import ConsumerProtocolError, decode_assignment, decode_subscription
from kohort.client import offset_messages as wire
from kohort.client.admin_types import GroupDescription, MemberDescription
from kohort.client.cluster import Coordinator
from kohort.client.errors import KafkaError, error_for
from kohort.client.snapshots import partition_map, partition_set
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    OffsetDeleteRequest,
)

CLASSIC, CONSUMER = "classic", "consumer"
CLASSIC_MEMBER = 0


async def describe(coordinator: Coordinator, node_id: int, group_id: str, timeout_ms: int) -> GroupDescription:
    response = await coordinator.request(DescribeGroupsRequest(groups=[group_id]), timeout_ms)
    group = response.groups[0]
    missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == "Dead"
    if missing and (modern := await _describe_modern(coordinator, group_id, timeout_ms)) is not None:
        return _modern(modern, node_id)
    if group.error_code and not missing:
        raise error_for(group.error_code, f"group {group_id}: {ErrorCode.of(group.error_code).message}")
    members = [_member(member, group.protocol_type) for member in group.members]
    state = "Dead" if missing else group.group_state
    return GroupDescription(group_id, state, CLASSIC, group.protocol_type, group.protocol_data, node_id, members)


async def _describe_modern(coordinator: Coordinator, group_id: str, timeout_ms: int) -> Any | None:
    """None where the broker has no such group, or is too old to have any."""
    try:
        response = await coordinator.request(ConsumerGroupDescribeRequest(group_ids=[group_id]), timeout_ms)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    return None if response.groups[0].error_code else response.groups[0]


def _member(member: Any, protocol_type: str) -> MemberDescription:
    topics: tuple[str, ...] = ()
    assigned: frozenset[TopicPartition] = frozenset()
    if protocol_type == CONSUMER:
        try:
            topics = tuple(decode_subscription(member.member_metadata).topics) if member.member_metadata else ()
            assigned = partition_set(decode_assignment(member.member_assignment).partitions)
        except ConsumerProtocolError:
            pass  # a member may say anything; what cannot be read is shown as empty
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, topics, assigned
    )


def _modern(group: Any, node_id: int) -> GroupDescription:
    def partitions(assignment: Any) -> frozenset[TopicPartition]:
        return partition_set({topic.topic_name: topic.partitions for topic in assignment.topic_partitions})

    members = [
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(member.subscribed_topic_names),
            partitions(member.assignment),
            partitions(member.target_assignment),
            member.member_epoch,
            member.subscribed_topic_regex or None,
            member.member_type == CLASSIC_MEMBER,
        )
        for member in group.members
    ]
    return GroupDescription(
        group.group_id,
        group.group_state,
        CONSUMER,
        CONSUMER,
        group.assignor_name,
        node_id,
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


async def delete(coordinator: Coordinator, group_id: str, timeout_ms: int) -> None:
    response = await coordinator.request(DeleteGroupsRequest(groups_names=[group_id]), timeout_ms)
    if code := response.results[0].error_code:
        raise error_for(code, f"group {group_id}: {ErrorCode.of(code).message}")


async def remove(
    coordinator: Coordinator, group_id: str, members: Iterable[tuple[str, str | None]], reason: str, timeout_ms: int
) -> None:
    identity = LeaveGroupRequest.MemberIdentity
    leaving = [
        identity(member_id=member_id, group_instance_id=instance_id, reason=reason)
        for member_id, instance_id in members
    ]
    request = LeaveGroupRequest(group_id=group_id, members=leaving)
    response = await coordinator.request(request, timeout_ms, min_version=3)
    if response.error_code:
        raise error_for(response.error_code, f"group {group_id}: {ErrorCode.of(response.error_code).message}")
    for member in response.members:
        if member.error_code:
            who = member.group_instance_id or member.member_id
            raise error_for(member.error_code, f"{who} in group {group_id}: {ErrorCode.of(member.error_code).message}")


async def offsets(
    coordinator: Coordinator, group_id: str, partitions: list[TopicPartition] | None, timeout_ms: int
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    request = wire.fetch_request(group_id, partitions, require_stable=False)
    response = await coordinator.request(request, timeout_ms, max_version=wire.MAX_VERSION_WITH_NAMES)
    found = wire.fetched_offsets(response)
    return found if partitions is None else {tp: found.get(tp) for tp in partitions}


async def alter(
    coordinator: Coordinator, group_id: str, wanted: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int
) -> None:
    request = wire.commit_request(group_id, -1, "", None, wanted)
    response = await coordinator.request(request, timeout_ms, max_version=wire.MAX_VERSION_WITH_NAMES)
    _raise_first(group_id, wire.commit_errors(response))


async def delete_offsets(
    coordinator: Coordinator, group_id: str, partitions: list[TopicPartition], timeout_ms: int
) -> None:
    make = OffsetDeleteRequest
    topics = [
        make.OffsetDeleteRequestTopic(
            name=name, partitions=[make.OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for name, numbers in partition_map(partitions).items()
    ]
    response = await coordinator.request(make(group_id=group_id, topics=topics), timeout_ms)
    if response.error_code:
        raise error_for(response.error_code, f"group {group_id}: {ErrorCode.of(response.error_code).message}")
    _raise_first(group_id, wire.commit_errors(response))


def _raise_first(group_id: str, errors: Mapping[TopicPartition, ErrorCode]) -> None:
    if not errors:
        return
    code = next(iter(errors.values()))
    bad = partition_list(tp for tp, other in errors.items() if other is code)
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        raise KafkaError(code, f"group {group_id} has members: stop its consumers first, then set offsets of {bad}")
    raise error_for(code, f"group {group_id}, {bad}: {code.message}")
