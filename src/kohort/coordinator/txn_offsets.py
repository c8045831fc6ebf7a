"""TxnOffsetCommit, and the end of the transaction that it belongs to: offsets that count only when that is committed.

Until then they are pending, by producer, and the partition's offset is unstable. That the transaction holds the group's
partition, and that the epochs are right, is known before anybody asks here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kohort.coordinator import events
from kohort.coordinator.context import Context, Topics
from kohort.coordinator.effects import Decision, Records, Request, append_error, size_of
from kohort.coordinator.group import Group
from kohort.coordinator.offsets import TOO_LARGE, metadata_length
from kohort.coordinator.records import OffsetAndMetadata, OffsetCommit, TransactionalCommit, TransactionEnd, encode
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import TxnOffsetCommitResponse
from kohort.protocol.uuids import ZERO_UUID
from kohort.records.control import ControlType, marker_record

NONE = ErrorCode.NONE
_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
_OLD_CLIENTS = 2


class EndTransaction(NamedTuple):
    """The end of a producer's transaction in one partition of the group coordinator's log."""

    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


def commit(context: Context, request: Request) -> Decision | None:
    message = request.message
    group = context.groups.get(message.group_id)
    if group is not None:
        error = _group_error(context.topics, group, message)
    else:
        error = NONE if message.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        if not error and context.turns_away():
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
    if error:
        if group is not None:
            context.refused(group, request, events.CommitRefused, error, generation=message.generation_id)
        context.reply(request, response(context.topics, request, error))
        return None
    decision, refused = _decision(context, message)
    if decision is not None and size_of(decision.records) > context.max_append_bytes:
        context.reply(request, response(context.topics, request, append_error(TOO_LARGE)))
        return None
    context.reply(request, response(context.topics, request, NONE, refused))
    return decision


def _group_error(topics: Topics, group: Group, message: Any) -> ErrorCode:
    member_id, generation = message.member_id, message.generation_id
    error = group.txn_commit_error(member_id, message.group_instance_id, generation)
    if not error and group.checks_partitions:
        for _, index, _, topic_id in _known(topics, message):
            if group.partition_commit_error(member_id, generation, topic_id, index):
                return ErrorCode.ILLEGAL_GENERATION
    return error


def _decision(context: Context, message: Any) -> tuple[Decision | None, set[tuple[str, int]]]:
    """What is to be stored, and which partitions are refused for their metadata."""
    records: Records = []
    changes: list[TransactionalCommit] = []
    refused: set[tuple[str, int]] = set()
    limit, now_ms = context.config.offset_metadata_max_bytes, context.now_ms
    for name, index, p, topic_id in _known(context.topics, message):
        metadata = p.committed_metadata or ""
        if metadata_length(metadata) > limit:
            refused.add((name, index))
            continue
        value = OffsetAndMetadata(p.committed_offset, p.committed_leader_epoch, metadata, now_ms, -1, topic_id)
        change = OffsetCommit(message.group_id, name, index, value)
        records.append(encode(change))
        changes.append(TransactionalCommit(change, message.producer_id))
    if not changes:
        return None, refused
    producer = (message.producer_id, message.producer_epoch)
    return Decision(records, changes, producer=producer), refused


def _known(topics: Topics, message: Any) -> Iterable[tuple[str, int, Any, bytes]]:
    for topic in message.topics:
        found = topics.by_name(topic.name)
        topic_id, count = found or (ZERO_UUID, 0)
        for p in topic.partitions:
            if 0 <= p.partition_index < count:
                yield topic.name, p.partition_index, p, topic_id


def names_nothing(topics: Topics, message: Any) -> bool:
    """Whether none of its partitions exists: then nobody else need be asked."""
    return next(iter(_known(topics, message)), None) is None


def response(
    topics: Topics, request: Request, error: ErrorCode, too_long: Iterable[tuple[str, int]] = ()
) -> TxnOffsetCommitResponse:
    """Partitions that do not exist are refused one by one and come first, as in Kafka; the rest get the error."""
    message = request.message
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < _OLD_CLIENTS:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    known = {(name, index) for name, index, _, _ in _known(topics, message)}
    rows: dict[str, Any] = {}
    for wanted in (False, True):
        for topic in message.topics:
            for p in topic.partitions:
                key = (topic.name, p.partition_index)
                if (key in known) is not wanted:
                    continue
                code = error if wanted else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if key in too_long:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                row = rows.setdefault(topic.name, _Topic(name=topic.name, partitions=[]))
                row.partitions.append(_Partition(partition_index=p.partition_index, error_code=code))
    return TxnOffsetCommitResponse(topics=list(rows.values()))


def failed_txn_commit(answer: TxnOffsetCommitResponse, error: ErrorCode) -> TxnOffsetCommitResponse:
    """What a commit answers when its records could not be stored; strangers stay strangers."""
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                p.error_code = error
    return answer


def end(context: Context, request: Request) -> Decision:
    """The answer is an error code."""
    ask: EndTransaction = request.message
    context.reply(request, NONE)
    kind = ControlType.COMMIT if ask.committed else ControlType.ABORT
    return Decision(
        [marker_record(kind, ask.coordinator_epoch)],
        [TransactionEnd(ask.producer_id, ask.committed)],
        producer=(ask.producer_id, ask.producer_epoch),
        control=True,
    )
