"""Replay: the only writer of hard state, live and at load. It decides nothing and answers nobody.

A shard is one partition of `__consumer_offsets`. While it loads, records are kept by key, the last one winning, and
only what is left is decoded and applied; so a log full of overwritten commits loads as fast as it can be read.
"""

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.states import DEAD
from kohort.coordinator.records import (
    Change,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetCommit,
    UnknownRecord,
    decode,
)

PartitionOfGroup = tuple[str, str, int]


class Shard:
    """One partition: its groups (shared with the coordinator once loaded) and its open transactions."""

    __slots__ = (
        "epoch",
        "groups",
        "is_loading",
        "latest",
        "partition",
        "pending",
        "records_read",
        "restoring",
        "skipped",
    )

    def __init__(self, partition: int, epoch: int, groups: dict[str, Group]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.groups = groups
        self.is_loading = False
        self.latest: dict[bytes, tuple[bytes, int]] | None = None  # while loading: key -> value, offset of the record
        self.restoring: list[Group] | None = None  # groups whose soft state is yet to be made from what was read
        self.pending: dict[int, dict[PartitionOfGroup, OffsetAndMetadata]] = {}  # by producer id
        self.records_read = 0
        self.skipped: dict[str, int] = {}  # why -> how many records

    # ---- loading

    def start_loading(self) -> None:
        self.is_loading = True
        self.latest = {}

    def read(self, key: bytes, value: bytes | None, now_ms: int, offset: int, producer_id: int) -> None:
        self.records_read += 1
        latest = self.latest
        if latest is None or producer_id >= 0:
            # Transactions depend on the order of the log: from the first one on, every record is applied as it comes.
            self.settle(now_ms)
            self.apply_bytes(key, value, now_ms, offset, producer_id)
        elif value is None:
            latest.pop(key, None)
        else:
            latest[key] = (value, offset)

    def settle(self, now_ms: int) -> None:
        """Applies the records that are left."""
        self.finish(now_ms, None, restore=False)

    def finish(self, now_ms: int, limit: int | None = None, restore: bool = True) -> bool:
        """Applies what is left of the records, then restores the groups, `limit` of them at most; True when done."""
        steps = 0
        latest = self.latest
        while latest:
            if limit is not None and steps >= limit:
                return False
            steps += 1
            key, (value, offset) = latest.popitem()
            self.apply_bytes(key, value, now_ms, offset)
        self.latest = None
        if not restore:
            return True
        if self.restoring is None:
            self.restoring = [group for group in self.groups.values() if group.stored is not None]
        while self.restoring:
            if limit is not None and steps >= limit:
                return False
            steps += 1
            self.restoring.pop().restore()
        return True

    # ---- changes

    def apply(self, change: Change, now_ms: int, offset: int = -1, producer_id: int = -1) -> None:
        if isinstance(change, OffsetCommit):
            if producer_id >= 0:
                self._apply_transactional(change, now_ms, offset, producer_id)
            else:
                self.apply_offset(change, now_ms, offset)
        else:
            self._apply_group(change, now_ms)

    def apply_bytes(
        self, key: bytes, value: bytes | None, now_ms: int, offset: int = -1, producer_id: int = -1
    ) -> None:
        try:
            change = decode(key, value)
        except UnknownRecord as unknown:
            why = str(unknown)
            self.skipped[why] = self.skipped.get(why, 0) + 1
            return
        if producer_id < 0 and type(change) is OffsetCommit:
            self.apply_offset(change, now_ms, offset)
        else:
            self.apply(change, now_ms, offset, producer_id)

    def _group(self, group_id: str, now_ms: int) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.partition, now_ms)
        return group

    def apply_offset(self, change: OffsetCommit, now_ms: int, offset: int) -> None:
        value = change.value
        if value is None:
            return self._forget_offset(change)
        group = self.groups.get(change.group_id)
        if group is None:
            group = self._group(change.group_id, now_ms)
        value.record_offset = offset
        committed = group.offsets.get(change.topic)
        if committed is None:
            committed = group.offsets[change.topic] = {}
        committed[change.partition] = value

    def _forget_offset(self, change: OffsetCommit) -> None:
        group = self.groups.get(change.group_id)
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
                self.pending.get(producer_id, {}).pop((change.group_id, change.topic, change.partition), None)
            group.open_transactions = open_transactions or None

    def _apply_transactional(self, change: OffsetCommit, now_ms: int, offset: int, producer_id: int) -> None:
        value = change.value
        if value is None:
            return self._forget_offset(change)
        value.record_offset = offset
        group = self._group(change.group_id, now_ms)
        where = (change.group_id, change.topic, change.partition)
        self.pending.setdefault(producer_id, {})[where] = value
        if group.open_transactions is None:
            group.open_transactions = {}
        group.open_transactions.setdefault((change.topic, change.partition), set()).add(producer_id)

    def end_transaction(self, producer_id: int, committed: bool, now_ms: int) -> None:
        for (group_id, topic, partition), value in self.pending.pop(producer_id, {}).items():
            group = self._group(group_id, now_ms)
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

    def _apply_group(self, change: GroupMetadata, now_ms: int) -> None:
        if change.value is not None:
            self._group(change.group_id, now_ms).stored = change.value
            return
        group = self.groups.get(change.group_id)
        if group is None:
            return
        group.stored = None
        if group.offsets or group.open_transactions:
            return  # commits that came after the decision to remove it: it lives on as a simple group
        del self.groups[change.group_id]
        group.transition_to(DEAD, now_ms)
