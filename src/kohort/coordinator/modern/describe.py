"""ConsumerGroupDescribe: a KIP-848 group as tools see it, with the target and the current assignment of each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.coordinator.admin import consumer_describe_error
from kohort.coordinator.context import Context, Topics
from kohort.coordinator.effects import Request
from kohort.coordinator.modern.group import NO_PARTITIONS, ModernGroup
from kohort.coordinator.modern.member import Member
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupDescribeResponse

_Response = ConsumerGroupDescribeResponse
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(context: Context, group_id: str, request: Request) -> Any:
    group = context.groups.get(group_id)
    if not isinstance(group, ModernGroup):
        what = "not found" if group is None else "is not a consumer group"
        return consumer_describe_error(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    answer = _Response.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(context.config.assignors),
        members=[_member(context.topics, group, member) for member in group.members.values()],
    )
    return answer


def _member(topics: Topics, group: ModernGroup, member: Member) -> Any:
    said, current = member.metadata, member.current
    held: dict[bytes, list[int]] = {}
    for epochs in (current.assigned, current.pending):
        for topic_id, numbers in epochs.items():
            held.setdefault(topic_id, []).extend(numbers)
    return _Response.Member(
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=current.member_epoch,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.regex,
        assignment=_assignment(topics, held),
        target_assignment=_assignment(topics, group.target.get(member.member_id, NO_PARTITIONS)),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: Topics, partitions: Mapping[bytes, Iterable[int]]) -> Any:
    rows = []
    for topic_id in sorted(partitions):
        name = topics.by_id(topic_id)
        if name is not None:  # a topic that is gone has no name to show
            rows.append(
                _Response.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions[topic_id]))
            )
    return _Response.Assignment(topic_partitions=rows)
