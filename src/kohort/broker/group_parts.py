"""A request about many groups, put to the coordinator a few groups at a time, and the one answer made of the parts.
Commits of more partitions than one batch can have, which are refused.

The coordinator sees ordinary requests; between two of them others have a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import OffsetCommitResponse

if TYPE_CHECKING:
    from kohort.broker.connection import Call
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps

GROUPS_AT_ONCE = 100
COMMITS_AT_ONCE = 2_000
_ROWS = {
    "OffsetFetch": ("groups", "groups"),
    "DescribeGroups": ("groups", "groups"),
    "ConsumerGroupDescribe": ("group_ids", "groups"),
    "DeleteGroups": ("groups_names", "results"),
}
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
        self._outstanding = 0

    def ask(self, handle: Callable[[Part, Any], None]) -> Steps:
        """`handle` puts one part to the coordinator, which answers it now or later."""
        asked = self._all if self._all is not None else getattr(self._message, self._asked)
        chunks = [asked[start : start + GROUPS_AT_ONCE] for start in range(0, len(asked), GROUPS_AT_ONCE)]
        self._outstanding = len(chunks)
        self._answers = [None] * len(chunks)
        for position, chunk in enumerate(chunks):
            part = type(self._message)()
            for name in type(self._message).__slots__:
                setattr(part, name, getattr(self._message, name))
            setattr(part, self._asked, chunk)
            handle(Part(self, position), part)
            yield

    def one(self) -> Part:
        """For a request that is put as a whole, with an answer that is large."""
        self._answers, self._outstanding = [None], 1
        return Part(self, 0)

    def answered(self, position: int, response: Any) -> None:
        self._answers[position] = response
        self._outstanding -= 1
        if self._outstanding:
            return
        whole = self._answers[0]
        setattr(whole, self._rows, [row for answer in self._answers for row in getattr(answer, self._rows)])
        self._core.long_work.encode(self._call, whole)


def is_many(call: Call, message: Any) -> bool:
    names = _ROWS.get(call.entry.name)
    return names is not None and len(getattr(message, names[0]) or ()) > GROUPS_AT_ONCE


def most_commits(core: Core) -> int:
    """How many partitions one OffsetCommit may name: more of the smallest records are never one batch."""
    offsets = core.topics.by_name.get(OFFSETS_TOPIC)
    limit = core.config["message.max.bytes"] if offsets is None else offsets.config.max_message_bytes
    return int(limit) // _SMALLEST_COMMIT_BYTES


def refuse_commits(message: Any) -> Steps:
    """OffsetCommit with more of them: refused as Kafka refuses a batch that is too large, in slices."""
    response = OffsetCommitResponse()
    count = 0
    for topic in message.topics:
        rows: list[Any] = []
        row = response.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
        response.topics.append(row)
        for asked in topic.partitions:
            count += 1
            if count % COMMITS_AT_ONCE == 0:
                yield
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            rows.append(response.OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error))
    return response
