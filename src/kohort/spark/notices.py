"""What a source tells the sink of its query: its place in the group, in a file beside the checkpoint; and what the
offsets of a batch have to be for the sink to commit them in its transaction.

The two are processes of one driver, which Spark does not introduce to each other. A notice that is out of date does no
harm: the coordinator refuses commits of another generation.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from kohort.assignors.types import ConsumerGroupMetadata
from kohort.client.types import OffsetAndMetadata, TopicPartition, partition_list
from kohort.spark import checkpoint
from kohort.spark.offsets import StreamOffset
from kohort.spark.sink_commit import Refusal
from kohort.spark.tags import CommitTag

log = logging.getLogger("kohort.spark")


class NotAssigned(Refusal):
    """By what the source has told last: between two assignments, and at the end of a run, it holds nothing for a while,
    and has it again when the group is settled."""


class Notice(NamedTuple):
    """`query` is the source's, as in its offsets; `owned` what it may read now."""

    query: str
    member: ConsumerGroupMetadata
    owned: frozenset[TopicPartition]

    @property
    def is_member(self) -> bool:
        return self.member.generation_id >= 0

    def to_json(self) -> str:
        group, generation, member, instance = self.member
        owned = sorted([topic, partition] for topic, partition in self.owned)
        return json.dumps(
            {"query": self.query, "group": group, "generation": generation, "member": member, "instance": instance}
            | {"owned": owned}
        )

    @classmethod
    def from_json(cls, text: str) -> Notice:
        value = json.loads(text)
        member = ConsumerGroupMetadata(value["group"], value["generation"], value["member"], value["instance"])
        return cls(value["query"], member, frozenset(TopicPartition(*place) for place in value["owned"]))


class Board:
    """Where one source puts its notices; from the member's thread and Spark's."""

    def __init__(self, location: str | None) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._query: str | None = None
        self._place: tuple[ConsumerGroupMetadata, frozenset[TopicPartition]] | None = None
        self._shown: Notice | None = None

    def of_query(self, query: str) -> None:
        with self._lock:
            self._query = query
            self._show()

    def place(self, member: ConsumerGroupMetadata, owned: frozenset[TopicPartition]) -> None:
        with self._lock:
            self._place = (member, owned)
            self._show()

    def _show(self) -> None:
        if self._location is None or self._query is None or self._place is None:
            return
        notice = Notice(self._query, *self._place)
        if notice != self._shown:
            try:
                checkpoint.put_notice(self._location, notice.query, notice.to_json())
                self._shown = notice
            except Exception as error:
                log.warning("the source's place cannot be noted in %s: %s", self._location, error)


# -- for the sink ----------------------------------------------------------------------------------------------------


def read(location: str, batch_id: int) -> list[tuple[Notice, StreamOffset]]:
    """Of every source of the query that is a member of a group, with the end of this batch."""
    found = []
    for text in checkpoint.notices(location):
        notice = Notice.from_json(text)
        end = checkpoint.batch_end(location, batch_id, notice.query)
        if end is not None:
            found.append((notice, end))
    return found


def offsets_to_commit(
    notice: Notice, end: StreamOffset, committed: Mapping[TopicPartition, OffsetAndMetadata | None]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The batch's, where every partition is still the query's, and stands where the batch begins. A Refusal else: what
    the batch has read of it is, or will be, published by another member."""
    offsets = {}
    for tp, (first, stop) in sorted(end.ranges.items()):
        if first == stop:
            continue
        at = committed.get(tp)
        tag = None if at is None else CommitTag.parse(at.metadata)
        own = tag is not None and tag.query == end.query
        if at is not None and own and at.offset >= stop:
            continue  # committed with an earlier decision of this batch
        if tp not in notice.owned:
            raise NotAssigned(lost(notice, [tp], f"{tp} is not assigned to this query any more"))
        if at is not None and at.offset != first and not (own and at.offset < first):
            raise Refusal(lost(notice, [tp], f"the batch begins at {first}, but the group stands at {at.offset}"))
        note = end.note(tp.topic)
        offsets[tp] = OffsetAndMetadata(stop, CommitTag(end.query, note.topic_id, note.began).text())
    return offsets


def lost(notice: Notice, partitions: list[TopicPartition], why: str) -> str:
    return (
        f"what was read of {partition_list(partitions)} is not published: {why}, so another member of group "
        f"{notice.member.group_id} has it. Nothing is lost and nothing written twice: the group's commits are where "
        "the output ends. Start the query with a new checkpoint, it goes on from there"
    )
