"""The past of a group as a list of rebalances with their causes, whatever it was read from. Pure.

Three sources, from the best to the least: the events of a kohort broker, the generations that any Kafka stores in
`__consumer_offsets`, and looks at the group with DescribeGroups. Whether a past is bad is diagnosis.py's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kohort.assignors import ConsumerProtocolError, decode_assignment, decode_subscription

NOT_PROVIDED = "not provided"
NEVER_CAME = "did not come back with its member id"
STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"


class Source(Enum):
    """Where a history comes from, in words."""

    EVENTS = "the broker's own group events (__kohort_group_events)"
    GENERATIONS = "the generations stored in __consumer_offsets"
    SAMPLES = "looks at the group with DescribeGroups"


class Kind(Enum):
    """Why a group rebalances."""

    JOINED = "joined"
    LEFT = "left"
    POLLED_LATE = "polled too late"
    TIMED_OUT = "timed out"
    DID_NOT_REJOIN = "did not rejoin"
    DID_NOT_SYNC = "did not sync"
    GONE = "left or timed out"  # a source that does not tell which
    METADATA = "changed its metadata"
    LEADER = "rejoined as leader"
    HAND_OVER = "handed partitions over"
    REPLACED = "was replaced"
    REMOVED = "was removed"
    STORE_FAILED = "store failed"
    OTHER = "other"


class Who(NamedTuple):
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""

    @property
    def identity(self) -> str:
        """The same for a client that comes back under a new member id."""
        return self.instance_id or (f"{self.client_id}@{self.host}" if self.client_id else self.member_id)

    def __str__(self) -> str:
        name = self.instance_id or self.client_id or self.member_id
        return f"{name} ({self.host.lstrip('/')})" if self.host else name


class Cause(NamedTuple):
    """`text` continues a sentence that begins with the member; `after_ms` is the timeout that passed."""

    kind: Kind
    who: Who | None
    text: str
    at_ms: int
    after_ms: int | None = None


class Refusal(NamedTuple):
    at_ms: int
    what: str  # "commit", "join", "sync", "fenced"
    who: Who
    error: str
    reason: str


@dataclass(slots=True)
class Rebalance:
    """From the first cause until everybody has an assignment; `standstill_ms` is None where nobody measured it."""

    started_ms: int
    causes: list[Cause] = field(default_factory=list)
    completed_ms: int | None = None
    generation: int | None = None
    members: int | None = None
    protocol: str = ""
    standstill_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    last_back: Who | None = None
    last_back_after_ms: int | None = None
    waiting_for: list[Who] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.completed_ms is None


@dataclass(slots=True)
class History:
    source: Source
    rebalances: list[Rebalance] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    first_ms: int | None = None
    last_ms: int | None = None
    loads: int = 0


class StoredMember(NamedTuple):
    """A member in a stored generation; `topics` and `partitions` of a group of consumers."""

    who: Who
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    topics: tuple[str, ...] = ()
    partitions: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def of(cls, member: Any, protocol_type: str | None) -> StoredMember:
        who = Who(member.member_id, member.instance_id, member.client_id, member.client_host)
        topics: tuple[str, ...] = ()
        partitions: frozenset[tuple[str, int]] = frozenset()
        if protocol_type == "consumer":
            try:
                topics = tuple(decode_subscription(member.subscription).topics)
                assigned = decode_assignment(member.assignment).partitions
                partitions = frozenset((topic, p) for topic, numbers in assigned.items() for p in numbers)
            except ConsumerProtocolError:
                pass  # a member may say anything
        return cls(who, member.session_timeout_ms, member.rebalance_timeout_ms, member.subscription, topics, partitions)


class Generation(NamedTuple):
    at_ms: int
    generation: int
    protocol: str
    leader_id: str
    members: tuple[StoredMember, ...]


class Sample(NamedTuple):
    """One look at a group."""

    at_ms: int
    state: str
    members: tuple[Who, ...]
    assignment: Mapping[str, frozenset[tuple[str, int]]]
    protocol: str = ""


# -- from the events of a kohort broker -------------------------------------------------------------------------------


def from_events(events: Iterable[Mapping[str, Any]]) -> History:
    """Of events as their `to_dict` gives them, oldest first; the story may begin in the middle."""
    reader = _EventReader()
    for event in events:
        reader.read(event)
    return reader.finish()


class _EventReader:
    def __init__(self) -> None:
        self.history = History(Source.EVENTS)
        self._open: Rebalance | None = None
        self._pending: list[Cause] = []
        self._members: dict[str, Who] = {}
        self._back: dict[str, int] = {}

    def read(self, event: Mapping[str, Any]) -> None:
        at_ms = event["at_ms"]
        history = self.history
        history.first_ms = at_ms if history.first_ms is None else history.first_ms
        history.last_ms = at_ms
        handler = getattr(self, f"_on_{event['type']}", None)
        if handler is not None:
            handler(event, at_ms)

    def finish(self) -> History:
        if self._open is not None:
            self._open.waiting_for = [who for member_id, who in self._members.items() if member_id not in self._back]
        return self.history

    def _cause(self, kind: Kind, who: Who | None, text: str, at_ms: int, after_ms: int | None = None) -> None:
        cause = Cause(kind, who, text, at_ms, after_ms)
        if self._open is not None:
            self._open.causes.append(cause)
        else:
            self._pending.append(cause)

    # members

    def _on_MemberJoined(self, event: Mapping[str, Any], at_ms: int) -> None:
        who = _who(event)
        self._members[who.member_id] = who
        self._cause(Kind.JOINED, who, "joined", at_ms)
        self._back[who.member_id] = at_ms

    def _on_MemberRejoined(self, event: Mapping[str, Any], at_ms: int) -> None:
        who = _who(event)
        self._members[who.member_id] = who
        reason = event.get("reason", "")
        if self._open is None:
            self._cause(*_rejoin_cause(who, reason, at_ms))
        elif "changed its metadata" in reason:
            self._cause(Kind.METADATA, who, "changed what it subscribes to or supports", at_ms)
        self._back[who.member_id] = at_ms

    def _on_MemberReplaced(self, event: Mapping[str, Any], at_ms: int) -> None:
        who = _who(event)
        self._members.pop(event.get("replaced_member_id", ""), None)
        self._members[who.member_id] = who
        self._cause(Kind.REPLACED, who, "came back as a new process under its group.instance.id", at_ms)
        self._back[who.member_id] = at_ms

    def _on_MemberLeft(self, event: Mapping[str, Any], at_ms: int) -> None:
        who = self._gone(event)
        self._cause(*_leave_cause(who, event.get("reason", ""), at_ms))

    def _on_MemberEvicted(self, event: Mapping[str, Any], at_ms: int) -> None:
        known = event["member_id"] in self._members
        who = self._gone(event)
        reason = event.get("reason", "")
        if NEVER_CAME in reason and not known:
            return  # it was never in the group
        timeout_ms = self._open.rebalance_timeout_ms if self._open is not None else None
        self._cause(*_eviction_cause(who, reason, at_ms, timeout_ms))

    def _gone(self, event: Mapping[str, Any]) -> Who:
        found = _who(event)
        known = self._members.pop(found.member_id, None)
        self._back.pop(found.member_id, None)
        return known if known is not None and not found.client_id else found

    # rebalances

    def _on_RebalanceStarted(self, event: Mapping[str, Any], at_ms: int) -> None:
        if self._open is None:
            # What happened at an earlier time did not start this: such as a static member that was replaced quietly.
            causes = [cause for cause in self._pending if cause.at_ms == at_ms]
            self._open = Rebalance(at_ms, causes or [Cause(Kind.OTHER, None, event.get("reason", ""), at_ms)])
            self._pending.clear()
            self._back = {member_id: back for member_id, back in self._back.items() if back >= at_ms}
            self.history.rebalances.append(self._open)
        self._open.rebalance_timeout_ms = event.get("rebalance_timeout_ms")

    def _on_GenerationStarted(self, event: Mapping[str, Any], at_ms: int) -> None:
        if self._open is None:
            return
        if self._back:
            last = max(self._back, key=lambda member_id: self._back[member_id])
            self._open.last_back = self._members.get(last)
            self._open.last_back_after_ms = self._back[last] - self._open.started_ms
        self._open.generation = event["generation"]

    def _on_RebalanceCompleted(self, event: Mapping[str, Any], at_ms: int) -> None:
        duration_ms = event.get("duration_ms", 0)
        if self._open is None:
            self._open = Rebalance(at_ms - duration_ms)
            self.history.rebalances.append(self._open)
        self._close(event, at_ms, at_ms - self._open.started_ms, event.get("members"))
        self.history.rebalances[-1].protocol = event.get("protocol", "")

    def _on_RebalanceFailed(self, event: Mapping[str, Any], at_ms: int) -> None:
        text = f"the assignment could not be stored: {event.get('error', '')}"
        self._cause(Kind.STORE_FAILED, None, text, at_ms)

    def _on_StateChanged(self, event: Mapping[str, Any], at_ms: int) -> None:
        if event.get("to_state") in (EMPTY, DEAD):
            if self._open is not None:
                self._close(event, at_ms, None, 0)
            self._members.clear()
            self._pending.clear()

    def _close(self, event: Mapping[str, Any], at_ms: int, standstill_ms: int | None, members: int | None) -> None:
        assert self._open is not None
        self._open.completed_ms, self._open.standstill_ms = at_ms, standstill_ms
        self._open.generation, self._open.members = event["generation"], members
        self._open, self._back = None, {}
        self._pending.clear()

    # the rest

    def _on_GroupLoaded(self, event: Mapping[str, Any], at_ms: int) -> None:
        self.history.loads += 1
        if self._open is not None:  # what was under way died with the coordinator
            self._open.completed_ms = at_ms
            self._open.causes.append(Cause(Kind.OTHER, None, "the coordinator was restarted", at_ms))
        self._open = None

    def _refused(self, what: str, event: Mapping[str, Any], at_ms: int) -> None:
        error = event.get("error", "FENCED_INSTANCE_ID")
        self.history.refusals.append(Refusal(at_ms, what, _who(event), error, event.get("reason", "")))

    def _on_CommitRefused(self, event: Mapping[str, Any], at_ms: int) -> None:
        self._refused("commit", event, at_ms)

    def _on_JoinRefused(self, event: Mapping[str, Any], at_ms: int) -> None:
        self._refused("join", event, at_ms)

    def _on_SyncRefused(self, event: Mapping[str, Any], at_ms: int) -> None:
        self._refused("sync", event, at_ms)

    def _on_MemberFenced(self, event: Mapping[str, Any], at_ms: int) -> None:
        self._refused("fenced", event, at_ms)


def _who(event: Mapping[str, Any]) -> Who:
    return Who(
        event.get("member_id", ""), event.get("instance_id"), event.get("client_id", ""), event.get("client_host", "")
    )


def _rejoin_cause(who: Who, reason: str, at_ms: int) -> tuple[Kind, Who, str, int]:
    said = reason.partition("client reason: ")[2]
    if "revoke partitions" in said:
        return Kind.HAND_OVER, who, "gave partitions back and rejoined, so that others get them (cooperative)", at_ms
    why = f": {said}" if said and said != NOT_PROVIDED else ""
    if "changed its metadata" in reason:
        return Kind.METADATA, who, f"changed what it subscribes to or supports{why}", at_ms
    return Kind.LEADER, who, f"rejoined as the leader, to assign anew{why}", at_ms


def _leave_cause(who: Who, reason: str, at_ms: int) -> tuple[Kind, Who, str, int]:
    said = reason if reason and reason != NOT_PROVIDED else ""
    lowered = said.lower()
    if "poll timeout" in lowered or "max.poll.interval" in lowered or "poll interval" in lowered:
        return Kind.POLLED_LATE, who, "left, since its application did not poll within max.poll.interval.ms", at_ms
    if "removed by an admin" in lowered or "consumer group command" in lowered or "by admin" in lowered:
        more = "" if lowered == "removed by an administrator" else f" ({said})"
        return Kind.REMOVED, who, f"was removed by an administrator{more}", at_ms
    return Kind.LEFT, who, "left" + (f": {said}" if said else ""), at_ms


def _eviction_cause(
    who: Who, reason: str, at_ms: int, rebalance_timeout_ms: int | None
) -> tuple[Kind, Who, str, int, int | None]:
    if match := re.search(r"no heartbeat for (\d+) ms", reason):
        after_ms = int(match.group(1))
        return Kind.TIMED_OUT, who, f"timed out: no heartbeat for {seconds(after_ms)}", at_ms, after_ms
    if "did not rejoin" in reason or "first join" in reason:
        within = f" within {seconds(rebalance_timeout_ms)}" if rebalance_timeout_ms else ""
        return Kind.DID_NOT_REJOIN, who, f"did not rejoin{within} and was put out", at_ms, rebalance_timeout_ms
    if "did not sync" in reason:
        within = f" within {seconds(rebalance_timeout_ms)}" if rebalance_timeout_ms else ""
        return Kind.DID_NOT_SYNC, who, f"joined but did not sync{within} and was put out", at_ms, rebalance_timeout_ms
    return Kind.REMOVED, who, f"was put out: {reason}", at_ms, None


def exit_cause(event: Mapping[str, Any]) -> Cause | None:
    """How a member went; None of an event by which no member of the group goes."""
    reason, at_ms = event.get("reason", ""), event["at_ms"]
    if event["type"] == "MemberLeft":
        return Cause(*_leave_cause(_who(event), reason, at_ms))
    if event["type"] == "MemberEvicted" and NEVER_CAME not in reason:
        return Cause(*_eviction_cause(_who(event), reason, at_ms, None))
    return None


def seconds(duration_ms: int) -> str:
    return f"{round(duration_ms / 1000, 1):g} s"


# -- from stored generations ------------------------------------------------------------------------------------------


def from_generations(generations: Iterable[Generation]) -> History:
    """Who came and went between two generations; how long it took is not stored, nor how somebody went."""
    history = History(Source.GENERATIONS)
    before: Generation | None = None
    for now in generations:
        history.first_ms = now.at_ms if history.first_ms is None else history.first_ms
        history.last_ms = now.at_ms
        if before is not None and now.generation < before.generation:
            before = None  # the group was deleted and began anew
        if before is None and not now.members and now.generation == 0:
            before = now  # stored when the group was made
            continue
        if before is not None and now.generation == before.generation:
            before = now  # stored again within the generation, as for a static member that was replaced
            continue
        history.rebalances.append(
            Rebalance(
                now.at_ms,
                _changes(before, now),
                now.at_ms,
                now.generation,
                len(now.members),
                now.protocol,
                rebalance_timeout_ms=max((m.rebalance_timeout_ms for m in now.members), default=None),
            )
        )
        before = now
    return history


def _changes(before: Generation | None, now: Generation) -> list[Cause]:
    old = {} if before is None else {m.who.member_id: m for m in before.members}
    new = {m.who.member_id: m for m in now.members}
    at_ms = now.at_ms
    causes = []
    for member_id, member in old.items():
        if member_id not in new:
            text = f"left, or was silent for its session timeout of {seconds(member.session_timeout_ms)}"
            causes.append(Cause(Kind.GONE, member.who, text, at_ms, member.session_timeout_ms))
    for member_id, member in new.items():
        if member_id not in old and before is not None:
            causes.append(Cause(Kind.JOINED, member.who, "joined", at_ms))
        elif member_id in old and set(member.topics) != set(old[member_id].topics):
            causes.append(Cause(Kind.METADATA, member.who, "changed its subscription", at_ms))
    if before is None:
        skipped = "the oldest generation that is still stored" if now.generation > 1 else "the group began"
        return [Cause(Kind.OTHER, None, skipped, at_ms)]
    return causes or [Cause(Kind.OTHER, None, _quiet_change(before, now), at_ms)]


def _quiet_change(before: Generation, now: Generation) -> str:
    """The same members with the same subscriptions: either the topics changed, or partitions were handed over."""
    held = {tp: m.who.member_id for m in before.members for tp in m.partitions}
    holds = {tp: m.who.member_id for m in now.members for tp in m.partitions}
    new = holds.keys() - held.keys()
    moved = [tp for tp in held.keys() & holds.keys() if held[tp] != holds[tp]]
    if new:
        return (
            f"the same members rejoined and {len(new)} partitions came in: a topic grew, or a hand-over was completed"
        )
    return f"the same members rejoined and {len(moved)} partitions moved between them"


# -- from looks at the group ------------------------------------------------------------------------------------------


def from_samples(samples: Iterable[Sample]) -> History:
    """Changes between looks. A standstill is known to the interval between two of them."""
    history = History(Source.SAMPLES)
    before: Sample | None = None
    unsettled: Rebalance | None = None
    for now in samples:
        history.first_ms = now.at_ms if history.first_ms is None else history.first_ms
        history.last_ms = now.at_ms
        changed = before is not None and (
            {w.member_id for w in before.members} != {w.member_id for w in now.members}
            or (before.state == now.state == STABLE and before.assignment != now.assignment)
        )
        busy = now.state not in (STABLE, EMPTY, DEAD)
        if (changed or busy) and unsettled is None:
            unsettled = Rebalance(now.at_ms)
            history.rebalances.append(unsettled)
        if unsettled is not None:
            if before is not None:
                unsettled.causes += _differences(before, now)
            if not busy:
                unsettled.completed_ms, unsettled.members, unsettled.protocol = (
                    now.at_ms,
                    len(now.members),
                    now.protocol,
                )
                unsettled.standstill_ms = now.at_ms - unsettled.started_ms or None
                unsettled.causes = unsettled.causes or [Cause(Kind.OTHER, None, "the members rejoined", now.at_ms)]
                unsettled = None
        before = now
    return history


def _differences(before: Sample, now: Sample) -> list[Cause]:
    old, new = ({who.member_id: who for who in sample.members} for sample in (before, now))
    gone = [Cause(Kind.GONE, who, "left or timed out", now.at_ms) for id_, who in old.items() if id_ not in new]
    return gone + [Cause(Kind.JOINED, who, "joined", now.at_ms) for id_, who in new.items() if id_ not in old]
