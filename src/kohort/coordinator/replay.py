"""The groups of one shard as the log tells them: the writer of hard state, live and at load. It answers nobody.

Offsets are the same for all groups; what other records do is known where their kind of groups is (`kinds.APPLY`).

While a shard loads, records are kept by key, the last one winning, and only what is left is decoded and applied; so a
log full of overwritten commits loads as fast as it can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.coordinator import events, expiry
from kohort.coordinator.causes import Cause, CauseKind
from kohort.coordinator.context import Context, CoordinatorConfig, Topics
from kohort.coordinator.effects import Decision, Effects
from kohort.coordinator.events import Story
from kohort.coordinator.group import Group
from kohort.coordinator.kinds import APPLY, KINDS, SimpleGroup
from kohort.coordinator.records import (
    Change,
    OffsetAndMetadata,
    OffsetCommit,
    TransactionalCommit,
    TransactionEnd,
    UnknownRecord,
    UnreadableRecord,
    abs_java_hash,
    decode,
)
from kohort.coordinator.shard import Damage
from kohort.coordinator.timers import Deadline, TimerKind, TimerQueue
from kohort.protocol.errors import ErrorCode

LARGEST_KEY = 34_000  # of a commit, with what comes to its value beside the metadata
PartitionOfGroup = tuple[str, str, int]


class ShardGroups(Context):
    """`shard.State` for groups: what runtime.py asks of them."""

    __slots__ = ("_expiry", "_latest", "_pending", "_restoring", "_stories", "homing", "parting", "skipped", "strays")

    def __init__(
        self,
        partition: int,
        config: CoordinatorConfig,
        topics: Topics,
        new_uuid: Callable[[], str],
        timers: TimerQueue,
        effects: Effects,
        previous: ShardGroups | None = None,
    ) -> None:
        super().__init__(partition, config, topics, new_uuid, timers, effects)
        self._latest: dict[bytes, tuple[bytes, int]] | None = {}  # while loading: key -> value, offset of the record
        self._restoring: list[Group] | None = None  # groups whose soft state is yet to be made from what was read
        self._pending: dict[int, dict[PartitionOfGroup, OffsetAndMetadata]] = {}  # by producer id
        self._expiry = Deadline(TimerKind.EXPIRE_OFFSETS, "")
        self.skipped: dict[str, int] = {}  # why -> how many records
        self.strays: dict[str, Group] = {}  # whose name belongs to another partition now: not served here
        self.homing: dict[str, int] = {}  # those on their way there, and to which incarnation of it
        self.parting = 0  # how many writes that end something of groups of elsewhere are not stored
        # What happened to a group is no state of it, and is told on after its shard was loaded again.
        self._stories: dict[str, Story] = {} if previous is None else previous._stories

    # ---- loading

    def read(self, key: bytes, value: bytes | None, offset: int, producer_id: int = -1) -> None:
        latest = self._latest
        if latest is None or producer_id >= 0:
            # Transactions depend on the order of the log: from the first one on, every record is applied as it comes.
            self._apply_latest(None)
            self._apply_bytes(key, value, offset, producer_id)
        elif value is None:
            latest.pop(key, None)
        else:
            latest[key] = (value, offset)

    def read_all(self, offsets: list[int], keys: list[bytes], values: list[bytes | None]) -> None:
        if self._latest is None or None in values:
            for key, value, offset in zip(keys, values, offsets, strict=True):
                self.read(key, value, offset)
        else:
            self._latest.update(zip(keys, zip(values, offsets, strict=True), strict=True))  # type: ignore[arg-type]

    def read_marker(self, producer_id: int, committed: bool) -> None:
        self._apply_latest(None)
        self._end_transaction(producer_id, committed)

    def settle(self, limit: int) -> bool:
        left = self._apply_latest(limit)
        if left <= 0:
            return False
        if self._restoring is None:
            self._restoring = list(self.groups.values())
        while self._restoring:
            if left <= 0:
                return False
            left -= 1
            self._restoring.pop().restore()
        return True

    def _apply_latest(self, limit: int | None) -> int:
        """Applies the records that are left, `limit` of them at most; how many more it might."""
        latest = self._latest
        left = limit if limit is not None else len(latest or ()) + 1
        while latest and left:
            left -= 1
            key, (value, offset) = latest.popitem()
            self._apply_bytes(key, value, offset, -1)
        if not latest:
            self._latest = None
        return left

    def loaded(self, max_append_bytes: int) -> list[Decision]:
        self.max_append_bytes = max_append_bytes
        self.safe_commits = max_append_bytes // (LARGEST_KEY + 3 * self.config.offset_metadata_max_bytes)
        decisions = []
        self.set_strays_apart()
        for group in self.groups.values():
            group.story = self._stories.pop(group.group_id, group.story)
            if (decision := KINDS[type(group)].loaded(self, group)) is not None:
                decisions.append(decision)
        self._stories.clear()
        self.timers.set(self._expiry, self.now_ms + self.config.offsets_retention_check_interval_ms)
        return decisions

    def set_strays_apart(self) -> list[Group]:
        """Nobody looks for them here; homing.py takes them to where they are looked for."""
        count = self.config.offsets_topic_num_partitions
        strays = [group for name, group in self.groups.items() if abs_java_hash(name) % count != self.partition]
        for group in strays:
            self.strays[group.group_id] = self.groups.pop(group.group_id)
        return strays

    def close(self, error: ErrorCode, *, moved: bool) -> None:
        cause = Cause(CauseKind.MOVED) if moved else Cause(CauseKind.NOT_STORED, error=error.name)
        groups, self.groups = self.groups, {}
        for group in groups.values():
            KINDS[type(group)].close(self, group, error, cause)
            self.event(group, events.GroupUnloaded, cause=cause)
            self._stories[group.group_id] = group.story

    # ---- time and the log

    def due(self, deadline: Deadline) -> Decision | None:
        if deadline is self._expiry:
            self.timers.set(self._expiry, self.now_ms + self.config.offsets_retention_check_interval_ms)
            return expiry.expire(self)
        group = self.groups.get(deadline.group_id)
        return None if group is None else KINDS[type(group)].due(self, group, deadline)

    def stored(self, then: Any, error: ErrorCode) -> Decision | None:
        decision: Decision | None = then.stored(self, error)
        return decision

    # ---- changes

    def apply(self, changes: Sequence[Change | TransactionalCommit | TransactionEnd], offset: int) -> None:
        for change in changes:
            if type(change) is OffsetCommit:
                self._apply_offset(change, offset)
            elif isinstance(change, TransactionalCommit):
                self._apply_transactional(change.commit, offset, change.producer_id)
            elif isinstance(change, TransactionEnd):
                self._end_transaction(change.producer_id, change.committed)
            else:
                self._apply_own(change)
            offset += 1

    def _apply_bytes(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            change = decode(key, value)
        except UnreadableRecord as unreadable:
            raise Damage(offset, str(unreadable)) from unreadable
        except UnknownRecord as unknown:
            why = str(unknown)
            self.skipped[why] = self.skipped.get(why, 0) + 1
            return
        if not isinstance(change, OffsetCommit):
            self._apply_own(change)
        elif producer_id < 0:
            self._apply_offset(change, offset)
        else:
            self._apply_transactional(change, offset, producer_id)

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = SimpleGroup(group_id, self.now_ms)
        return group

    def _apply_offset(self, change: OffsetCommit, offset: int) -> None:
        value = change.value
        if value is None:
            return self._forget_offset(change)
        group = self.groups.get(change.group_id)
        if group is None:
            group = self._group(change.group_id)
        value.record_offset = offset
        committed = group.offsets.get(change.topic)
        if committed is None:
            committed = group.offsets[change.topic] = {}
        committed[change.partition] = value

    def _forget_offset(self, change: OffsetCommit) -> None:
        group = self.groups.get(change.group_id) or self.strays.get(change.group_id)
        if group is None:
            return
        committed = group.offsets.get(change.topic)
        if committed is not None:
            committed.pop(change.partition, None)
            if not committed:
                del group.offsets[change.topic]
        open_transactions = group.open_transactions
        if open_transactions is not None:
            for producer_id in open_transactions.pop((change.topic, change.partition), ()):
                self._pending.get(producer_id, {}).pop((change.group_id, change.topic, change.partition), None)
            group.open_transactions = open_transactions or None

    def _apply_transactional(self, change: OffsetCommit, offset: int, producer_id: int) -> None:
        value = change.value
        if value is None:
            return self._forget_offset(change)
        value.record_offset = offset
        group = self._group(change.group_id)
        where = (change.group_id, change.topic, change.partition)
        self._pending.setdefault(producer_id, {})[where] = value
        if group.open_transactions is None:
            group.open_transactions = {}
        group.open_transactions.setdefault((change.topic, change.partition), set()).add(producer_id)

    def has_pending(self, producer_id: int) -> bool:
        return producer_id in self._pending

    def _end_transaction(self, producer_id: int, committed: bool) -> None:
        for (group_id, topic, partition), value in self._pending.pop(producer_id, {}).items():
            group = self.strays.get(group_id) or self._group(group_id)
            open_transactions = group.open_transactions
            if open_transactions is not None:
                producers = open_transactions.get((topic, partition), set())
                producers.discard(producer_id)
                if not producers:
                    open_transactions.pop((topic, partition), None)
                group.open_transactions = open_transactions or None
            existing = group.offsets.get(topic, {}).get(partition)
            # A plain commit that came later in the log wins, whatever compaction has made of the order since.
            if committed and (existing is None or value.record_offset > existing.record_offset):
                group.offsets.setdefault(topic, {})[partition] = value

    def _apply_own(self, change: Change) -> None:
        """A record that belongs to a kind of groups."""
        APPLY[type(change)](self, change)
