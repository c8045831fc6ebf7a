"""A request about many groups, members or partitions, put to the coordinator a few at a time, and the one answer made
of the parts. Commits of more partitions than one batch can have, which are refused.

The coordinator sees ordinary requests; between two of them others have a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kohort.broker.long_work import check_answer
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitRequest, OffsetCommitResponse, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

GROUPS_AT_ONCE = 100
PARTITIONS_AT_ONCE = 1_000
_FEW_BYTES = PARTITIONS_AT_ONCE * 4
COMMITS_AT_ONCE = 2_000
_ROWS = {
    "OffsetFetch": ("groups", "groups"),
    "DescribeGroups": ("groups", "groups"),
    "ConsumerGroupDescribe": ("group_ids", "groups"),
    "DeleteGroups": ("groups_names", "results"),
    "LeaveGroup": ("members", "members"),
}
"""What is asked for, and the rows of the answer."""
_PARTITIONS_OF = {"OffsetFetch": "partition_indexes", "OffsetDelete": "partitions"}
_LISTED = ("", "groups")
_SMALLEST_COMMIT_BYTES = 45


class Part:
    """Stands for the call in one part of a request; what it is answered goes to the whole."""

    __slots__ = ("_parts", "_position")

    def __init__(self, parts: Parts, position: int) -> None:
        self._parts = parts
        self._position = position

    def answered(self, response: Any) -> None:
        self._parts.answered(self._position, response)


class Parts:
    """One request in parts, until the last of them is answered."""

    def __init__(self, core: Core, call: Call, message: Any) -> None:
        self._core = core
        self._call = call
        self._asked, self._rows = _ROWS.get(call.entry.name, _LISTED)
        self._message = message
        self._all = list(dict.fromkeys(getattr(message, self._asked))) if self._rows == "results" else None
        self._answers: list[Any] = []
        self._joins = False
        self._outstanding = 0

    def ask(self, handle: Callable[[Part, Any], None], weigh: Callable[[Any], int]) -> Steps:
        """`handle` puts one part to the coordinator, which answers it now or later; `weigh` says how many rows a group
        is, or a member."""
        asked = self._all if self._all is not None else getattr(self._message, self._asked)
        return self._ask(self._asked, _weighed(asked, weigh), handle)

    def ask_by_partitions(self, handle: Callable[[Part, Any], None]) -> Steps:
        """The same for what names many partitions: a group, or a topic, whose partitions are in two parts is one row of
        the answer."""
        message, name = self._message, _PARTITIONS_OF[self._call.entry.name]
        self._joins = True
        if not message.topics and getattr(message, "groups", None):
            return self._ask("groups", _pieces_of_groups(message.groups, name), handle)
        self._rows = "topics"
        return self._ask("topics", _pieces(message.topics, name), handle)

    def _ask(self, field: str, chunks: Iterable[list[Any]], handle: Callable[[Part, Any], None]) -> Steps:
        self._outstanding = 1  # those that are still to be asked
        for position, chunk in enumerate(chunks):
            self._outstanding += 1
            self._answers.append(None)
            handle(Part(self, position), _with(self._message, field, chunk))
            yield
        self._finish_one()

    def one(self) -> Part:
        """For a request that is put as a whole, with an answer that is large."""
        self._answers, self._outstanding = [None], 1
        return Part(self, 0)

    def answered(self, position: int, response: Any) -> None:
        self._answers[position] = response
        self._finish_one()

    def _finish_one(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        whole = next((answer for answer in self._answers if getattr(answer, "error_code", 0)), self._answers[0])
        rows: list[Any] = []
        for answer in self._answers:
            if self._joins:
                _join(rows, getattr(answer, self._rows))
            else:
                rows += getattr(answer, self._rows)
        setattr(whole, self._rows, rows)
        self._core.long_work.encode(self._call, whole)


def asked_of(call: Call, message: Any) -> list[Any]:
    """The groups, or members, that a request names."""
    names = _ROWS.get(call.entry.name)
    return [] if names is None else getattr(message, names[0]) or []


def _weighed(asked: list[Any], weigh: Callable[[Any], int]) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    room, rows = PARTITIONS_AT_ONCE, 0
    for one in asked:
        weight = weigh(one)
        rows += weight
        check_answer(0, rows)
        if chunk and (room < weight or len(chunk) == GROUPS_AT_ONCE):
            yield chunk
            chunk, room = [], PARTITIONS_AT_ONCE
        chunk.append(one)
        room -= weight
    if chunk:
        yield chunk


def names_many_partitions(call: Call, message: Any) -> bool:
    name = _PARTITIONS_OF.get(call.entry.name)
    if name is None or call.size <= _FEW_BYTES:
        return False
    topics = [*(message.topics or ()), *(t for group in getattr(message, "groups", ()) for t in group.topics or ())]
    return sum(len(getattr(topic, name)) for topic in topics) > PARTITIONS_AT_ONCE


def _with(struct: Any, field: str, value: Any) -> Any:
    """A copy with one field of its own."""
    made = type(struct)()
    for name in type(struct).__slots__:
        setattr(made, name, getattr(struct, name))
    setattr(made, field, value)
    return made


def _pieces(topics: list[Any], name: str) -> Iterator[list[Any]]:
    """Topics, or parts of them, with no more than so many partitions together."""
    piece: list[Any] = []
    room = PARTITIONS_AT_ONCE
    for topic in topics:
        partitions, start = getattr(topic, name), 0
        while start < len(partitions) or not partitions:
            some = partitions[start : start + room]
            piece.append(_with(topic, name, some))
            start += room
            room -= max(len(some), 1)
            if room <= 0:
                yield piece
                piece, room = [], PARTITIONS_AT_ONCE
            if not partitions:
                break
    if piece:
        yield piece


def _pieces_of_groups(groups: list[Any], name: str) -> Iterator[list[Any]]:
    """The same of groups; one with many partitions is in several."""
    piece: list[Any] = []
    room = PARTITIONS_AT_ONCE
    for group in groups:
        size = sum(len(getattr(topic, name)) for topic in group.topics or ())
        if size > room or len(piece) == GROUPS_AT_ONCE:
            if piece:
                yield piece
            piece, room = [], PARTITIONS_AT_ONCE
        if size > PARTITIONS_AT_ONCE:
            yield from ([_with(group, "topics", some)] for some in _pieces(group.topics, name))
        else:
            piece.append(group)
            room -= size
    if piece:
        yield piece


def _join(rows: list[Any], more: list[Any]) -> None:
    """Put rows behind others; where the last and the first are about the same they become one."""
    if rows and more and _identity(rows[-1]) == _identity(more[0]):
        last, first = rows[-1], more[0]
        if hasattr(first, "topics"):
            last.error_code = last.error_code or first.error_code
            _join(last.topics, first.topics)
        else:
            last.partitions += first.partitions
        more = more[1:]
    rows += more


def _identity(row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, name, None) for name in ("group_id", "name", "topic_id"))


def most_commits(core: Core) -> int:
    """How many partitions one OffsetCommit may name: more of the smallest records are never one batch."""
    offsets = core.topics.by_name.get(OFFSETS_TOPIC)
    limit = core.config["message.max.bytes"] if offsets is None else offsets.config.max_message_bytes
    return int(limit) // _SMALLEST_COMMIT_BYTES


def refuse_commits(message: Any) -> Steps:
    """A commit with more of them: refused as Kafka refuses a batch that is too large, in slices."""
    response: Any
    if type(message) is OffsetCommitRequest:
        response = OffsetCommitResponse()
        topic_of, row_of = response.OffsetCommitResponseTopic, response.OffsetCommitResponsePartition
    else:
        response = TxnOffsetCommitResponse()
        topic_of, row_of = response.TxnOffsetCommitResponseTopic, response.TxnOffsetCommitResponsePartition
    count = 0
    for topic in message.topics:
        rows: list[Any] = []
        row = topic_of(name=topic.name, partitions=rows)
        if hasattr(row, "topic_id"):
            row.topic_id = topic.topic_id
        response.topics.append(row)
        for asked in topic.partitions:
            count += 1
            if count % COMMITS_AT_ONCE == 0:
                yield
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            rows.append(row_of(partition_index=asked.partition_index, error_code=error))
    return response
