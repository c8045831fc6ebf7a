"""What each request answers when it cannot be served, or when what its answer rests on could not be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.coordinator.classic.join import join_response
from kohort.coordinator.effects import Request
from kohort.coordinator.offsets import failed_commit
from kohort.coordinator.txn_offsets import EndTransaction, failed_txn_commit
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
)

_REFUSALS: dict[type, Callable[[Request, ErrorCode], Any]] = {
    JoinGroupRequest: lambda request, error: join_response(request, error, ""),
    SyncGroupRequest: lambda request, error: SyncGroupResponse(error_code=error),
    HeartbeatRequest: lambda request, error: HeartbeatResponse(error_code=error),
    ConsumerGroupHeartbeatRequest: lambda request, error: ConsumerGroupHeartbeatResponse(error_code=error),
    LeaveGroupRequest: lambda request, error: LeaveGroupResponse(error_code=error),
    OffsetDeleteRequest: lambda request, error: OffsetDeleteResponse(error_code=error),
    EndTransaction: lambda request, error: error,
}


def refusal(request: Request, error: ErrorCode) -> Any:
    return _REFUSALS[type(request.message)](request, error)


def failed(request: Request, response: Any, error: ErrorCode) -> Any:
    """In place of a response that was ready."""
    if type(request.message) is OffsetCommitRequest:
        return failed_commit(response, error)
    if type(request.message) is TxnOffsetCommitRequest:
        return failed_txn_commit(response, error)
    return refusal(request, error)
