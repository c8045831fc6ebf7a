"""What a decision about a KIP-848 group is made of: steps that take effect one by one, each seeing those before it.

A handler refuses before its first step. Where it fails later its shard is loaded again (the coordinator's
`handle`), so nobody sees half of a decision. Here too what the steps mean for the members' deadlines.
"""

from __future__ import annotations

from typing import Any

from kohort.coordinator import events
from kohort.coordinator.causes import Cause
from kohort.coordinator.context import Context
from kohort.coordinator.effects import Decision
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.modern.member import Member
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.modern_records import CurrentAssignment, GroupEpoch, Kind, MemberState
from kohort.coordinator.records import Change, encode


class Steps:
    def __init__(self, context: Context, group: ModernGroup) -> None:
        self.context = context
        self.group = group
        self.changes: list[Change] = []
        self.then: Any = None

    def add(self, *changes: Change) -> None:
        self.context.apply(changes, -1)
        self.changes += changes

    def put(self, kind: Kind, value: Any, name: str = "") -> None:
        self.add(self.group.change(kind, value, name))

    def put_current(self, member_id: str, value: CurrentAssignment) -> None:
        """With it the time that the member has to give up partitions begins, or ends."""
        self.put(Kind.CURRENT_MEMBER, value, member_id)
        member = self.group.members[member_id]
        if member.is_classic:
            return
        if value.state is MemberState.UNREVOKED_PARTITIONS:
            self.context.timers.set(member.rebalance, self.context.now_ms + member.metadata.rebalance_timeout_ms)
        else:
            member.rebalance.cancel()

    def remove_member(self, member: Member) -> None:
        """With the expression that nobody else subscribes by."""
        group, member_id, regex = self.group, member.member_id, member.metadata.regex
        self.put(Kind.CURRENT_MEMBER, None, member_id)
        self.put(Kind.TARGET_MEMBER, None, member_id)
        self.put(Kind.MEMBER, None, member_id)
        if regex and not group.regexes[regex] and regex in group.resolved:
            self.put(Kind.REGEX, None, regex)

    def bump(self, cause: Cause) -> None:
        """The group has a new epoch, for which a target is to be made."""
        group = self.group
        new_hash = metadata_hash(self.context.topics, group.subscribed_names())
        self.put(Kind.GROUP, GroupEpoch(group.epoch + 1, new_hash))
        group.is_stale = False
        self.context.event(group, events.EpochStarted, members=len(group.members), cause=cause)

    def decision(self, cause: Cause | None = None) -> Decision | None:
        if not self.changes:
            return None
        tell_state(self.context, self.group, cause)
        return Decision(
            [encode(change) for change in self.changes], self.changes, self.then, divisible=True, in_effect=True
        )


def tell_state(context: Context, group: ModernGroup, cause: Cause | None) -> None:
    was, now = group.told_state, group.state
    if was is not now:
        group.told_state = now
        context.event(group, events.StateChanged, from_state=was.value, to_state=now.value, cause=cause)
