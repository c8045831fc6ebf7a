"""What a consumer can be asked about topics and offsets without reading them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client import lookup_messages as lookups
from kohort.client.cluster import Asking
from kohort.client.config import Config
from kohort.client.listing import list_offsets
from kohort.client.metadata import PartitionInfo
from kohort.client.types import OffsetAndTimestamp, TopicPartition


class Questions:
    config: Config

    def _cluster(self) -> Asking:
        raise NotImplementedError

    def assignment(self) -> frozenset[TopicPartition]:
        raise NotImplementedError

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        raise NotImplementedError

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp (milliseconds); None where there is none."""
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ValueError("timestamps must not be negative; beginning_offsets() and end_offsets() give the ends")
        return await self._list(timestamps, timeout)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._ends(partitions, lookups.EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._ends(partitions, lookups.LATEST, timeout)

    async def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        found = await self._list({TopicPartition(*tp): which for tp in partitions}, timeout)
        return {tp: listed.offset if listed is not None else 0 for tp, listed in found.items()}

    async def _list(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        timeout_ms = self.config.default_api_timeout_ms if timeout is None else int(timeout * 1000)
        read_committed = self.config.isolation_level == "read_committed"
        return await list_offsets(self._cluster(), timestamps, read_committed, timeout_ms)

    async def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Records between the position and the end of each partition (default: all assigned), never negative."""
        wanted = [TopicPartition(*tp) for tp in partitions] or sorted(self.assignment())
        ends = await self.end_offsets(wanted)
        return {tp: max(0, ends[tp] - await self.position(tp)) for tp in wanted}

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        found = await self._cluster().topics([topic])
        return found[topic].partitions if topic in found else []
