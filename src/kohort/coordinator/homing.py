"""Groups whose partition is another one now: the offsets topic has grown, and a name's hash is taken of its new size.

A group lives in the partition that its name belongs to now; whoever looks for it looks there. What the log knows of it
is written to that partition, and when it is stored there, removed from where it was. What is interrupted is taken up at
the next load: what is missing at home is written, the rest removed. (In Kafka such groups begin anew.)

Until what was removed is stored a crash would bring it back, and what is missing at home would be written there again:
meanwhile no group begins anew, and nothing is deleted (`parting`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.group import Group
from kohort.coordinator.kinds import KINDS
from kohort.coordinator.records import Change, OffsetCommit
from kohort.coordinator.replay import ShardGroups
from kohort.coordinator.runtime import Runtime
from kohort.coordinator.shard import Life, Shard
from kohort.protocol.errors import ErrorCode

GroupShard = Shard[ShardGroups]


def home_strays(runtime: Runtime[ShardGroups], partition_for: Callable[[str], int], now_ms: int) -> list[str]:
    """Those that are on their way home from now on. Others wait: for a load, or for the end of a transaction."""
    moved = []
    for shard in list(runtime.shards.values()):
        # What was decided of them before is stored first: a move must not rest on what a crash takes back.
        if shard.life is Life.ACTIVE and shard.state.strays and shard.resting is None:
            for group in list(shard.state.strays.values()):
                home = runtime.shards.get(partition_for(group.group_id))
                if home is not None and home.life is Life.ACTIVE and _move(runtime, group, shard, home, now_ms):
                    moved.append(group.group_id)
    return moved


def part(shard: GroupShard) -> None:
    """The topic has grown: what was decided here of groups that are looked for elsewhere from now on is to be stored
    before they are served there. One that was deleted is no stray, and would begin anew."""
    if shard.resting is not None:
        shard.state.parting += 1
        shard.resting.thens.append(Parted())


def _move(runtime: Runtime[ShardGroups], group: Group, shard: GroupShard, home: GroupShard, now_ms: int) -> bool:
    if group.open_transactions or shard.state.homing.get(group.group_id) == home.incarnation:
        return False
    shard.state.now_ms = home.state.now_ms = now_ms
    missing = _missing(group, home.state.groups.get(group.group_id))
    homed: Homed | None = None
    if home is shard:  # the topic has grown once more before it got away: nothing is to be forgotten
        del shard.state.strays[group.group_id]
        shard.state.homing.pop(group.group_id, None)
        if not missing:
            return False
    else:
        shard.state.homing[group.group_id] = home.incarnation
        homed = Homed(runtime, shard, shard.incarnation, group)
    if not missing and home.resting is not None:
        home.resting.thens.append(homed)
        return False
    if not missing:
        runtime.decided(shard, _forget(shard.state, group))
        return False
    decision = home.state.decide(missing, divisible=True)
    decision.then = homed
    runtime.decided(home, decision)
    arrived = home.state.groups[group.group_id]
    arrived.story = group.story
    if arrived.needs_restoring:
        arrived.restore()
        runtime.decided(home, KINDS[type(arrived)].loaded(home.state, arrived))
    return True


def _missing(group: Group, known: Group | None) -> list[Change]:
    changes: list[Change] = [
        OffsetCommit(group.group_id, topic, index, value)
        for topic, committed in group.offsets.items()
        for index, value in committed.items()
        if known is None or index not in known.offsets.get(topic, {})
    ]
    if known is None or not known.has_begun:
        changes += group.own_records()
    return changes


def _forget(state: ShardGroups, group: Group) -> Decision | None:
    del state.strays[group.group_id]
    state.homing.pop(group.group_id, None)
    changes = group.tombstones()
    if not changes:
        return None
    state.parting += 1
    decision = state.decide(changes, divisible=True)
    decision.then = Parted()
    return decision


class Parted:
    """It is stored that a group is here no more."""

    __slots__ = ()

    def stored(self, state: ShardGroups, error: ErrorCode) -> Decision | None:
        state.parting -= 1
        return None


class Homed(NamedTuple):
    """It is stored at home: nothing is left to keep where it was."""

    runtime: Runtime[ShardGroups]
    shard: GroupShard
    incarnation: int
    group: Group

    def stored(self, context: Context, error: ErrorCode) -> Decision | None:
        shard = self.shard
        # Where the topic has grown again meanwhile it may be at home here, or gone to another partition already.
        is_there = shard.state.strays.get(self.group.group_id) is self.group
        if not error and shard.incarnation == self.incarnation and shard.life is Life.ACTIVE and is_there:
            shard.state.now_ms = context.now_ms
            self.runtime.decided(shard, _forget(shard.state, self.group))
        return None
