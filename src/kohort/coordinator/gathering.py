"""Answers about groups of several shards: they leave when the last of these has stored what the answer rests on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from kohort.coordinator import admin, offsets
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision, Effects, Request
from kohort.coordinator.shard import Shard
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


class Gathering:
    """The rows of an answer, one a group."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.rows: list[Any] = []
        self._touched: dict[Shard[Any], list[str]] = {}
        self._outstanding = 0
        self._error = ErrorCode.NONE

    def touch(self, shard: Shard[Any]) -> None:
        """What is not in the answer may rest on something too."""
        self._touched.setdefault(shard, [])

    def add(self, shard: Shard[Any], group_id: str, row: Any) -> None:
        self.rows.append(row)
        self._touched.setdefault(shard, []).append(group_id)

    def close(self, effects: Effects) -> None:
        """Nothing more will come: leaves now, or when what it has seen is stored."""
        for shard, group_ids in self._touched.items():
            if shard.resting is not None:
                shard.resting.thens.append(GatheredPart(self, group_ids))
                self._outstanding += 1
        if not self._outstanding:
            effects.replies.append((self._request, self._response()))

    def part_done(self, effects: Effects, group_ids: Collection[str], error: ErrorCode) -> None:
        if error:
            self._error = error
            self.rows = [
                error_row(self._request, row, error) if row.group_id in group_ids else row for row in self.rows
            ]
        self._outstanding -= 1
        if not self._outstanding:
            effects.replies.append((self._request, self._response()))

    def _response(self) -> Any:
        kind, version = type(self._request.message), self._request.version
        if kind is DescribeGroupsRequest:
            return DescribeGroupsResponse(groups=self.rows)
        if kind is ConsumerGroupDescribeRequest:
            return ConsumerGroupDescribeResponse(groups=self.rows)
        if kind is DeleteGroupsRequest:
            return DeleteGroupsResponse(results=self.rows)
        if kind is OffsetFetchRequest:
            if version >= offsets.BATCH_VERSION:
                return OffsetFetchResponse(groups=self.rows)
            return offsets.flatten_fetch(self.rows[0])
        return ListGroupsResponse(error_code=self._error, groups=[] if self._error else self.rows)


class GatheredPart(NamedTuple):
    """One shard's part of it."""

    gathering: Gathering
    group_ids: list[str]

    def stored(self, context: Context, error: ErrorCode) -> Decision | None:
        self.gathering.part_done(context.effects, self.group_ids, error)
        return None


def error_row(request: Request, row: Any, error: ErrorCode) -> Any:
    """In place of a row that was ready."""
    kind = type(request.message)
    if kind is DescribeGroupsRequest:
        return admin.describe_error(row.group_id, error)
    if kind is ConsumerGroupDescribeRequest:
        return admin.consumer_describe_error(row.group_id, error)
    if kind is DeleteGroupsRequest:
        return admin.delete_error(row.group_id, error)
    if kind is OffsetFetchRequest:
        return offsets.failed_fetch(row, error, request.version)
    return row
