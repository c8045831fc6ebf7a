"""What the coordinator's events mean, in one line each, for somebody who has never seen a consumer group. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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


def name_of(event: Mapping[str, Any]) -> str:
    return event.get("instance_id") or event.get("client_id") or event.get("member_id", "?")


def line_for(event: Mapping[str, Any], names: Mapping[str, str]) -> Line | None:
    """None for what needs no words. `names` gives a member's name by its id."""
    writer = _WRITERS.get(event["type"])
    return None if writer is None else writer(event, names)


def _joined(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    text = f"{name_of(event)} joins and waits until everybody is in"
    return Line(event["at_ms"], JOIN_GROUP, text, "good")


def _rejoined(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    why = ""
    if "revoke partitions" in event.get("reason", ""):
        why = ", having given up what is now another's"
    return Line(event["at_ms"], JOIN_GROUP, f"{name_of(event)} rejoins{why}")


def _left(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    text = f"{names.get(event['member_id'], name_of(event))} says goodbye: its partitions are free at once"
    return Line(event["at_ms"], LEAVE_GROUP, text, "bad")


def _evicted(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    text = f"{names.get(event['member_id'], name_of(event))} is evicted: {event.get('reason', '')}"
    return Line(event["at_ms"], HEARTBEAT, text, "bad")


def _started(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    if event["generation"] == 0:
        return Line(event["at_ms"], JOIN_GROUP, "the group comes to life: its first rebalance begins", "warn")
    text = "a rebalance begins: members hear of it with their next heartbeat"
    return Line(event["at_ms"], HEARTBEAT, text, "warn")


def _generation(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    leader = names.get(event["leader_id"], event["leader_id"])
    members = event["members"]
    text = f"all in: generation {event['generation']} has {members} member{'s' * (members != 1)}, {leader} leads"
    return Line(event["at_ms"], JOIN_GROUP, text)


def _completed(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    leader = names.get(event["leader_id"], event["leader_id"])
    text = f"{leader} divided the partitions ({event['protocol']}); stored, handed out after {event['duration_ms']} ms"
    return Line(event["at_ms"], SYNC_GROUP, text, "good")


def _failed(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    return Line(event["at_ms"], SYNC_GROUP, f"the assignment could not be stored: {event['error']}", "bad")


def _elected(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    return Line(event["at_ms"], JOIN_GROUP, f"{name_of(event)} leads now: {event.get('reason', '')}", "warn")


def _commit_refused(event: Mapping[str, Any], names: Mapping[str, str]) -> Line:
    text = f"a commit of {name_of(event)} is refused: {event['error']} ({event.get('reason', '')})"
    return Line(event["at_ms"], "OFFSET_COMMIT", text, "warn")


def _state(event: Mapping[str, Any], names: Mapping[str, str]) -> Line | None:
    if event["to_state"] != "Empty":
        return None
    return Line(event["at_ms"], LEAVE_GROUP, "the last member is gone: the group is empty, its offsets stay")


_WRITERS = {
    "MemberJoined": _joined,
    "MemberRejoined": _rejoined,
    "MemberLeft": _left,
    "MemberEvicted": _evicted,
    "RebalanceStarted": _started,
    "GenerationStarted": _generation,
    "RebalanceCompleted": _completed,
    "RebalanceFailed": _failed,
    "LeaderElected": _elected,
    "CommitRefused": _commit_refused,
    "StateChanged": _state,
}
