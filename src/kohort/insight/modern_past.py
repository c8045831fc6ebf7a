"""KIP-848 groups from their records in `__consumer_offsets`: lanes, targets, and an epoch as a rebalance. Pure.

An epoch begins when the group's is raised and is over when every member has reached it. Members go on reading what they
keep, so it is no standstill. How somebody went is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.lanes import Lanes, Partition
from kohort.insight.rebalances import History, Rebalance, Source, Trigger

PROTOCOL = "consumer (cooperative)"


class ModernPast:
    """`names` are topics by id, as Kafka writes ids."""

    def __init__(self, lanes: Lanes, targets: Lanes) -> None:
        self.history = History(Source.GENERATIONS)
        self.epoch = 0
        self._lanes, self._targets = lanes, targets
        self._whos: dict[str, Who] = {}
        self._epochs: dict[str, int] = {}
        self._pending: list[Trigger] = []
        self._told: dict[int, Trigger] = {}  # by epoch: why, where a kohort broker says so

    def why(self, epoch: int, trigger: Trigger) -> None:
        """The coordinator's own word on an epoch; it may come before the epoch's record, or after."""
        self._told[epoch] = trigger
        for one in self.history.rebalances[-8:]:
            if one.generation == epoch:
                one.triggers = [self._told.pop(epoch)]
                return
        for old in list(self._told)[:-64]:
            del self._told[old]

    def read(
        self, at_ms: int, kind: str, member_id: str | None, data: Mapping[str, Any] | None, names: Mapping[str, str]
    ) -> None:
        self.history.first_ms = at_ms if self.history.first_ms is None else self.history.first_ms
        self.history.last_ms = at_ms
        what = kind.removeprefix("ConsumerGroup")
        if what == "Metadata" and data is not None:
            self._raised(at_ms, int(data["epoch"]))
        elif member_id is None:
            return
        elif what == "MemberMetadata":
            self._member(at_ms, member_id, data)
        elif what == "CurrentMemberAssignment":
            self._current(at_ms, member_id, data, names)
        elif what == "TargetAssignmentMember":
            if data is None:
                self._targets.release(at_ms, member_id)
            else:
                self._targets.hold(at_ms, self._who(member_id), _named(data["topic_partitions"], names))

    def _who(self, member_id: str) -> Who:
        return self._whos.get(member_id, Who(member_id))

    def _member(self, at_ms: int, member_id: str, data: Mapping[str, Any] | None) -> None:
        known = member_id in self._whos
        if data is None:
            who = self._whos.pop(member_id, Who(member_id))
            self._epochs.pop(member_id, None)
            self._pending.append(Trigger(at_ms, Cause(CauseKind.GONE, (who,))))
            self._lanes.release(at_ms, member_id)
            return
        who = Who(member_id, data.get("instance_id"), str(data.get("client_id", "")), str(data.get("client_host", "")))
        self._whos[member_id] = who
        kind = CauseKind.METADATA_CHANGED if known else CauseKind.JOINED
        self._pending.append(Trigger(at_ms, Cause(kind, (who,))))

    def _raised(self, at_ms: int, epoch: int) -> None:
        if epoch == self.epoch:
            return
        self.epoch = epoch
        known = self._told.pop(epoch, None)
        triggers = [known] if known else self._pending or [Trigger(at_ms, Cause(CauseKind.PARTITIONS_CAME, size=0))]
        if self.history.rebalances and self.history.rebalances[-1].open:
            self.history.rebalances[-1].completed_ms = at_ms
        made = Rebalance(
            min(triggers[0].at_ms, at_ms), list(triggers), generation=epoch, members=len(self._whos), protocol=PROTOCOL
        )
        self.history.rebalances.append(made)
        self._pending = []
        self._settle(at_ms)

    def _current(self, at_ms: int, member_id: str, data: Mapping[str, Any] | None, names: Mapping[str, str]) -> None:
        if data is None:
            self._lanes.release(at_ms, member_id)
            self._epochs.pop(member_id, None)
        else:
            self._lanes.hold(at_ms, self._who(member_id), _named(data["assigned_partitions"], names))
            self._epochs[member_id] = int(data["member_epoch"])
        self._settle(at_ms)

    def _settle(self, at_ms: int) -> None:
        """Everybody has arrived at the epoch."""
        if not self.history.rebalances or not self.history.rebalances[-1].open:
            return
        if all(self._epochs.get(member_id, -1) >= self.epoch for member_id in self._whos):
            last = self.history.rebalances[-1]
            last.completed_ms, last.members, last.standstill_ms = at_ms, len(self._whos), at_ms - last.started_ms


def _named(topics: list[dict[str, Any]], names: Mapping[str, str]) -> list[Partition]:
    return [(names.get(one["topic_id"], one["topic_id"]), number) for one in topics for number in one["partitions"]]
