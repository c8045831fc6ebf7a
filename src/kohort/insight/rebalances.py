"""The past of a group as a list of rebalances with their causes, whatever it was read from, and the best source for it.

Three sources, from the best to the least: the events of a kohort broker (here), what any Kafka stores in
`__consumer_offsets` (generations.py, modern_past.py), and looks at the group with DescribeGroups (samples.py). Whether
a past is bad is diagnosis.py's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.events import GroupEvent, MemberEvent
from kohort.insight import sentences

STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
CLASSIC = "classic"
COOPERATIVE = "cooperative"
NOBODY_TOLD = Cause(CauseKind.UNKNOWN)
MODERN_PROTOCOL = "consumer (cooperative)"
"""Of KIP-848's epochs: members go on reading what they keep, so they are no standstill."""
RECONCILED = "STABLE"


class Source(Enum):
    """Where a history comes from, in words."""

    EVENTS = "the broker's own group events (__kohort_group_events)"
    GENERATIONS = "the generations stored in __consumer_offsets"
    EPOCHS = "the epochs and assignments stored in __consumer_offsets"
    SAMPLES = "looks at the group with DescribeGroups"


class Trigger(NamedTuple):
    """What set a rebalance off, or kept one that was under way from ending, and when."""

    at_ms: int
    cause: Cause

    @property
    def kind(self) -> CauseKind:
        return self.cause.kind

    @property
    def who(self) -> Who | None:
        return sentences.subject(self.cause)

    @property
    def text(self) -> str:
        """Continues a sentence that begins with `who`."""
        return sentences.told(self.cause)


class Refusal(NamedTuple):
    at_ms: int
    what: str  # "commit", "join", "sync", "heartbeat", "fenced"
    who: Who
    error: str
    cause: Cause


@dataclass(slots=True)
class Rebalance:
    """From the first trigger until everybody has an assignment; `standstill_ms` is None where nobody measured it.

    `estimated_standstill_ms` is the most that it can have been, where commits tell.
    """

    started_ms: int
    triggers: list[Trigger] = field(default_factory=list)
    completed_ms: int | None = None
    generation: int | None = None
    members: int | None = None
    protocol: str = ""
    standstill_ms: int | None = None
    estimated_standstill_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    initial_delay_ms: int | None = None  # of the first rebalance of an empty group
    joined_after_ms: int | None = None  # the rest of the standstill is the wait for the leader's assignment
    last_back: Who | None = None
    last_back_after_ms: int | None = None
    waiting_for: list[Who] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.completed_ms is None

    @property
    def is_modern(self) -> bool:
        """An epoch of KIP-848, and those that began before everybody had reached it."""
        return self.protocol == MODERN_PROTOCOL

    @property
    def cooperative(self) -> bool:
        return COOPERATIVE in self.protocol

    @property
    def stood_still_ms(self) -> int | None:
        """What nobody read for, measured or estimated; a cooperative rebalance is none."""
        if self.cooperative:
            return 0
        return self.standstill_ms if self.standstill_ms is not None else self.estimated_standstill_ms


@dataclass(slots=True)
class History:
    source: Source
    rebalances: list[Rebalance] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    first_ms: int | None = None
    last_ms: int | None = None
    loads: int = 0
    target_failure: Trigger | None = None
    """Why there is no target for the newest epoch, where an assignor failed."""


def from_events(happened: Iterable[GroupEvent]) -> History:
    """Of one group's events, oldest first; the story may begin in the middle."""
    reader = EventReader()
    for event in happened:
        reader.read(event)
    return reader.finish()


def exit_of(event: GroupEvent) -> Trigger | None:
    """How a member went; None of an event by which no member of the group goes."""
    cause = event.cause or NOBODY_TOLD
    if isinstance(event, events.MemberLeft):
        return Trigger(event.at_ms, cause)
    if isinstance(event, events.MemberEvicted) and cause.kind is not CauseKind.NEVER_CAME_BACK:
        return Trigger(event.at_ms, cause)
    return None


class EventReader:
    """Events in, oldest first; `history` grows with them. `finish` may be called again and again."""

    def __init__(self) -> None:
        self.history = History(Source.EVENTS)
        self._open: Rebalance | None = None
        self._pending: list[Trigger] = []
        self._members: dict[str, Who] = {}
        self._back: dict[str, int] = {}
        self._reached: dict[str, int] = {}  # KIP-848: the epoch that a member is reconciled to

    def read(self, event: GroupEvent) -> None:
        history = self.history
        history.first_ms = event.at_ms if history.first_ms is None else history.first_ms
        history.last_ms = event.at_ms
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def finish(self) -> History:
        if self._open is not None:
            self._open.waiting_for = [who for member_id, who in self._members.items() if not self._is_back(member_id)]
        return self.history

    def _is_back(self, member_id: str) -> bool:
        assert self._open is not None
        if self._open.is_modern:
            return self._reached.get(member_id) == self._open.generation
        return member_id in self._back

    def _triggered(self, at_ms: int, cause: Cause) -> None:
        (self._pending if self._open is None else self._open.triggers).append(Trigger(at_ms, cause))

    # members

    def _came(self, event: MemberEvent) -> None:
        self._members[event.member_id] = event.who
        self._back[event.member_id] = event.at_ms

    def _joined(self, event: events.MemberJoined) -> None:
        self._triggered(event.at_ms, _of_member(event, CauseKind.JOINED))
        self._came(event)

    def _rejoined(self, event: events.MemberRejoined) -> None:
        cause = _of_member(event, CauseKind.REJOINED)
        if self._open is None or cause.kind in (CauseKind.METADATA_CHANGED, CauseKind.HANDED_OVER):
            self._triggered(event.at_ms, cause)
        self._came(event)

    def _replaced(self, event: events.MemberReplaced) -> None:
        self._members.pop(event.replaced_member_id, None)
        self._reached.pop(event.replaced_member_id, None)
        self._triggered(event.at_ms, _of_member(event, CauseKind.REPLACED))
        self._came(event)

    def _gone(self, event: MemberEvent) -> None:
        known = self._members.pop(event.member_id, None)
        self._back.pop(event.member_id, None)
        self._reached.pop(event.member_id, None)
        went = exit_of(event)
        if went is None:
            return  # it was never in the group
        if known is not None and not event.client_id:
            went = went._replace(cause=went.cause._replace(members=(known,)))
        self._triggered(*went)

    # rebalances

    def _started(self, event: events.RebalanceStarted) -> None:
        if self._open is None:
            self._open = Rebalance(event.at_ms, self._triggers_of(event))
            self._pending.clear()
            self._back = {member_id: back for member_id, back in self._back.items() if back >= event.at_ms}
            self.history.rebalances.append(self._open)
        self._open.rebalance_timeout_ms = event.rebalance_timeout_ms
        if event.initial_delay_ms is not None:
            self._open.initial_delay_ms = event.initial_delay_ms

    def _triggers_of(self, event: events.RebalanceStarted | events.EpochStarted) -> list[Trigger]:
        """The coordinator says why; what happened to others in the same moment belongs to it.

        What happened at an earlier time does not: such as a static member that was replaced quietly.
        """
        same = [trigger for trigger in self._pending if trigger.at_ms == event.at_ms]
        cause = event.cause
        if cause is None or cause.kind is CauseKind.UNKNOWN:
            return same or [Trigger(event.at_ms, cause or NOBODY_TOLD)]
        first = [trigger for trigger in same if trigger.kind is cause.kind]
        if not first:
            each = [cause._replace(members=(who,)) for who in cause.members] or [cause]
            first = [Trigger(event.at_ms, one) for one in each]
        return first + [trigger for trigger in same if trigger.kind is not cause.kind]

    def _generation(self, event: events.GenerationStarted) -> None:
        if self._open is None:
            return
        self._note_last_back(self._open)
        self._open.generation = event.generation
        self._open.joined_after_ms = event.at_ms - self._open.started_ms

    def _note_last_back(self, one: Rebalance) -> None:
        """Who was the last that it waited for."""
        if self._back:
            last = max(self._back, key=lambda member_id: self._back[member_id])
            one.last_back = self._members.get(last)
            one.last_back_after_ms = self._back[last] - one.started_ms

    def _completed(self, event: events.RebalanceCompleted) -> None:
        if self._open is None:
            began_ms = event.at_ms - event.duration_ms
            self._open = Rebalance(began_ms, [Trigger(began_ms, event.cause)] if event.cause is not None else [])
            self.history.rebalances.append(self._open)
        self._close(event, event.at_ms - self._open.started_ms, event.members)
        self.history.rebalances[-1].protocol = event.protocol

    def _failed(self, event: events.RebalanceFailed) -> None:
        self._triggered(event.at_ms, event.cause or Cause(CauseKind.STORE_FAILED, error=event.error))

    # KIP-848: an epoch begins with a change and is over when everybody has reached the newest one

    def _epoch(self, event: events.EpochStarted) -> None:
        if self._open is None:
            self._open = Rebalance(event.at_ms, self._triggers_of(event))
            self._pending.clear()
            self._back = {}
            self.history.rebalances.append(self._open)
        elif event.cause is not None:
            known = {(trigger.at_ms, trigger.kind) for trigger in self._open.triggers}
            if (event.at_ms, event.cause.kind) not in known:
                self._open.triggers.append(Trigger(event.at_ms, event.cause))
        self._open.generation, self._open.members = event.generation, event.members
        self._open.protocol = MODERN_PROTOCOL

    def _target(self, event: events.TargetAssigned) -> None:
        self.history.target_failure = None
        if self._open is not None:
            self._open.joined_after_ms = event.at_ms - self._open.started_ms

    def _target_failed(self, event: events.TargetFailed) -> None:
        self.history.target_failure = Trigger(event.at_ms, event.cause or Cause(CauseKind.ASSIGNOR_FAILED))

    def _reconciled(self, event: events.MemberReconciled) -> None:
        self._members.setdefault(event.member_id, event.who)
        if event.state != RECONCILED:
            self._reached.pop(event.member_id, None)
            return
        self._reached[event.member_id] = event.member_epoch
        self._back[event.member_id] = event.at_ms

    def _everybody_is_there(self, event: events.StateChanged) -> None:
        one = self._open
        assert one is not None
        self._note_last_back(one)
        self._close(event, event.at_ms - one.started_ms, one.members or len(self._members))

    def _converted(self, event: events.GroupConverted) -> None:
        if event.cause is not None:
            self._triggered(event.at_ms, event.cause)
        if self._open is not None and event.to_type == CLASSIC:
            self._close(event, None, event.members)

    def _state_changed(self, event: events.StateChanged) -> None:
        if event.to_state == STABLE and self._open is not None and self._open.is_modern:
            self._everybody_is_there(event)
        if event.to_state in (EMPTY, DEAD):
            if self._open is not None:
                self._close(event, None, 0)
            self._members.clear()
            self._pending.clear()

    def _close(self, event: GroupEvent, standstill_ms: int | None, members: int) -> None:
        assert self._open is not None
        self._open.completed_ms, self._open.standstill_ms = event.at_ms, standstill_ms
        self._open.generation, self._open.members = event.generation, members
        self._open, self._back = None, {}
        self._pending.clear()

    # the rest

    def _loaded(self, event: events.GroupLoaded) -> None:
        self.history.loads += 1
        if self._open is not None:  # what was under way died with the coordinator
            self._open.completed_ms = event.at_ms
            self._open.triggers.append(Trigger(event.at_ms, Cause(CauseKind.LOADED)))
        self._open = None

    def _refused(
        self, event: events.JoinRefused | events.SyncRefused | events.CommitRefused | events.HeartbeatRefused
    ) -> None:
        what = _REFUSED[type(event)]
        self.history.refusals.append(Refusal(event.at_ms, what, event.who, event.error, event.cause or NOBODY_TOLD))

    def _fenced(self, event: events.MemberFenced) -> None:
        cause = _of_member(event, CauseKind.FENCED)
        self.history.refusals.append(Refusal(event.at_ms, "fenced", event.who, "FENCED_INSTANCE_ID", cause))


def _of_member(event: MemberEvent, kind: CauseKind) -> Cause:
    """The cause of a member's event; of events of other versions, what their type says."""
    cause = event.cause
    if cause is None or cause.kind is CauseKind.UNKNOWN:
        return Cause(kind, (event.who,))
    return cause


_REFUSED: dict[type[GroupEvent], str] = {
    events.CommitRefused: "commit",
    events.JoinRefused: "join",
    events.SyncRefused: "sync",
    events.HeartbeatRefused: "heartbeat",
}
_HANDLERS: dict[type[GroupEvent], Callable[[EventReader, Any], None]] = {
    events.MemberJoined: EventReader._joined,
    events.MemberRejoined: EventReader._rejoined,
    events.MemberReplaced: EventReader._replaced,
    events.MemberLeft: EventReader._gone,
    events.MemberEvicted: EventReader._gone,
    events.MemberFenced: EventReader._fenced,
    events.JoinRefused: EventReader._refused,
    events.SyncRefused: EventReader._refused,
    events.CommitRefused: EventReader._refused,
    events.HeartbeatRefused: EventReader._refused,
    events.EpochStarted: EventReader._epoch,
    events.TargetAssigned: EventReader._target,
    events.TargetFailed: EventReader._target_failed,
    events.MemberReconciled: EventReader._reconciled,
    events.GroupConverted: EventReader._converted,
    events.RebalanceStarted: EventReader._started,
    events.GenerationStarted: EventReader._generation,
    events.RebalanceCompleted: EventReader._completed,
    events.RebalanceFailed: EventReader._failed,
    events.StateChanged: EventReader._state_changed,
    events.GroupLoaded: EventReader._loaded,
}
