"""What is counted while the broker runs with metrics: plain numbers, added up here and read at a scrape.

Without metrics nobody owns a Meter and nothing is counted. No clock of its own: whoever makes one passes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.coordinator import events
from kohort.coordinator.causes import CauseKind
from kohort.coordinator.events import GroupEvent
from kohort.insight.claims import polled_late

if TYPE_CHECKING:
    from kohort.broker.connection import Call

SLOTS = 64
"""Latencies by the powers of two of microseconds: slot n counts what took less than 2**n of them."""
MOST_GROUPS = 200
OTHER_GROUPS = "(other groups)"
_Label = TypeVar("_Label", str, tuple[str, str])
REBALANCE_BUCKETS_MS = (10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000)


class Meter:
    """Requests by api with their latencies, and what happened to groups.

    The clock is read once where bytes arrive and once at the end of a turn, when the answers leave.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock  # seconds, monotonic
        self.arrived = clock()
        self._answered: list[Call] = []
        self.answered = self._answered.append
        """Called for every answer that leaves with this turn: the hot path."""
        self.latencies: dict[str, list[float]] = {}  # by api: SLOTS counts, then the sum in seconds
        self.groups = GroupCounters()
        self.connections_opened = 0

    def arrive(self) -> None:
        """What is received from now on arrives now."""
        self.arrived = self._clock()

    def end_turn(self) -> None:
        """Many answers of a turn are of one kind and came together: they are looked up once."""
        if not self._answered:
            return
        now = self._clock()
        entry, began, took, slot, slots = None, -1.0, 0.0, 0, []
        for call in self._answered:
            if call.entry is not entry or call.began != began:
                entry, began = call.entry, call.began
                took = now - began
                slot = int(took * 1_000_000).bit_length()
                slots = self._slots(entry.name)
            slots[slot] += 1
            slots[-1] += took
        self._answered.clear()

    def _slots(self, name: str) -> list[float]:
        found = self.latencies.get(name)
        if found is None:
            found = self.latencies[name] = [0] * SLOTS + [0.0]
        return found


class OneGroup:
    """Counters of one group, by the kind of the cause where there is one."""

    __slots__ = (
        "completed",
        "epoch_since_ms",
        "evictions",
        "joins",
        "leaves",
        "poll_timeouts",
        "rebalances",
        "refusals",
        "standstill_ms",
        "target_failures",
    )

    def __init__(self) -> None:
        self.rebalances: dict[str, int] = {}
        self.evictions: dict[str, int] = {}
        self.refusals: dict[tuple[str, str], int] = {}  # by error and kind
        self.joins = 0
        self.leaves = 0
        self.poll_timeouts = 0
        self.completed = 0
        self.standstill_ms = 0
        self.epoch_since_ms: int | None = None  # KIP-848: since when members are on their way
        self.target_failures: dict[str, int] = {}  # by assignor


class GroupCounters:
    """Fed with every group event. The first MOST_GROUPS groups are counted apart, later ones together."""

    def __init__(self) -> None:
        self.by_group: dict[str, OneGroup] = {}
        self.durations = [0] * (len(REBALANCE_BUCKETS_MS) + 1)
        self.duration_ms = 0
        self.completed = 0
        self.epochs = 0
        self.offsets_committed = 0
        self.offsets_expired = 0
        self.offsets_deleted = 0

    def of(self, group_id: str) -> OneGroup:
        found = self.by_group.get(group_id)
        if found is None:
            if len(self.by_group) >= MOST_GROUPS:
                group_id = OTHER_GROUPS
            found = self.by_group.setdefault(group_id, OneGroup())
        return found

    def observe(self, event: GroupEvent) -> None:
        handler = _OBSERVERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _joined(self, event: GroupEvent) -> None:
        self.of(event.group_id).joins += 1

    def _left(self, event: GroupEvent) -> None:
        group = self.of(event.group_id)
        group.leaves += 1
        group.poll_timeouts += polled_late(event.cause)

    def _evicted(self, event: GroupEvent) -> None:
        _add(self.of(event.group_id).evictions, _kind(event))

    def _refused(
        self, event: events.JoinRefused | events.SyncRefused | events.CommitRefused | events.HeartbeatRefused
    ) -> None:
        _add(self.of(event.group_id).refusals, (event.error, _kind(event)))

    def _fenced(self, event: GroupEvent) -> None:
        _add(self.of(event.group_id).refusals, ("FENCED_INSTANCE_ID", _kind(event)))

    def _started(self, event: GroupEvent) -> None:
        _add(self.of(event.group_id).rebalances, _kind(event))

    def _completed(self, event: events.RebalanceCompleted) -> None:
        group, took_ms = self.of(event.group_id), event.duration_ms
        group.completed += 1
        group.standstill_ms += took_ms
        self.completed += 1
        self._took(took_ms)

    def _epoch(self, event: GroupEvent) -> None:
        """An epoch that begins before everybody has reached the last one belongs to it."""
        self._started(event)
        self.epochs += 1
        group = self.of(event.group_id)
        group.epoch_since_ms = event.at_ms if group.epoch_since_ms is None else group.epoch_since_ms

    def _state_changed(self, event: events.StateChanged) -> None:
        group = self.by_group.get(event.group_id)
        if group is None or group.epoch_since_ms is None or event.to_state not in ("Stable", "Empty"):
            return
        group.completed += 1
        self._took(event.at_ms - group.epoch_since_ms)
        group.epoch_since_ms = None

    def _target_failed(self, event: events.TargetFailed) -> None:
        _add(self.of(event.group_id).target_failures, event.assignor)

    def _took(self, took_ms: int) -> None:
        self.duration_ms += took_ms
        slot = sum(took_ms > bound for bound in REBALANCE_BUCKETS_MS)
        self.durations[slot] += 1

    def _offsets_removed(self, event: events.OffsetsRemoved) -> None:
        if event.cause is not None and event.cause.kind is CauseKind.RETENTION_OVER:
            self.offsets_expired += event.partitions
        else:
            self.offsets_deleted += event.partitions

    def _deleted(self, event: GroupEvent) -> None:
        """Its series end with it."""
        self.by_group.pop(event.group_id, None)

    def _loaded(self, event: GroupEvent) -> None:
        self.of(event.group_id)


def _add(counts: dict[_Label, int], name: _Label) -> None:
    counts[name] = counts.get(name, 0) + 1


def _kind(event: GroupEvent) -> str:
    return (CauseKind.UNKNOWN if event.cause is None else event.cause.kind).value


_OBSERVERS: dict[type[GroupEvent], Callable[[GroupCounters, Any], None]] = {
    events.MemberJoined: GroupCounters._joined,
    events.MemberReplaced: GroupCounters._joined,
    events.MemberLeft: GroupCounters._left,
    events.MemberEvicted: GroupCounters._evicted,
    events.MemberFenced: GroupCounters._fenced,
    events.JoinRefused: GroupCounters._refused,
    events.SyncRefused: GroupCounters._refused,
    events.CommitRefused: GroupCounters._refused,
    events.HeartbeatRefused: GroupCounters._refused,
    events.RebalanceStarted: GroupCounters._started,
    events.EpochStarted: GroupCounters._epoch,
    events.StateChanged: GroupCounters._state_changed,
    events.TargetFailed: GroupCounters._target_failed,
    events.RebalanceCompleted: GroupCounters._completed,
    events.OffsetsRemoved: GroupCounters._offsets_removed,
    events.GroupDeleted: GroupCounters._deleted,
    events.GroupLoaded: GroupCounters._loaded,
}
