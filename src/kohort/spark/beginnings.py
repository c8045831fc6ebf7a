"""Where a partition that a query has just been assigned is taken up: at a commit, a checkpoint, or a beginning.

Decisions on values that others have asked for. No I/O, and no state.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.spark.offsets import StreamOffset, TopicNote
from kohort.spark.tags import CommitTag

log = logging.getLogger("kohort.spark")


class Beginning(enum.Enum):
    """Where to begin a partition that has no position."""

    AS_ASKED = "where startingOffsets says"
    NEW = "at its first record: it came after the group had taken up the topic"
    CREATED_AGAIN = "at its first record: the positions known are those of a topic that was deleted"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a topic's partitions when one of them is taken up."""

    query: str
    topic_id: str
    """Of the topic as it is now; "" where the broker is too old to have ids."""
    checkpoint: StreamOffset
    commits: Mapping[TopicPartition, OffsetAndMetadata | None]
    """The group's, of the partition and, where it has none, of the topic's others."""

    def is_other(self, topic_id: str) -> bool:
        """Whether this is the id of a topic that had the name before."""
        return bool(topic_id and self.topic_id and topic_id != self.topic_id)


def take_up(tp: TopicPartition, evidence: Evidence) -> int | Beginning:
    """The position, or how to begin."""
    group, checkpoint = evidence.commits.get(tp), evidence.checkpoint.next_offset(tp)
    tag = CommitTag.parse(group.metadata) if group is not None else None
    old_commit = tag is not None and evidence.is_other(tag.topic_id)
    old_checkpoint = checkpoint is not None and evidence.is_other(evidence.checkpoint.note(tp.topic).topic_id)
    if old_commit:
        group = tag = None
    if old_checkpoint:
        checkpoint = None
    if group is None and checkpoint is None:
        if old_commit or old_checkpoint:
            return Beginning.CREATED_AGAIN
        return Beginning.NEW if is_new(tp, evidence) else Beginning.AS_ASKED
    if group is None or checkpoint is None or group.offset == checkpoint:
        return group.offset if group is not None else checkpoint  # type: ignore[return-value]
    return _older_or_newer(tp, group.offset, checkpoint, tag is not None and tag.query == evidence.query)


def _older_or_newer(tp: TopicPartition, group: int, checkpoint: int, own: bool) -> int:
    if own and group < checkpoint:
        log.info(
            "%s: this query's last commit %d had not followed its checkpoint, going on at %d", tp, group, checkpoint
        )
        return checkpoint
    who = "a later run of this query" if own else "another member or an operator"
    log.warning(
        "%s: the checkpoint says %d, but %s has moved the group to %d since, which wins", tp, checkpoint, who, group
    )
    return group


def is_new(tp: TopicPartition, evidence: Evidence) -> bool:
    """Whether a partition without a position came after the group had taken up its topic.

    The group says so first, since it outlives queries: by the number of partitions that its commits carry or, where all
    are of other programs, by having any. Then this query's own beginning.
    """
    began = group_began(tp.topic, evidence)
    if began is None:
        note = evidence.checkpoint.note(tp.topic)
        if any(other.topic == tp.topic for other in evidence.checkpoint.ranges):
            return True
        began = 0 if evidence.is_other(note.topic_id) else note.began
    return tp.partition >= began


def group_began(topic: str, evidence: Evidence) -> int | None:
    """How many partitions the topic had when the group took it up; None where it has not."""
    commits = [at for tp, at in evidence.commits.items() if at is not None and tp.topic == topic]
    if not commits:
        return None
    tags = [tag for at in commits if (tag := CommitTag.parse(at.metadata)) and not evidence.is_other(tag.topic_id)]
    return min((tag.began for tag in tags if tag.began is not None), default=0)


def notes_of(partitions: Iterable[TopicPartition], ids: Mapping[str, str]) -> dict[str, TopicNote]:
    """The topics that are there when a query begins."""
    counts: dict[str, int] = {}
    for tp in partitions:
        counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
    return {topic: TopicNote(ids.get(topic, ""), count) for topic, count in counts.items()}
