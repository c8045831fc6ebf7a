"""KIP-848 groups from their records in `__consumer_offsets`: lanes, targets, and an epoch as a rebalance. Pure.

An epoch begins when the group's is raised and is over when every member has reached it. Members go on reading what they
keep, so it is no standstill. How somebody went is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.insight.lanes import Lanes, Partition
from kohort.insight.rebalances import MODERN_PROTOCOL, History, Rebalance, Source, Trigger
from kohort.insight.waiting import Holding

STABLE = 0
"""A member that is where its target wants it, as records say it."""


class ModernPast:
    """`names` are topics by id, as Kafka writes ids."""

    def __init__(self, lanes: Lanes, targets: Lanes) -> None:
        self.history = History(Source.EPOCHS)
        self.epoch = 0
        self._lanes, self._targets = lanes, targets
        self._whos: dict[str, Who] = {}
        self._epochs: dict[str, int] = {}
        self._unsettled: set[str] = set()  # members that give partitions up, or wait for some
        self._pending: list[Trigger] = []

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

    def holdings(self) -> list[Holding]:
        """What members have, or have not given up yet, and what they are to have."""
        held, targets = self._lanes.held_now(), self._targets.held_now()
        return [
            Holding(
                who,
                self._epochs.get(member_id, 0),
                frozenset(held.get(member_id, ())),
                frozenset(targets.get(member_id, ())),
            )
            for member_id, who in self._whos.items()
        ]

    def _who(self, member_id: str) -> Who:
        return self._whos.get(member_id, Who(member_id))

    def _member(self, at_ms: int, member_id: str, data: Mapping[str, Any] | None) -> None:
        known = member_id in self._whos
        if data is None:
            who = self._whos.pop(member_id, Who(member_id))
            self._epochs.pop(member_id, None)
            self._unsettled.discard(member_id)
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
        triggers = self._pending or [Trigger(at_ms, Cause(CauseKind.PARTITIONS_CAME, size=0))]
        if self.history.rebalances and self.history.rebalances[-1].open:
            self.history.rebalances[-1].completed_ms = at_ms
        made = Rebalance(
            min(triggers[0].at_ms, at_ms),
            list(triggers),
            generation=epoch,
            members=len(self._whos),
            protocol=MODERN_PROTOCOL,
        )
        self.history.rebalances.append(made)
        self._pending = []
        self._settle(at_ms)

    def _current(self, at_ms: int, member_id: str, data: Mapping[str, Any] | None, names: Mapping[str, str]) -> None:
        if data is None:
            self._lanes.release(at_ms, member_id)
            self._epochs.pop(member_id, None)
            self._unsettled.discard(member_id)
        else:
            held = [*data["assigned_partitions"], *data.get("partitions_pending_revocation", ())]
            self._lanes.hold(at_ms, self._who(member_id), _named(held, names))
            self._epochs[member_id] = int(data["member_epoch"])
            (self._unsettled.discard if data.get("state", STABLE) == STABLE else self._unsettled.add)(member_id)
        self._settle(at_ms)

    def _settle(self, at_ms: int) -> None:
        """Everybody has arrived at the epoch."""
        if not self.history.rebalances or not self.history.rebalances[-1].open:
            return
        if not self._unsettled and all(self._epochs.get(member_id, -1) >= self.epoch for member_id in self._whos):
            last = self.history.rebalances[-1]
            last.completed_ms, last.members, last.standstill_ms = at_ms, len(self._whos), at_ms - last.started_ms


def _named(topics: list[dict[str, Any]], names: Mapping[str, str]) -> list[Partition]:
    return [(names.get(one["topic_id"], one["topic_id"]), number) for one in topics for number in one["partitions"]]
