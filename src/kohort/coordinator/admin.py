"""DescribeGroups, ListGroups, DeleteGroups: groups as tools see them."""

from collections.abc import Callable, Iterable
from typing import Any

from kohort.coordinator import events, expiry
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.classic import states
from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.states import DEAD, STABLE
from kohort.coordinator.context import Context
from kohort.coordinator.effects import GroupRequest
from kohort.coordinator.events import GroupEvent
from kohort.coordinator.records import Change, GroupMetadata
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse

_DescribedGroup = DescribeGroupsResponse.DescribedGroup
_DescribedMember = DescribeGroupsResponse.DescribedGroupMember
_ListedGroup = ListGroupsResponse.ListedGroup
_Deleted = DeleteGroupsResponse.DeletableGroupResult

CLASSIC = "classic"
# Without an authorizer everything is allowed: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

Unavailable = Callable[[str], ErrorCode]  # why a group's partition cannot answer now, or NONE


def describe(context: Context, request: GroupRequest, unavailable: Unavailable) -> None:
    described = []
    for group_id in request.message.groups:
        if error := unavailable(group_id):
            described.append(_DescribedGroup(group_id=group_id, error_code=error))
            continue
        group = context.groups.get(group_id)
        answer = _describe_unknown(group_id, request.version) if group is None else _describe(group)
        if request.version >= 3 and request.message.include_authorized_operations and not answer.error_code:
            answer.authorized_operations = ALL_GROUP_OPERATIONS
        described.append(answer)
    context.reply(request, DescribeGroupsResponse(groups=described))


def _describe_unknown(group_id: str, version: int) -> Any:
    answer = _DescribedGroup(group_id=group_id, group_state=DEAD.value)
    if version >= 6:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {group_id} not found."
    return answer


def _describe(group: Group) -> Any:
    stable = group.state is STABLE
    members = [
        _DescribedMember(
            member_id=m.member_id,
            group_instance_id=m.instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            member_metadata=m.metadata(group.protocol) if stable else b"",
            member_assignment=m.assignment,
        )
        for m in group.members.values()
    ]
    return _DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=members,
    )


def list_groups(context: Context, request: GroupRequest, loading: bool) -> None:
    if loading:
        return context.reply(request, ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    wanted_states = {name.lower().strip() for name in request.message.states_filter}
    wanted_types = {name.lower().strip() for name in request.message.types_filter}
    if wanted_types and CLASSIC not in wanted_types:
        return context.reply(request, ListGroupsResponse())
    listed = [
        _ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )
        for group in context.groups.values()
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
    context.reply(request, ListGroupsResponse(groups=listed))


def delete(context: Context, group_ids: Iterable[str]) -> tuple[list[Any], list[Change], list[GroupEvent]]:
    """The answer for each group, and the tombstones and events of those that go, all of one partition."""
    answers: list[Any] = []
    changes: list[Change] = []
    deleted: list[GroupEvent] = []
    for group_id in group_ids:
        group = context.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else states.DELETE_GROUP[group.state]
        answers.append(_Deleted(group_id=group_id, error_code=error))
        if group is not None and not error:
            tombstones, event = group_tombstones(context, group, CauseKind.DELETED)
            changes += tombstones
            deleted.append(event)
    return answers, changes, deleted


def group_tombstones(context: Context, group: Group, kind: CauseKind) -> tuple[list[Change], GroupEvent]:
    """Everything that the log knows of the group; the group itself goes when they are replayed."""
    group.deleting = True
    group.join_timer.cancel()
    group.sync_timer.cancel()
    event = events.GroupDeleted(
        at_ms=context.now_ms, group_id=group.group_id, generation=group.generation, cause=Cause(kind)
    )
    return [*expiry.tombstones(group), GroupMetadata(group.group_id, None)], event
