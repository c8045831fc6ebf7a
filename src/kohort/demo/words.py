"""What the coordinator's events mean, in one line each, for somebody who has never seen a consumer group. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kohort.coordinator import events
from kohort.coordinator.causes import CauseKind
from kohort.coordinator.events import GroupEvent, MemberEvent
from kohort.insight.sentences import why_of_event

FIND_COORDINATOR = "FIND_COORDINATOR"
JOIN_GROUP = "JOIN_GROUP"
SYNC_GROUP = "SYNC_GROUP"
HEARTBEAT = "HEARTBEAT"
LEAVE_GROUP = "LEAVE_GROUP"

STATES: dict[str, str] = {
    "Empty": "nobody is in the group",
    "PreparingRebalance": "everybody rejoins; nobody reads until all are in",
    "CompletingRebalance": "the leader divides the partitions; all wait for their share",
    "Stable": "everybody reads its partitions and sends heartbeats",
    "Dead": "the group is gone",
}


class Line(NamedTuple):
    """`step` is the request of the protocol that it is about."""

    at_ms: int
    step: str
    text: str
    tone: str = ""


def name_of(event: MemberEvent) -> str:
    return event.instance_id or event.client_id or event.member_id or "?"


def line_for(event: GroupEvent, names: Mapping[str, str]) -> Line | None:
    """None for what needs no words. `names` gives a member's name by its id."""
    writer = _WRITERS.get(type(event))
    return None if writer is None else writer(event, names)


def _joined(event: events.MemberJoined, names: Mapping[str, str]) -> Line:
    text = f"{name_of(event)} joins and waits until everybody is in"
    return Line(event.at_ms, JOIN_GROUP, text, "good")


def _rejoined(event: events.MemberRejoined, names: Mapping[str, str]) -> Line:
    why = ""
    if event.cause is not None and event.cause.kind is CauseKind.HANDED_OVER:
        why = ", having given up what is now another's"
    return Line(event.at_ms, JOIN_GROUP, f"{name_of(event)} rejoins{why}")


def _left(event: events.MemberLeft, names: Mapping[str, str]) -> Line:
    text = f"{names.get(event.member_id, name_of(event))} says goodbye: its partitions are free at once"
    return Line(event.at_ms, LEAVE_GROUP, text, "bad")


def _evicted(event: events.MemberEvicted, names: Mapping[str, str]) -> Line:
    text = f"{names.get(event.member_id, name_of(event))} is evicted: {why_of_event(event)}"
    return Line(event.at_ms, HEARTBEAT, text, "bad")


def _started(event: events.RebalanceStarted, names: Mapping[str, str]) -> Line:
    if event.generation == 0:
        return Line(event.at_ms, JOIN_GROUP, "the group comes to life: its first rebalance begins", "warn")
    text = "a rebalance begins: members hear of it with their next heartbeat"
    return Line(event.at_ms, HEARTBEAT, text, "warn")


def _generation(event: events.GenerationStarted, names: Mapping[str, str]) -> Line:
    leader = names.get(event.leader_id, event.leader_id)
    members = event.members
    text = f"all in: generation {event.generation} has {members} member{'s' * (members != 1)}, {leader} leads"
    return Line(event.at_ms, JOIN_GROUP, text)


def _completed(event: events.RebalanceCompleted, names: Mapping[str, str]) -> Line:
    leader = names.get(event.leader_id, event.leader_id)
    text = f"{leader} divided the partitions ({event.protocol}); stored, handed out after {event.duration_ms} ms"
    return Line(event.at_ms, SYNC_GROUP, text, "good")


def _failed(event: events.RebalanceFailed, names: Mapping[str, str]) -> Line:
    return Line(event.at_ms, SYNC_GROUP, f"the assignment could not be stored: {event.error}", "bad")


def _elected(event: events.LeaderElected, names: Mapping[str, str]) -> Line:
    return Line(event.at_ms, JOIN_GROUP, f"{name_of(event)} leads now: {why_of_event(event)}", "warn")


def _commit_refused(event: events.CommitRefused, names: Mapping[str, str]) -> Line:
    text = f"a commit of {name_of(event)} is refused: {event.error} ({why_of_event(event)})"
    return Line(event.at_ms, "OFFSET_COMMIT", text, "warn")


def _state(event: events.StateChanged, names: Mapping[str, str]) -> Line | None:
    if event.to_state != "Empty":
        return None
    return Line(event.at_ms, LEAVE_GROUP, "the last member is gone: the group is empty, its offsets stay")


_WRITERS: dict[type[GroupEvent], Callable[[Any, Mapping[str, str]], Line | None]] = {
    events.MemberJoined: _joined,
    events.MemberRejoined: _rejoined,
    events.MemberLeft: _left,
    events.MemberEvicted: _evicted,
    events.RebalanceStarted: _started,
    events.GenerationStarted: _generation,
    events.RebalanceCompleted: _completed,
    events.RebalanceFailed: _failed,
    events.LeaderElected: _elected,
    events.CommitRefused: _commit_refused,
    events.StateChanged: _state,
}
