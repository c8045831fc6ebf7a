"""What the sticky assignors know of racks, by member and by partition id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kohort.assignors.partition_space import PartitionSpace
from kohort.assignors.racks import member_racks, partition_racks, racks_matter
from kohort.assignors.types import ClusterMetadata, Subscription


class StickyRacks:
    """`of_member` is empty where racks do not matter; then no pair of member and partition is a mismatch."""

    def __init__(
        self, space: PartitionSpace, metadata: ClusterMetadata, subscriptions: Mapping[str, Subscription]
    ) -> None:
        self.of_member: dict[str, str] = {}
        self.of_partition: list[frozenset[str]] = []
        self._local_members: list[int] | None = None
        racks = member_racks(subscriptions)
        if not racks:
            return
        for topic in space.topics:
            self.of_partition += partition_racks(metadata, topic)
        members_in = Counter(racks.values())
        local = {known: sum(members_in[rack] for rack in known) for known in set(self.of_partition)}
        self._local_members = [local[known] for known in self.of_partition]
        if racks_matter(members_in, local):
            self.of_member = racks

    def mismatch(self, member: str, partition_id: int) -> bool:
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition[partition_id]

    def fewest_local_members_first(self, ids: Sequence[int]) -> Sequence[int]:
        """The partitions that are hardest to place in a rack are placed first."""
        return ids if self._local_members is None else sorted(ids, key=self._local_members.__getitem__)
