"""What a cause reads like: the one place where causes become English. Pure, and nothing reads it back.

`why` stands alone and names its members; `why_of_event` leaves out whom its event names already; `told` continues a
sentence that begins with the member, for somebody who does not know the protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.events import GroupEvent, MemberEvent
from kohort.insight.claims import polled_late

NOT_PROVIDED = "not provided"
K = CauseKind


def why(cause: Cause) -> str:
    return _WHY[cause.kind](cause)


def why_of_event(event: GroupEvent) -> str:
    """Empty where the event says nothing of why."""
    cause = event.cause
    if cause is None:
        return ""
    if isinstance(event, MemberEvent) and (short := _OF_MEMBER.get(cause.kind)) is not None:
        return short(cause)
    return why(cause)


def told(cause: Cause) -> str:
    """Continues a sentence that begins with the member; stands alone where `subject` is None."""
    return _TOLD.get(cause.kind, why)(cause)


def subject(cause: Cause) -> Who | None:
    """Whom `told` is about."""
    return None if cause.kind in _WITHOUT_SUBJECT else cause.who


def verb(kind: CauseKind) -> str:
    """What a member did, in two or three words."""
    return _VERBS.get(kind, kind.value.replace("_", " "))


def seconds(duration_ms: int) -> str:
    return f"{round(duration_ms / 1000, 1):g} s"


def _said(cause: Cause) -> str:
    return cause.said or NOT_PROVIDED


def _ids(cause: Cause) -> str:
    return ", ".join(who.member_id for who in cause.members)


def _who(cause: Cause) -> Who:
    return cause.who or Who("?")


def _rejoin(what: str) -> Callable[[Cause], str]:
    return lambda c: f"{what.format(_ids(c))} in {c.state}; client reason: {_said(c)}"


def _evicted(text: str) -> Callable[[Cause], str]:
    return lambda c: f"member {_ids(c)}: {text}" if c.members else text


def _plain(text: str) -> Callable[[Cause], str]:
    return lambda c: text


def _over_max_size(cause: Cause) -> str:
    if cause.members:
        return f"member {_ids(cause)}: the group is over group.max.size"
    return f"{cause.size} members are over group.max.size"


def _fenced(cause: Cause) -> str:
    holder = f": {cause.by.member_id} has it now" if cause.by is not None else ""
    return f"group.instance.id {_who(cause).instance_id} was taken over{holder}"


def _generation(cause: Cause) -> str:
    return f"generation {cause.generation} in {cause.state}"


def _refused_member(cause: Cause) -> str:
    if cause.generation is not None:
        return _generation(cause)
    return f"the group has no such member in {cause.state}"


def _full(cause: Cause) -> str:
    return f"{cause.size} members, and at most {cause.limit} are allowed"


_WHY: dict[CauseKind, Callable[[Cause], str]] = {
    K.JOINED: lambda c: f"new member {_ids(c)}; client reason: {_said(c)}",
    K.REJOINED: _rejoin("member {} rejoins"),
    K.LEADER_REJOINED: _rejoin("leader {} rejoins"),
    K.METADATA_CHANGED: _rejoin("member {} changed its metadata"),
    K.HANDED_OVER: _rejoin("member {} gave partitions back"),
    K.REPLACED: lambda c: f"static member {_who(c).instance_id} came back; client reason: {_said(c)}",
    K.LEFT: lambda c: f"LeaveGroup of {_ids(c)}",
    K.REMOVED: lambda c: f"LeaveGroup of {_ids(c)}",
    K.TIMED_OUT: lambda c: f"member {_ids(c)}: no heartbeat for {c.timeout_ms} ms",
    K.TIMED_OUT_IN_FIRST_JOIN: _evicted("waited too long in its first join"),
    K.DID_NOT_REJOIN: _evicted("did not rejoin before the rebalance timeout"),
    K.DID_NOT_SYNC: lambda c: f"no SyncGroup from {_ids(c)}",
    K.NEVER_CAME_BACK: _evicted("did not come back with its member id within the session timeout"),
    K.OVER_MAX_SIZE: _over_max_size,
    K.DID_NOT_REVOKE: lambda c: f"member {_ids(c)}: did not give up its partitions within {c.timeout_ms} ms",
    K.LEFT_FOR_A_WHILE: lambda c: f"static member {_who(c).instance_id} left and may come back",
    K.TOPICS_CHANGED: _plain("topics that the group reads have changed"),
    K.REGEX_RESOLVED: _plain("an expression stands for other topics now"),
    K.ASSIGNOR_FAILED: lambda c: f"no new target assignment, the last one stands: {c.said}",
    K.UPGRADED: lambda c: f"{_ids(c)} joined with the consumer protocol",
    K.DOWNGRADED: _plain("the last member of the consumer protocol has left"),
    K.MEMBERS_JOINED: lambda c: f"{c.size} members joined",
    K.ASSIGNMENT_STORED: _plain("assignment stored"),
    K.STORE_FAILED: lambda c: f"the assignment of {_ids(c)} could not be stored: {c.error}",
    K.ALL_LEFT: _plain("all members have left"),
    K.LEADER_LATE: lambda c: f"leader {_ids(c)} did not rejoin in time",
    K.NOT_STORED: lambda c: f"what was decided could not be stored: {c.error}",
    K.LOADED: _plain("the coordinator read it from its log"),
    K.MOVED: _plain("the coordinator has moved"),
    K.DELETED: _plain("DeleteGroups"),
    K.EMPTY_AND_EXPIRED: _plain("empty, and no offsets are left"),
    K.OFFSETS_DELETED: _plain("OffsetDelete"),
    K.TOPIC_DELETED: _plain("the topic was deleted"),
    K.RETENTION_OVER: _plain("offsets.retention.minutes is over"),
    K.UNKNOWN_MEMBER: _refused_member,
    K.FENCED: _fenced,
    K.OTHER_GENERATION: _generation,
    K.OTHER_EPOCH: lambda c: f"member epoch {c.generation} in {c.state}",
    K.OTHER_PROTOCOL: _plain("the members have no protocol in common with it"),
    K.REBALANCING: _generation,
    K.GROUP_FULL: _full,
    K.NOT_ACCEPTED: _refused_member,
    K.GONE: lambda c: f"{_ids(c)} left or timed out",
    K.BEGAN: _plain("the group began"),
    K.FIRST_KNOWN: _plain("the oldest generation that is still stored"),
    K.PARTITIONS_CAME: lambda c: (
        f"the same members rejoined and {c.size} partitions came in: a topic grew, or a hand-over was completed"
    ),
    K.PARTITIONS_MOVED: lambda c: f"the same members rejoined and {c.size} partitions moved between them",
    K.MEMBERS_REJOINED: _plain("the members rejoined"),
    K.UNKNOWN: lambda c: c.raw,
}

_OF_MEMBER: dict[CauseKind, Callable[[Cause], str]] = {
    K.JOINED: _said,
    K.LEFT: _said,
    K.REMOVED: _said,
    K.TIMED_OUT: lambda c: f"no heartbeat for {c.timeout_ms} ms",
    K.TIMED_OUT_IN_FIRST_JOIN: _plain("waited too long in its first join"),
    K.DID_NOT_REJOIN: _plain("did not rejoin before the rebalance timeout"),
    K.DID_NOT_SYNC: _plain("did not sync before the rebalance timeout"),
    K.NEVER_CAME_BACK: _plain("did not come back with its member id within the session timeout"),
    K.OVER_MAX_SIZE: _plain("the group is over group.max.size"),
    K.DID_NOT_REVOKE: lambda c: f"did not give up its partitions within {c.timeout_ms} ms",
}


# ---- for those who do not know the protocol


def _because(text: str) -> Callable[[Cause], str]:
    return lambda c: f"{text}: {c.said}" if c.said else text


def _within(text: str) -> Callable[[Cause], str]:
    return lambda c: text.format("" if c.timeout_ms is None else f" within {seconds(c.timeout_ms)}")


def _left(cause: Cause) -> str:
    if polled_late(cause):
        return "left, since its application did not poll within max.poll.interval.ms"
    return _because("left")(cause)


def _removed(cause: Cause) -> str:
    return "was removed by an administrator" + (f" ({cause.said})" if cause.said else "")


def _silent(cause: Cause) -> str:
    return "timed out" if cause.timeout_ms is None else f"timed out: no heartbeat for {seconds(cause.timeout_ms)}"


def _gone(cause: Cause) -> str:
    if cause.timeout_ms is None:
        return "left or timed out"
    return f"left, or was silent for its session timeout of {seconds(cause.timeout_ms)}"


def _too_many(cause: Cause) -> str:
    if cause.members:
        return "was put out: the group is over group.max.size"
    return f"{cause.size} members are over group.max.size"


_TOLD: dict[CauseKind, Callable[[Cause], str]] = {
    K.JOINED: _plain("joined"),
    K.REJOINED: _because("rejoined"),
    K.LEADER_REJOINED: _because("rejoined as the leader, to assign anew"),
    K.METADATA_CHANGED: _because("changed what it subscribes to or supports"),
    K.HANDED_OVER: _plain("gave partitions back and rejoined, so that others get them (cooperative)"),
    K.REPLACED: _plain("came back as a new process under its group.instance.id"),
    K.LEFT: _left,
    K.REMOVED: _removed,
    K.TIMED_OUT: _silent,
    K.TIMED_OUT_IN_FIRST_JOIN: _within("waited in its first join, was not heard of{} and was put out"),
    K.DID_NOT_REJOIN: _within("did not rejoin{} and was put out"),
    K.DID_NOT_SYNC: _within("joined but did not sync{} and was put out"),
    K.NEVER_CAME_BACK: _plain("did not come back with its member id"),
    K.DID_NOT_REVOKE: _within("did not give up its partitions{} and was put out"),
    K.LEFT_FOR_A_WHILE: _plain("left for a while: its partitions wait for it"),
    K.UPGRADED: _plain("joined with the consumer protocol, and the group moved to it"),
    K.OVER_MAX_SIZE: _too_many,
    K.STORE_FAILED: lambda c: f"the assignment could not be stored: {c.error}",
    K.LOADED: _plain("the coordinator was restarted"),
    K.GONE: _gone,
    K.UNKNOWN: lambda c: f"for a reason that this version does not know: {c.raw}" if c.raw else "no reason was given",
}
_VERBS = {
    K.REMOVED: "was removed",
    K.REPLACED: "was replaced",
    K.METADATA_CHANGED: "changed its metadata",
    K.LEADER_REJOINED: "rejoined as leader",
    K.HANDED_OVER: "handed partitions over",
    K.GONE: "left or timed out",
}
_WITHOUT_SUBJECT = (
    K.STORE_FAILED,
    K.TOPICS_CHANGED,
    K.REGEX_RESOLVED,
    K.ASSIGNOR_FAILED,
    K.DOWNGRADED,
    K.UNKNOWN,
)
