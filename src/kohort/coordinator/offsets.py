"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete. How they end by themselves is in expiry.py.

Offsets live in their group, topic by topic. Requests of v10 and later name topics by id; the broker's view of topics
translates. A partition with an open transaction is unstable until the transaction's marker is replayed.
"""

from collections.abc import Iterable
from typing import Any

from kohort.coordinator import events
from kohort.coordinator.causes import CauseKind
from kohort.coordinator.context import Context, Topics
from kohort.coordinator.effects import Decision, Records, Request, SharedResponse, append_error, plain, size_of
from kohort.coordinator.expiry import removed
from kohort.coordinator.group import Group
from kohort.coordinator.records import (
    Change,
    OffsetAndMetadata,
    OffsetCommit,
    offset_key_prefix,
    offset_value,
    pack_int,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse
from kohort.protocol.uuids import ZERO_UUID

NONE = ErrorCode.NONE
TOPIC_ID_VERSION = 10
BATCH_VERSION = 8
TOP_LEVEL_ERROR_VERSION = 2
INVALID_OFFSET = -1
TOO_LARGE = ErrorCode.RECORD_LIST_TOO_LARGE

_CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition
_FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchTopics = OffsetFetchResponse.OffsetFetchResponseTopics
_FetchPartitions = OffsetFetchResponse.OffsetFetchResponsePartitions
_DeleteTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_DeletePartition = OffsetDeleteResponse.OffsetDeleteResponsePartition


_Known = tuple[str, bytes, list[Any]]  # name, topic id, the request's partitions


# ---- OffsetCommit


def commit(context: Context, request: Request) -> Decision | None:
    """Partitions that do not exist are refused one by one; the rest stand or fall together."""
    known, unknown = _known_topics(context.topics, request)
    if not known:
        context.reply(request, OffsetCommitResponse(topics=unknown))
        return None
    message = request.message
    group = context.groups.get(message.group_id)
    error = _no_group_error(context, request) if group is None else group.commit_error(context, request)
    if error:
        if group is not None:
            context.refused(
                group, request, events.CommitRefused, error, generation=message.generation_id_or_member_epoch
            )
        context.reply(request, OffsetCommitResponse(topics=_merge(unknown, commit_error_topics(known, error))))
        return None
    if group is not None and group.checks_partitions and (error := _partitions_error(group, request, known)):
        context.refused(group, request, events.CommitRefused, error, generation=message.generation_id_or_member_epoch)
        context.reply(request, OffsetCommitResponse(topics=_merge(unknown, commit_error_topics(known, error))))
        return None
    records, changes, refused = _commit_records(context, message, known)
    if unknown or refused:
        response: Any = OffsetCommitResponse(topics=_merge(unknown, _commit_topics(known, refused)))
    else:
        response = _accepted(known)
    if len(records) > context.safe_commits and size_of(records) > context.max_append_bytes:
        context.reply(request, failed_commit(response, append_error(TOO_LARGE)))
        return None
    context.answers.append((request, response))
    return Decision(records, changes) if changes else None


def _partitions_error(group: Group, request: Request, known: list[_Known]) -> ErrorCode:
    """As in Kafka one partition that may not be committed refuses them all."""
    member_id, epoch = request.message.member_id, request.message.generation_id_or_member_epoch
    for _, topic_id, partitions in known:
        for p in partitions:
            if error := group.partition_commit_error(member_id, epoch, topic_id, p.partition_index):
                return error
    return NONE


def unavailable_commit(topics: Topics, request: Request, error: ErrorCode) -> OffsetCommitResponse:
    known, unknown = _known_topics(topics, request)
    return OffsetCommitResponse(topics=_merge(unknown, commit_error_topics(known, error)))


def _no_group_error(context: Context, request: Request) -> ErrorCode:
    if request.message.generation_id_or_member_epoch < 0:
        # A simple group: an admin, or a consumer that assigns its partitions itself.
        return ErrorCode.GROUP_MAX_SIZE_REACHED if context.turns_away() else NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if request.version >= 9 else ErrorCode.ILLEGAL_GENERATION


def _known_topics(topics: Topics, request: Request) -> tuple[list[_Known], list[Any]]:
    by_id = request.version >= TOPIC_ID_VERSION
    known: list[_Known] = []
    unknown: list[Any] = []
    for topic in request.message.topics:
        partitions = topic.partitions
        name = topics.by_id(topic.topic_id) if by_id else topic.name
        found = topics.by_name(name) if name is not None else None
        if found is None or name is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown += commit_error_topics([(topic.name, topic.topic_id, partitions)], error)
            continue
        topic_id, count = found
        for p in partitions:
            if not 0 <= p.partition_index < count:
                missing = [p for p in partitions if not 0 <= p.partition_index < count]
                unknown += commit_error_topics([(name, topic_id, missing)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                partitions = [p for p in partitions if 0 <= p.partition_index < count]
                break
        if partitions:
            known.append((name, topic_id, partitions))
    return known, unknown


def commit_error_topics(topics: Iterable[_Known], error: ErrorCode) -> list[Any]:
    return [
        _CommitTopic(
            name=name,
            topic_id=topic_id,
            partitions=[_CommitPartition(partition_index=p.partition_index, error_code=error) for p in partitions],
        )
        for name, topic_id, partitions in topics
    ]


def _merge(first: list[Any], second: list[Any]) -> list[Any]:
    """Kafka's order: the topics with refused partitions first, each partition list continued where both have one."""
    merged = {topic.name: topic for topic in first if topic.name}
    for topic in second:
        if topic.name in merged:
            merged[topic.name].partitions.extend(topic.partitions)
        else:
            first.append(topic)
    return first


_Refused = set[tuple[str, int]]  # partitions whose metadata is too long


def _commit_records(
    context: Context, message: Any, known: list[_Known]
) -> tuple[Records, list[Change], _Refused | None]:
    """The records, encoded and decoded, and what is refused. Hot: a commit spends much of its time here."""
    group_id, now_ms = message.group_id, context.now_ms
    limit = context.config.offset_metadata_max_bytes
    retention_ms = message.retention_time_ms
    expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
    records: Records = []
    changes: list[Change] = []
    refused: _Refused | None = None
    for name, topic_id, partitions in known:
        prefix = offset_key_prefix(group_id, name)
        for p in partitions:
            index = p.partition_index
            metadata = p.committed_metadata or ""
            if metadata and metadata_length(metadata) > limit:
                refused = refused or set()
                refused.add((name, index))
                continue
            value = OffsetAndMetadata(
                p.committed_offset, p.committed_leader_epoch, metadata, now_ms, expire_ms, topic_id
            )
            records.append((prefix + pack_int(index), offset_value(value)))
            changes.append(OffsetCommit(group_id, name, index, value))
    return records, changes, refused


def _commit_topics(known: list[_Known], refused: _Refused | None) -> list[Any]:
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    return [
        _CommitTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                _CommitPartition(
                    partition_index=p.partition_index,
                    error_code=too_large if refused and (name, p.partition_index) in refused else NONE,
                )
                for p in partitions
            ],
        )
        for name, topic_id, partitions in known
    ]


_ACCEPTED: dict[Any, SharedResponse] = {}
_MOST_ACCEPTED = 10_000


def _accepted(known: list[_Known]) -> Any:
    """The answer to a commit in which nothing is wrong; consumers commit the same partitions over and over."""
    if len(known) != 1:
        return OffsetCommitResponse(topics=_commit_topics(known, None))
    name, topic_id, partitions = known[0]
    first = partitions[0].partition_index if len(partitions) == 1 else tuple([p.partition_index for p in partitions])
    shape = (name, topic_id, first)
    response = _ACCEPTED.get(shape)
    if response is None:
        response = SharedResponse(OffsetCommitResponse(topics=_commit_topics(known, None)))
        if len(_ACCEPTED) < _MOST_ACCEPTED:
            _ACCEPTED[shape] = response
    return response


def metadata_length(text: str) -> int:
    """As offset.metadata.max.bytes counts: Java's UTF-16 units, although it says bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


# ---- OffsetFetch


def fetch_group(context: Context, asked: Any, version: int, require_stable: bool) -> Any:
    """The answer for one group of a request; `asked.topics` None means all."""
    group = context.groups.get(asked.group_id)
    if group is not None and (error := group.fetch_error(asked.member_id, asked.member_epoch)):
        return fetch_error(asked, error, version)
    if asked.topics is None:
        topics = _fetch_all(context, group, version, require_stable) if group is not None else []
    else:
        topics = _fetch_named(context, group, asked.topics, version, require_stable)
    return _FetchGroup(group_id=asked.group_id, topics=topics)


def fetch_error(asked: Any, error: ErrorCode, version: int) -> Any:
    """Before v2 a response has no place for an error but its partitions."""
    if version >= TOP_LEVEL_ERROR_VERSION:
        return _FetchGroup(group_id=asked.group_id, error_code=error)
    topics = [
        _FetchTopics(name=t.name, partitions=[_no_offset(p, error) for p in t.partition_indexes])
        for t in asked.topics or []
    ]
    return _FetchGroup(group_id=asked.group_id, topics=topics)


def failed_fetch(row: Any, error: ErrorCode, version: int) -> Any:
    """In place of the answer for one group, which was ready."""
    if version >= TOP_LEVEL_ERROR_VERSION:
        return _FetchGroup(group_id=row.group_id, error_code=error)
    topics = [
        _FetchTopics(name=t.name, partitions=[_no_offset(p.partition_index, error) for p in t.partitions])
        for t in row.topics
    ]
    return _FetchGroup(group_id=row.group_id, topics=topics)


def flatten_fetch(group: Any) -> OffsetFetchResponse:
    """Up to v7 a response holds one group, in the open."""
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=p.partition_index,
                    committed_offset=p.committed_offset,
                    committed_leader_epoch=p.committed_leader_epoch,
                    metadata=p.metadata,
                    error_code=p.error_code,
                )
                for p in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(error_code=group.error_code, topics=topics)


def _fetch_named(
    context: Context, group: Group | None, asked: list[Any], version: int, require_stable: bool
) -> list[Any]:
    answers, unknown = [], []
    for topic in asked:
        name: str = topic.name
        if version >= TOPIC_ID_VERSION:
            known = context.topics.by_id(topic.topic_id)
            if known is None:
                partitions = [
                    _FetchPartitions(
                        partition_index=p, committed_offset=INVALID_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                    )
                    for p in topic.partition_indexes
                ]
                unknown.append(_FetchTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
                continue
            name = known
        committed = group.offsets.get(name, {}) if group is not None else {}
        current = topic.topic_id if version >= TOPIC_ID_VERSION else _current_id(context, name)
        partitions = []
        for index in topic.partition_indexes:
            value = committed.get(index)
            if require_stable and group is not None and group.is_unstable(name, index):
                partitions.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif value is None or _is_other_topic(value.topic_id, current):
                partitions.append(_no_offset(index, NONE))
            else:
                partitions.append(_committed(index, value))
        answers.append(_FetchTopics(name=name, topic_id=topic.topic_id, partitions=partitions))
    return answers + unknown


def _fetch_all(context: Context, group: Group, version: int, require_stable: bool) -> list[Any]:
    answers = []
    for name, committed in group.offsets.items():
        current = _current_id(context, name)
        if version >= TOPIC_ID_VERSION and current == ZERO_UUID:
            continue  # without an id it has no place in the response
        partitions = [
            _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if require_stable and group.is_unstable(name, index)
            else _committed(index, value)
            for index, value in committed.items()
            if not _is_other_topic(value.topic_id, current)
        ]
        if partitions:
            topic_id = current if version >= TOPIC_ID_VERSION else ZERO_UUID
            answers.append(_FetchTopics(name=name, topic_id=topic_id, partitions=partitions))
    return answers


def _current_id(context: Context, name: str) -> bytes:
    found = context.topics.by_name(name)
    return ZERO_UUID if found is None else found[0]


def _is_other_topic(committed: bytes, asked: bytes) -> bool:
    """A topic deleted and created again is another topic, where both sides know the id."""
    return committed != asked and committed != ZERO_UUID and asked != ZERO_UUID


def _committed(index: int, value: OffsetAndMetadata) -> Any:
    return _FetchPartitions(
        partition_index=index,
        committed_offset=value.committed_offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _no_offset(index: int, error: ErrorCode) -> Any:
    return _FetchPartitions(
        partition_index=index,
        committed_offset=INVALID_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=error,
    )


# ---- OffsetDelete


def delete(context: Context, request: Request) -> Decision | None:
    message = request.message
    group = context.groups.get(message.group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
    if error or group is None:
        context.reply(request, OffsetDeleteResponse(error_code=error))
        return None
    changes: list[Change] = []
    refused, answered = [], []
    for topic in message.topics:
        found = context.topics.by_name(topic.name)
        count = found[1] if found is not None else 0
        unknown = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
        wanted = [p.partition_index for p in topic.partitions if 0 <= p.partition_index < count]
        if unknown:
            refused.append(_delete_topic(topic.name, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if not wanted:
            continue
        if group.is_subscribed(topic.name):
            answered.append(_delete_topic(topic.name, wanted, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
            continue
        answered.append(_delete_topic(topic.name, wanted, NONE))
        committed = group.offsets.get(topic.name, {})
        changes += [
            OffsetCommit(group.group_id, topic.name, index, None)
            for index in wanted
            if index in committed or group.is_unstable(topic.name, index)
        ]
    context.reply(request, OffsetDeleteResponse(topics=_merge(refused, answered)))
    removed(context, group, changes, CauseKind.OFFSETS_DELETED)
    return context.decide(changes, divisible=True) if changes else None


def _delete_topic(name: str, partitions: list[int], error: ErrorCode) -> Any:
    return _DeleteTopic(
        name=name, partitions=[_DeletePartition(partition_index=p, error_code=error) for p in partitions]
    )


def failed_commit(response: Any, error: ErrorCode) -> OffsetCommitResponse:
    """What a commit answers when its records could not be stored; strangers stay strangers."""
    strangers = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return OffsetCommitResponse(
        topics=[
            _CommitTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _CommitPartition(
                        partition_index=p.partition_index,
                        error_code=p.error_code if p.error_code in strangers else error,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in plain(response).topics
        ]
    )
