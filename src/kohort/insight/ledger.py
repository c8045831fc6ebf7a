"""All groups of a cluster as the console knows them, and which of them changed since it was last asked. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kohort.coordinator.events import GroupEvent
from kohort.insight import views
from kohort.insight.generations import StoredGeneration
from kohort.insight.group_past import GroupPast
from kohort.insight.lanes import Partition
from kohort.insight.log_ends import LogEnds
from kohort.insight.rebalances import DEAD

ROW_AGE_MS = 30_000
"""Verdicts change as time goes by, also of a group to which nothing happens."""


class Ledger:
    def __init__(self) -> None:
        self.groups: dict[str, GroupPast] = {}
        self.ends: dict[Partition, LogEnds] = {}
        self.revision = 0
        self.records = 0
        self._changed: dict[str, int] = {}
        self._rows: dict[str, tuple[int, int, dict[str, Any]]] = {}

    # -- what is fed

    def group(self, group_id: str) -> GroupPast:
        """To be changed: it counts as changed from now on."""
        past = self.groups.get(group_id)
        if past is None:
            past = self.groups[group_id] = GroupPast(group_id)
        self.revision += 1
        self._changed[group_id] = self.revision
        return past

    def event(self, event: GroupEvent) -> None:
        self.records += 1
        self.group(event.group_id).event(event)

    def generation(self, group_id: str, stored: StoredGeneration, last_commit_ms: int | None = None) -> None:
        self.records += 1
        self.group(group_id).generation(stored, last_commit_ms)

    def commit(self, group_id: str, partition: Partition, offset: int, at_ms: int, count: int = 1) -> None:
        self.records += count
        grown = self.ends.get(partition)
        self.group(group_id).commit(partition, offset, at_ms, None if grown is None else grown.at(at_ms), count)

    def grew(self, at_ms: int, ends: Iterable[tuple[Partition, int]]) -> None:
        for partition, end in ends:
            self.ends.setdefault(partition, LogEnds()).seen(at_ms, end)

    def measure(self, at_ms: int) -> None:
        """Every group's lag of this moment joins its series."""
        for group_id, past in self.groups.items():
            lag = past.total_lag(views.known_ends(self.ends, past.commits))
            if lag is not None:
                if past.trend(1) != [lag]:
                    self.group(group_id)
                past.series.lag(at_ms, lag)

    def listed(self, found: Iterable[tuple[str, str, str]]) -> None:
        """(group, state, type), all that the cluster has."""
        named = set()
        for group_id, state, kind in found:
            named.add(group_id)
            past = self.groups.get(group_id)
            if past is None or (past.state, past.type, past.listed) != (state, kind, True):
                past = self.group(group_id)
                past.state, past.type, past.listed = state, kind, True
        for group_id, past in self.groups.items():
            if past.listed and group_id not in named and past.state != DEAD:
                self.group(group_id).state = DEAD

    # -- what is asked

    def rows(self, now_ms: int, since: int = 0) -> list[dict[str, Any]]:
        """Of the groups that changed after this revision, the worst first."""
        rows = [self._row(group_id, now_ms) for group_id, at in list(self._changed.items()) if at > since]
        return sorted(rows, key=lambda row: (row["score"], row["group"]))

    def _row(self, group_id: str, now_ms: int) -> dict[str, Any]:
        made = self._rows.get(group_id)
        changed = self._changed[group_id]
        if made is None or made[0] != changed or not 0 <= now_ms - made[1] < ROW_AGE_MS:
            made = (changed, now_ms, views.group_row(self.groups[group_id], self.ends, now_ms))
            self._rows[group_id] = made
        return made[2]

    def changed(self, since: int) -> list[str]:
        return [group_id for group_id, at in self._changed.items() if at > since]

    def topics(self) -> list[dict[str, Any]]:
        """Every partition whose end is known: who reads it, and who is furthest behind."""
        readers: dict[Partition, list[str]] = {}
        followers: dict[Partition, list[str]] = {}
        for group_id, past in self.groups.items():
            for partitions in past.lanes.held_now().values():
                for partition in partitions:
                    readers.setdefault(partition, []).append(group_id)
            for partition in past.commits:
                followers.setdefault(partition, []).append(group_id)
        by_topic: dict[str, dict[str, Any]] = {}
        for partition, grown in sorted(self.ends.items()):
            row = by_topic.setdefault(
                partition[0], {"topic": partition[0], "partitions": 0, "end": 0, "unread": [], "groups": set()}
            )
            row["partitions"] += 1
            row["end"] += grown.last or 0
            row["groups"].update(readers.get(partition, ()))
            if partition in followers and partition not in readers:
                row["unread"].append(partition[1])
        return [row | {"groups": sorted(row["groups"])} for row in by_topic.values()]

    def talkers(self, most: int = 50) -> list[dict[str, Any]]:
        """Which groups fill the offsets topic."""
        total = sum(past.commit_count for past in self.groups.values())
        loud = sorted(self.groups.values(), key=lambda past: -past.commit_count)[:most]
        return [
            {"group": past.group_id, "commits": past.commit_count, "share": past.commit_count / total}
            for past in loud
            if past.commit_count
        ]
