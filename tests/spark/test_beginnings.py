"""Where a partition is taken up, for every combination of what the group and the checkpoint know of it."""

from __future__ import annotations

import pytest

from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.spark.beginnings import Beginning, Evidence, group_began, take_up
from kohort.spark.offsets import StreamOffset, TopicNote
from kohort.spark.tags import CommitTag

P0, P1, P5 = (TopicPartition("t", number) for number in (0, 1, 5))
OWN = CommitTag("q", "NOW", 4).text()
OLD = CommitTag("q", "OLD", 4).text()
OTHERS = CommitTag("other", "NOW", 4).text()


def evidence(
    commits: dict[TopicPartition, tuple[int, str]],
    checkpoint: dict[TopicPartition, int] | None = None,
    note: TopicNote = TopicNote("NOW", 4),  # noqa: B008
) -> Evidence:
    start = StreamOffset("q", {tp: (0, at) for tp, at in (checkpoint or {}).items()}, {"t": note})
    return Evidence("q", "NOW", start, {tp: OffsetAndMetadata(*commit) for tp, commit in commits.items()})


def test_tags_are_read_back_and_those_of_older_versions_too() -> None:
    tag = CommitTag("q", "AAAAAAAAAAAAAAAAAAAAAA", 7)
    assert CommitTag.parse(tag.text()) == tag and tag.text().endswith("\0")
    assert CommitTag.parse("kohort-spark:q") == CommitTag("q")
    assert CommitTag.parse("") is CommitTag.parse(None) is CommitTag.parse("something else") is None


@pytest.mark.parametrize(
    ("commits", "checkpoint", "at"),
    [
        ({P0: (7, "")}, {}, 7),
        ({}, {P0: 9}, 9),
        ({P0: (7, OWN)}, {P0: 9}, 9),
        ({P0: (9, OWN)}, {P0: 7}, 9),
        ({P0: (7, OTHERS)}, {P0: 9}, 7),
        ({P0: (7, "")}, {P0: 9}, 7),
        ({P0: (7, OLD)}, {}, Beginning.CREATED_AGAIN),
        ({P0: (7, OLD)}, {P0: 3}, 3),
        ({}, {}, Beginning.AS_ASKED),
        ({P1: (7, OTHERS)}, {}, Beginning.AS_ASKED),
        ({P1: (7, "")}, {}, Beginning.NEW),
        ({}, {P1: 7}, Beginning.NEW),
    ],
)
def test_the_group_the_checkpoint_or_a_beginning(
    commits: dict[TopicPartition, tuple[int, str]], checkpoint: dict[TopicPartition, int], at: int | Beginning
) -> None:
    assert take_up(P0, evidence(commits, checkpoint)) == at


def test_a_checkpoint_of_a_topic_that_is_another_now() -> None:
    old = TopicNote("OLD", 4)
    assert take_up(P0, evidence({}, {P0: 9}, old)) is Beginning.CREATED_AGAIN
    assert take_up(P0, evidence({P0: (3, OWN)}, {P0: 9}, old)) == 3
    assert take_up(P0, evidence({P0: (3, "")}, {P0: 9}, old)) == 3, "an operator or a plain consumer has the last word"
    assert take_up(P0, evidence({}, {}, old)) is Beginning.NEW
    assert take_up(P0, evidence({}, {P0: 9}, TopicNote("", 4))) == 9, "a checkpoint without ids is taken at its word"


def test_a_partition_that_came_later_is_new_whoever_committed_since() -> None:
    assert take_up(P5, evidence({})) is Beginning.NEW
    assert take_up(P5, evidence({P0: (7, OTHERS)}, note=TopicNote("NOW", 6))) is Beginning.NEW
    assert take_up(P5, evidence({}, note=TopicNote("NOW", 6))) is Beginning.AS_ASKED
    assert take_up(P0, evidence({}, note=TopicNote())) is Beginning.NEW, "the topic was not there when the query began"


def test_a_group_began_with_what_its_oldest_commits_say() -> None:
    assert group_began("t", evidence({})) is None
    assert group_began("t", evidence({P0: (1, OTHERS), P1: (1, CommitTag("x", "NOW", 6).text())})) == 4
    assert group_began("t", evidence({P0: (1, "")})) == 0
    assert group_began("t", evidence({P0: (1, OLD)})) == 0
