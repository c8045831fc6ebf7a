"""Events are plain values with reasons; the story of a group is bounded."""

import json

from coordinator.world import World
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.events import STORY_LENGTH, MemberEvicted, OffsetsRemoved, Story
from kohort.protocol import messages


def test_an_event_as_json() -> None:
    who = Who("m", None, "c", "/h")
    cause = Cause(CauseKind.TIMED_OUT, (who,), timeout_ms=10_000)
    event = MemberEvicted(
        at_ms=5, group_id="g", generation=2, cause=cause, member_id="m", client_id="c", client_host="/h"
    )
    assert json.loads(json.dumps(event.to_dict())) == {
        "type": "MemberEvicted",
        "at_ms": 5,
        "group_id": "g",
        "generation": 2,
        "cause": {"kind": "timed_out", "timeout_ms": 10_000},
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
    }
    removed = OffsetsRemoved(at_ms=5, group_id="g", generation=2, topics=("a", "b"), partitions=3)
    assert json.loads(json.dumps(removed.to_dict()))["topics"] == ["a", "b"]


def test_every_kind_of_event_says_what_it_is() -> None:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.GroupEvent)]
    assert len(kinds) > 15
    assert all(kind.__doc__ for kind in kinds)


def test_a_story_keeps_the_last_events() -> None:
    story = Story()
    for i in range(10 * STORY_LENGTH):
        story.add(events.GroupUnloaded(at_ms=i, group_id="g", generation=0))
    assert len(story) == STORY_LENGTH
    assert [event.at_ms for event in story] == list(range(9 * STORY_LENGTH, 10 * STORY_LENGTH))


def test_a_group_that_is_refused_all_day_does_not_grow() -> None:
    world = World()
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [request.OffsetCommitRequestTopic(name="orders", partitions=[row])]
    world.send(request(group_id="g", topics=topics), 9)
    for _ in range(5 * STORY_LENGTH):
        world.send(request(group_id="g", generation_id_or_member_epoch=3, member_id="m", topics=topics), 9)
    assert len(world.coordinator.story("g")) == STORY_LENGTH
    assert world.coordinator.story("nobody") == []
