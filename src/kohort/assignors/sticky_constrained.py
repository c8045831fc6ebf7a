"""Sticky assignment where all members subscribe to the same topics: every member gets the quota or one more.

Members keep what they owned up to their quota; the rest is dealt out in turn, in bulk: a round is one slice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

from kohort.assignors.ordering import java_sorted
from kohort.assignors.ownership import Ownership
from kohort.assignors.partition_space import PartitionSpace
from kohort.assignors.sticky_racks import StickyRacks


class ConstrainedAssignment:
    """What `build` returns may be more than members may have at once: `transferring` is what somebody else has to give
    up first, with its new member. `grown` are the members that have got something they did not own.
    """

    def __init__(self, space: PartitionSpace, ownership: Ownership, racks: StickyRacks) -> None:
        self._space = space
        self._racks = racks
        self._ownership = ownership
        self.quota, self.members_over_quota = divmod(space.total, len(ownership.owned))
        self._revoked_from: dict[int, str] = {}
        self.below_quota: list[str] = []
        self.at_quota: list[str] = []
        self.assigned: dict[str, Sequence[int]] = {}
        self.transferring: dict[int, str] = {}
        self.grown: set[str] = set()

    def build(self) -> dict[str, Sequence[int]]:
        unassigned = self._keep_owned()
        self.below_quota = java_sorted(self.below_quota)
        self.at_quota = java_sorted(self.at_quota)
        unassigned = self._racks.fewest_local_members_first(unassigned)
        if self._racks.of_member:
            unassigned = _RackRoundRobin(self, self._racks).deal(unassigned)
        self._deal(unassigned)
        return self.assigned

    def _keep_owned(self) -> Sequence[int]:
        """Let members keep what they owned up to their quota; returns what is left to be dealt out, in order."""
        quota, over_left = self.quota, self.members_over_quota
        distrusted: list[int] = []
        for member, owned in self._ownership.owned.items():
            if self._racks.of_member or self._ownership.disputed:
                owned = self._trustworthy(member, owned, distrusted)
            if len(owned) < quota:
                self.below_quota.append(member)
            elif len(owned) > quota and over_left:
                over_left -= 1
                owned = self._cut(member, owned, quota + 1)
            else:
                owned = self._cut(member, owned, quota)
                self.at_quota.append(member)
            self.assigned[member] = owned
        self.members_over_quota = over_left
        if not over_left:
            self.at_quota.clear()
        if not self._revoked_from and not distrusted:
            return self._ownership.free
        return sorted([*self._ownership.free, *self._revoked_from, *distrusted])

    def _trustworthy(self, member: str, owned: list[int], distrusted: list[int]) -> list[int]:
        kept = []
        for partition in owned:
            if self._racks.mismatch(member, partition):
                self._revoked_from[partition] = member
            elif partition in self._ownership.disputed:
                distrusted.append(partition)
            else:
                kept.append(partition)
        return kept

    def _cut(self, member: str, owned: list[int], size: int) -> list[int]:
        if len(owned) == size:
            return owned
        owned = sorted(owned, key=self._space.number_then_topic)
        self._revoked_from.update(dict.fromkeys(owned[size:], member))
        return owned[:size]

    def give(self, member: str, partitions: Sequence[int]) -> None:
        mine = self.assigned[member]
        if not mine:
            self.assigned[member] = partitions
        elif isinstance(mine, list):
            mine += partitions
        else:
            self.assigned[member] = [*mine, *partitions]
        self.grown.add(member)
        if self._revoked_from or self._ownership.disputed:
            for partition in partitions:
                if self._revoked_from.get(partition, member) != member or partition in self._ownership.disputed:
                    self.transferring[partition] = member

    def _deal(self, unassigned: Sequence[int]) -> None:
        """Fill the members below the quota in turn, then give one more each to members at the quota."""
        start = 0
        below = self.below_quota
        while below:
            missing = [self.quota - len(self.assigned[member]) for member in below]
            rounds, around = min(missing), len(below)
            end = start + rounds * around
            for i, member in enumerate(below):
                self.give(member, unassigned[start + i : end : around])
            self.at_quota += [member for member, count in zip(below, missing, strict=True) if count == rounds]
            below = [member for member, count in zip(below, missing, strict=True) if count > rounds]
            start = end
        for member, partition in zip(self.at_quota, unassigned[start:], strict=False):
            self.give(member, (partition,))


class _RackRoundRobin:
    """The round that only gives a partition to a member in one of its racks, within the same quotas."""

    def __init__(self, assignment: ConstrainedAssignment, racks: StickyRacks) -> None:
        self._assignment = assignment
        self._racks = racks
        self._below = assignment.below_quota
        self._below_in: dict[str, list[int]] = {}
        for position, member in enumerate(self._below):
            if member in racks.of_member:
                insort(self._below_in.setdefault(racks.of_member[member], []), position)
        self._at_quota_in: dict[str, deque[tuple[int, str]]] = {}
        self._at_quota_count = 0
        for member in assignment.at_quota:
            self._add_at_quota(member)
        self._cursor = 0

    def _add_at_quota(self, member: str) -> None:
        rack = self._racks.of_member.get(member)
        if rack is not None:
            self._at_quota_in.setdefault(rack, deque()).append((self._at_quota_count, member))
        self._at_quota_count += 1

    def deal(self, unassigned: Sequence[int]) -> list[int]:
        """Returns the partitions that found no member in their racks."""
        left = []
        for partition in unassigned:
            known = self._racks.of_partition[partition]
            member = self._next_below(known)
            if member is None:
                member = self._next_at_quota(known)
            if member is None:
                left.append(partition)
            else:
                self._assignment.give(member, (partition,))
        return left

    def _next_below(self, known: frozenset[str]) -> str | None:
        """The first member below its quota in one of the racks, going around from the cursor."""
        assignment = self._assignment
        best = None
        for rack in known:
            positions = self._below_in.get(rack)
            if positions:
                at = bisect_left(positions, self._cursor)
                position = positions[at] if at < len(positions) else positions[0]
                distance = (position - self._cursor) % len(self._below)
                if best is None or distance < best[0]:
                    best = distance, position, positions
        if best is None:
            return None
        _, position, positions = best
        member = self._below[position]
        self._cursor = (position + 1) % len(self._below)
        size = len(assignment.assigned[member]) + 1
        if size >= assignment.quota:
            positions.remove(position)
            assignment.below_quota = [m for m in assignment.below_quota if m != member]
            if assignment.members_over_quota:
                assignment.at_quota.append(member)
                self._add_at_quota(member)
        return member

    def _next_at_quota(self, known: frozenset[str]) -> str | None:
        """The first member at its quota in one of the racks, if members with one more are still wanted."""
        assignment = self._assignment
        if not assignment.members_over_quota:
            return None
        queues = [self._at_quota_in[rack] for rack in known if self._at_quota_in.get(rack)]
        if not queues:
            return None
        _, member = min(queues).popleft()
        assignment.at_quota.remove(member)
        assignment.members_over_quota -= 1
        if not assignment.members_over_quota:
            assignment.at_quota.clear()
        return member
