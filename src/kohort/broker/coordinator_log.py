"""A coordinator's runtime and its topic: shards are loaded from the log, what they decide is appended to it.

What the decisions of a turn want stored becomes one batch per partition; when that is in the log, or has failed, the
runtime is told. Nothing here knows what the records are about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic

from kohort.broker.appends import Append
from kohort.broker.shard_loading import ShardLoader
from kohort.coordinator.effects import Decision
from kohort.coordinator.shard import Life, S, Shard, Write
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import build_key_values, read_header
from kohort.records.compression import Compression
from kohort.storage.producers import COORDINATOR

if TYPE_CHECKING:
    from kohort.broker.core import Core
    from kohort.broker.topics import Partition, Topic
    from kohort.coordinator.runtime import Runtime

logger = logging.getLogger("kohort.groups")

_PRODUCER = attrgetter("producer")


class CoordinatorLog(Generic[S]):
    def __init__(
        self,
        core: Core,
        runtime: Runtime[S],
        compression: Compression,
        load_buffer_bytes: int,
        changed: Callable[[Write[S] | None, int], None],
    ) -> None:
        """`changed` is called when answers may have become ready, with the write that is stored if that is why."""
        self._core = core
        self._runtime = runtime
        self._compression = compression
        self._changed = changed
        self._loader = ShardLoader(runtime, load_buffer_bytes, core.run_elsewhere)
        self._partitions: dict[int, Partition] = {}
        self._not_ready: list[Shard[S]] = []  # led, but their log is still on its way from the store
        self._now_ms = 0
        self._unread: set[int] = set()  # partitions whose log did not come from the store: damaged there

    # ---- which partitions

    def lead(self, topic: Topic, now_ms: int) -> None:
        """All partitions that this broker leads, or is about to, and none that it does not."""
        self._now_ms = now_ms
        for partition in topic.partitions:
            index, shard = partition.index, self._runtime.shards.get(partition.index)
            if index in self._unread and partition.leads:  # mended
                self._runtime.resign(index, now_ms)
                shard = None
            if self._core.leader_of(partition) != self._core.node_id:
                self._unread.discard(index)
                self._runtime.resign(index, now_ms)
            elif shard is None or shard.epoch != partition.leader_epoch or self._partitions.get(index) is not partition:
                self._unread.discard(index)
                self._partitions[index] = partition
                self._runtime.lead(index, partition.leader_epoch, now_ms)
        self.begin_loads(now_ms)
        self._changed(None, now_ms)

    def resign(self, now_ms: int) -> None:
        """All of them."""
        self._partitions.clear()
        self._unread.clear()
        for index in list(self._runtime.shards):
            self._runtime.resign(index, now_ms)
        self._changed(None, now_ms)

    @property
    def is_loading(self) -> bool:
        return not self._loader.is_idle

    def begin_loads(self, now_ms: int) -> None:
        """Of the shards that have just been led, or have lost their state."""
        loads, self._runtime.effects.loads = self._not_ready + self._runtime.effects.loads, []
        self._not_ready = []
        for shard in loads:
            if shard.life is Life.LOADING:
                partition = self._partitions[shard.partition]
                if partition.leads:
                    self._loader.start(shard, partition, now_ms)
                elif partition.damage:
                    self._unread.add(shard.partition)
                    self._runtime.load_failed(shard, shard.incarnation, partition.damage)
                    logger.error("%s is not served: %s", partition, partition.damage)
                else:
                    self._not_ready.append(shard)

    # ---- time

    def on_time(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._loader.step(now_ms)
        self._runtime.on_time(now_ms)
        crashes, self._runtime.effects.crashes = self._runtime.effects.crashes, []
        for error in crashes:
            logger.error("a deadline failed, its partition is loaded again", exc_info=error)
        self.begin_loads(now_ms)
        self._changed(None, now_ms)

    def next_deadline(self) -> int | None:
        first = self._runtime.next_deadline()
        if self._loader.is_idle:
            return first
        other = self._loader.next_deadline(self._now_ms)
        return other if first is None or other < first else first

    # ---- records

    def collect(self, now_ms: int) -> None:
        """One batch per partition of what the turn wants stored."""
        for write in self._runtime.take_writes(now_ms):
            partition = self._partitions[write.shard.partition]
            batches = self._batches(write.decisions, partition.log.config.max_message_bytes, now_ms)
            if batches is None:
                self._stored(write, ErrorCode.RECORD_LIST_TOO_LARGE, now_ms)
                continue
            write.parts = len(batches)
            for data in batches:
                self._core.append(Append(partition, data, read_header(data), self, write, COORDINATOR))

    def _batches(self, decisions: list[Decision], limit: int, now_ms: int) -> list[bytes] | None:
        """In the order of the decisions; what belongs to a transaction gets a batch of its own."""
        if len(decisions) == 1 and decisions[0].producer is None:
            return self._plain_batches(decisions, limit, now_ms)
        batches: list[bytes] = []
        for producer, run in groupby(decisions, _PRODUCER):
            if producer is None:
                made = self._plain_batches(list(run), limit, now_ms)
            else:
                made = self._transactional_batches(run, limit, now_ms)
            if made is None:
                return None
            batches += made
        return batches

    def _transactional_batches(self, run: Iterable[Decision], limit: int, now_ms: int) -> list[bytes] | None:
        batches = [
            build_key_values(decision.records, now_ms, self._compression, decision.producer, decision.control)
            for decision in run
        ]
        return batches if all(len(data) <= limit for data in batches) else None

    def _plain_batches(self, decisions: list[Decision], limit: int, now_ms: int) -> list[bytes] | None:
        """A decision is divided only where it may be; None where that is not enough."""
        if len(decisions) == 1:
            pairs = decisions[0].records
        else:
            pairs = [pair for decision in decisions for pair in decision.records]
        data = build_key_values(pairs, now_ms, self._compression)
        if len(data) <= limit:
            return [data]
        if len(decisions) > 1:
            halves = _halves(decisions)
        elif decisions[0].divisible and len(pairs) > 1:
            halves = [[Decision(half, divisible=True)] for half in _halves(pairs)]
        else:
            return None
        batches: list[bytes] = []
        for half in halves:
            made = self._plain_batches(half, limit, now_ms)
            if made is None:
                return None
            batches += made
        return batches

    def appended(self, append: Append, now_ms: int) -> None:
        """In the log, or not. Whatever follows from it, the turn goes on."""
        write: Write[S] = append.purpose
        try:
            self._stored(write, append.error, now_ms)
        except Exception:
            logger.exception("what was stored could not be answered, %s is loaded again", append.partition)
            self._runtime.crashed(write.shard, now_ms)
            self.begin_loads(now_ms)
            self._changed(None, now_ms)

    def _stored(self, write: Write[S], error: ErrorCode, now_ms: int) -> None:
        if error and write.incarnation == write.shard.incarnation:
            partition = self._partitions[write.shard.partition]
            then = "what was decided is void, it is loaded again" if write.applied else "groups go on without"
            logger.error(
                "%s: %d decisions could not be stored (%s); %s", partition, len(write.decisions), error.name, then
            )
        if self._runtime.stored(write, error, now_ms):
            if error:
                self.begin_loads(now_ms)
            self._changed(None if error else write, now_ms)
        else:
            self._loader.look_again(now_ms)
            self._changed(None, now_ms)


def _halves(whole: list[Any]) -> list[list[Any]]:
    middle = len(whole) // 2
    return [whole[:middle], whole[middle:]]
