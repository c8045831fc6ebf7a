"""DescribeGroups, ListGroups, DeleteGroups: groups as tools see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.expiry import delete_groups
from kohort.coordinator.group import Group
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)

_DescribedGroup = DescribeGroupsResponse.DescribedGroup
_ListedGroup = ListGroupsResponse.ListedGroup
_Deleted = DeleteGroupsResponse.DeletableGroupResult

NO_GROUP = "Dead"  # what a group is that does not exist
# Without an authorizer everything is allowed: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def describe(context: Context, group_id: str, request: Request) -> Any:
    group = context.groups.get(group_id)
    if group is None or group.type != "classic":
        answer = _describe_unknown(
            group_id, request.version, "not found" if group is None else "is not a classic group"
        )
    else:
        answer = group.describe()
    if request.version >= 3 and request.message.include_authorized_operations and not answer.error_code:
        answer.authorized_operations = ALL_GROUP_OPERATIONS
    return answer


def describe_error(group_id: str, error: ErrorCode) -> Any:
    return _DescribedGroup(group_id=group_id, error_code=error)


def consumer_describe_error(group_id: str, error: ErrorCode, message: str | None = None) -> Any:
    return ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error, error_message=message)


def _describe_unknown(group_id: str, version: int, what: str) -> Any:
    answer = _DescribedGroup(group_id=group_id, group_state=NO_GROUP)
    if version >= 6:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {group_id} {what}."
    return answer


def list_groups(groups: Iterable[Group], request: Request) -> list[Any]:
    states = {name.lower().strip() for name in request.message.states_filter}
    types = {name.lower().strip() for name in request.message.types_filter}
    return [
        _ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_name,
            group_state=group.state_name,
            group_type=group.type,
        )
        for group in groups
        if (not states or group.state_name.lower() in states) and (not types or group.type in types)
    ]


def delete(context: Context, group_ids: Iterable[str]) -> tuple[list[Any], Decision | None]:
    """The answer for each group, and the tombstones of those that go."""
    answers: list[Any] = []
    deleted: list[Group] = []
    for group_id in group_ids:
        group = context.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()
        answers.append(_Deleted(group_id=group_id, error_code=error))
        if group is not None and not error:
            deleted.append(group)
    return answers, delete_groups(context, deleted, Cause(CauseKind.DELETED))


def delete_error(group_id: str, error: ErrorCode) -> Any:
    return _Deleted(group_id=group_id, error_code=error)
