"""One group as the console knows it, fed record by record: events, generations, commits. Pure, and bounded.

Events of a kohort broker are exact. Of any other Kafka the stored generations and the commits are all there is: then a
standstill is estimated, and marked so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kohort.coordinator.causes import Who
from kohort.coordinator.events import EpochStarted, GroupEvent, RebalanceCompleted, StateChanged
from kohort.insight.diagnosis import Present
from kohort.insight.generations import GenerationReader, StoredGeneration
from kohort.insight.lag_verdicts import WINDOW, CommitPoint
from kohort.insight.lanes import Lanes, Moves, Partition
from kohort.insight.modern_past import ModernPast
from kohort.insight.rebalances import DEAD, EMPTY, STABLE, EventReader, History, Rebalance, Source
from kohort.insight.series import Series
from kohort.insight.waiting import waits

MOST_REBALANCES = 120_000
CLASSIC, CONSUMER = "classic", "consumer"


class GroupPast:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state, self.type, self.protocol = "", CLASSIC, ""
        self.listed = False  # the cluster names it: its state is what the cluster says
        self.lanes, self.targets = Lanes(), Lanes()
        self.moves: dict[int, Moves] = {}  # by the time of the generation
        self.completed: dict[int, int] = {}  # generation -> when its rebalance ended, from events
        self.generation_at: dict[int, int] = {}  # time of a stored generation -> its number
        self.commits: dict[Partition, deque[CommitPoint]] = {}
        self.series = Series()
        self.subscriptions: dict[str, frozenset[str]] = {}
        self.commit_count = 0
        self.last_ms = 0
        self._events: EventReader | None = None
        self._generations = GenerationReader()
        self._last_commit_ms: int | None = None
        self._modern: ModernPast | None = None

    # -- what is fed

    def event(self, event: GroupEvent) -> None:
        if self._events is None:
            self._events = EventReader()
        self._events.read(event)
        self.last_ms = max(self.last_ms, event.at_ms)
        if isinstance(event, RebalanceCompleted):
            self.completed[event.generation] = event.at_ms
        if isinstance(event, StateChanged) and not self.listed:
            self.state = event.to_state
        if isinstance(event, StateChanged) and event.to_state in (EMPTY, DEAD):
            self.lanes.assign(event.at_ms, {})
        if isinstance(event, EpochStarted):
            self.type = CONSUMER
        _prune(self._events.history.rebalances)

    def _of_modern(self) -> ModernPast:
        if self._modern is None:
            self._modern = ModernPast(self.lanes, self.targets)
            self.type = CONSUMER
        return self._modern

    def generation(self, stored: StoredGeneration, last_commit_ms: int | None = None) -> None:
        """`last_commit_ms` of the group before it, where its commits are not fed one by one."""
        before_ms = self._generations.history.last_ms
        self.moves[stored.at_ms] = self.lanes.assign(stored.at_ms, {m.who: m.partitions for m in stored.members})
        self.subscriptions = {m.who.member_id: frozenset(m.topics) for m in stored.members}
        self.generation_at[stored.at_ms] = stored.generation
        self.protocol = stored.protocol or self.protocol
        self.last_ms = max(self.last_ms, stored.at_ms)
        if not self.listed:
            self.state = STABLE if stored.members else EMPTY
        made = self._generations.read(stored)
        if made is not None:
            made.estimated_standstill_ms = estimated_standstill_ms(
                made, before_ms, last_commit_ms or self._last_commit_ms
            )
        _prune(self._generations.history.rebalances)
        _forget_oldest(self.moves, self.generation_at, self.completed)

    def modern(
        self, at_ms: int, kind: str, member_id: str | None, data: Mapping[str, Any] | None, names: Mapping[str, str]
    ) -> None:
        """A record of a KIP-848 group, by Kafka's name of it."""
        modern = self._of_modern()
        modern.read(at_ms, kind, member_id, data, names)
        self.last_ms = max(self.last_ms, at_ms)
        _prune(modern.history.rebalances)

    def gone(self, at_ms: int) -> None:
        """Its metadata was deleted from the log."""
        self.lanes.assign(at_ms, {})
        if not self.listed:
            self.state = DEAD

    def commit(self, partition: Partition, offset: int, at_ms: int, end: int | None, count: int = 1) -> None:
        """`count` commits, of which this is the last."""
        window = self.commits.get(partition)
        if window is None:
            window = self.commits[partition] = deque(maxlen=WINDOW)
        window.append(CommitPoint(at_ms, offset, None if end is None else max(0, end - offset)))
        self.commit_count += count
        self.series.committed(at_ms, count)
        self._last_commit_ms = max(at_ms, self._last_commit_ms or 0)
        self.last_ms = max(self.last_ms, at_ms)

    def uncommitted(self, partition: Partition) -> None:
        self.commits.pop(partition, None)

    # -- what is known

    @property
    def exact(self) -> bool:
        return self._events is not None

    @property
    def is_told(self) -> bool:
        """Its own records say who holds what."""
        return bool(self.generation_at) or self._modern is not None

    def history(self) -> History:
        """From events; of the time before the first of them, from generations and from the records of epochs."""
        classic = self._classic_history()
        modern = self._modern.history if self._modern is not None else None
        if modern is None or not modern.rebalances:
            return classic
        if self._events is None and not classic.rebalances:
            return modern
        told_from_ms = None if self._events is None else self._events.history.first_ms
        epochs = [one for one in modern.rebalances if told_from_ms is None or one.started_ms < told_from_ms]
        both = sorted([*classic.rebalances, *epochs], key=lambda one: one.started_ms)  # it was converted
        firsts = [one.first_ms for one in (classic, modern) if one.first_ms is not None]
        return History(
            classic.source, both, classic.refusals, min(firsts), self.last_ms, classic.loads, classic.target_failure
        )

    def _classic_history(self) -> History:
        stored = self._generations.history
        if self._events is None:
            return stored
        told = self._events.finish()
        began_ms = told.first_ms or 0
        if not stored.rebalances or stored.rebalances[0].started_ms >= began_ms:
            stored.rebalances.clear()
            return told
        earlier = [one for one in stored.rebalances if one.started_ms < began_ms]
        stored.rebalances[:] = earlier
        return History(
            Source.EVENTS,
            earlier + told.rebalances,
            told.refusals,
            stored.first_ms,
            told.last_ms,
            told.loads,
            told.target_failure,
        )

    def is_exact(self, rebalance: Rebalance) -> bool:
        return self._events is not None and rebalance.started_ms >= (self._events.history.first_ms or 0)

    def lags(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        return {p: max(0, ends[p] - window[-1].offset) for p, window in self.commits.items() if p in ends}

    def total_lag(self, ends: Mapping[Partition, int]) -> int | None:
        known = self.lags(ends)
        return sum(known.values()) if known else None

    def trend(self, count: int = 24) -> list[int]:
        return self.series.lags(count)

    @property
    def members(self) -> dict[str, Who]:
        return self.lanes.present

    def present(self, ends: Mapping[Partition, int]) -> Present:
        held = self.lanes.held_now()
        return Present(
            self.state,
            self.protocol,
            self.members,
            self.subscriptions,
            {member_id: len(partitions) for member_id, partitions in held.items()} if self.state == STABLE else {},
            self.lags(ends),
            {partition: member_id for member_id, partitions in held.items() for partition in partitions},
            () if self._modern is None else waits(self._modern.holdings()),
        )


def estimated_standstill_ms(made: Rebalance, before_ms: int | None, last_commit_ms: int | None) -> int | None:
    """At most so long did nobody read: from the last commit to the new generation.

    Consumers commit when they give their partitions up. None where no commit is near: an idle group says nothing.
    """
    if last_commit_ms is None or not made.members:
        return None
    if before_ms is not None and last_commit_ms < before_ms:
        return None
    gap_ms = made.started_ms - last_commit_ms
    most_ms = made.rebalance_timeout_ms or 300_000
    return gap_ms if 0 <= gap_ms <= most_ms else None


def _prune(rebalances: list[Rebalance]) -> None:
    if len(rebalances) > MOST_REBALANCES:
        del rebalances[: MOST_REBALANCES // 4]


def _forget_oldest(*kept: dict[int, Any]) -> None:
    for one in kept:
        if len(one) > MOST_REBALANCES:
            for key in list(one)[: MOST_REBALANCES // 4]:
                del one[key]
