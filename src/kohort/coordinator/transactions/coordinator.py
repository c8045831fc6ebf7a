"""The transaction coordinator: which shard a request belongs to, and which handler decides. No decision is taken here.

    coordinator.handle(request, now_ms)     answers and loads gather in `coordinator.effects`, what is to be stored in
                                            `coordinator.runtime`, markers to be written in `coordinator.markers`
    coordinator.marker_written(...)         one partition of a marker is done

One owner, no locks, no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.coordinator.effects import Decision, Request
from kohort.coordinator.records import partition_for
from kohort.coordinator.runtime import Runtime
from kohort.coordinator.shard import UNAVAILABLE, Life, Shard
from kohort.coordinator.timers import TimerQueue
from kohort.coordinator.transactions import admin, beginning, ending, enlisting
from kohort.coordinator.transactions.asks import DescribeOne, Enlist, ListShard, Marker, Rollback
from kohort.coordinator.transactions.shard_transactions import ShardTransactions, TransactionConfig
from kohort.coordinator.transactions.transaction import TopicPartition, Transaction
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import EndTxnRequest, InitProducerIdRequest

ACTIVE = Life.ACTIVE
TransactionShard = Shard[ShardTransactions]
Handler = Callable[[ShardTransactions, Request], Decision | None]

_HANDLERS: dict[type, Handler] = {
    InitProducerIdRequest: beginning.init_producer_id,
    Enlist: enlisting.enlist,
    EndTxnRequest: ending.end,
    DescribeOne: admin.describe,
}


def refusal(request: Request, error: ErrorCode) -> Any:
    """What a request answers when it cannot be served, or what its answer rests on could not be stored."""
    message = request.message
    if isinstance(message, Enlist):
        return enlisting.all_with(message, error)
    if isinstance(message, EndTxnRequest):
        return ending.refused(request, error)
    if isinstance(message, DescribeOne):
        return admin.described_error(message.transactional_id, error)
    if isinstance(message, ListShard):
        return error
    return beginning.refused(request, error)


class TransactionCoordinator:
    def __init__(self, config: TransactionConfig, new_producer_id: Callable[[], int]) -> None:
        self.config = config
        self._new_producer_id = new_producer_id
        self.runtime: Runtime[ShardTransactions] = Runtime(
            self._new_state, lambda request, response, error: refusal(request, error), config.append_timeout_ms
        )
        self.effects = self.runtime.effects
        self.markers: list[Marker] = []
        self.rollbacks: list[Rollback] = []
        self.is_active = False
        self._scattered = True  # whether an id may be elsewhere than where its name belongs
        self._counts_before: list[int] = []  # of partitions, before the topic grew: ids may be where those say
        self.runtime.shards_changed = self._shards_changed

    def _new_state(self, partition: int, timers: TimerQueue, previous: ShardTransactions | None) -> ShardTransactions:
        return ShardTransactions(partition, self.config, self._new_producer_id, timers, self.markers, self.rollbacks)

    # ---- in

    def start(self) -> None:
        self.is_active = True

    def stop(self) -> None:
        """Whoever comes now is told that nobody is here; what is under way comes to its end."""
        self.is_active = False

    def handle(self, request: Request, now_ms: int) -> None:
        shard = self._shard(request.message.transactional_id)
        if isinstance(shard, ErrorCode):
            self.effects.replies.append((request, refusal(request, shard)))
            return
        shard.state.now_ms = now_ms
        try:
            self.runtime.decided(shard, _HANDLERS[type(request.message)](shard.state, request))
        except Exception:
            self.runtime.crashed(shard, now_ms)
            raise

    def list(self, requests: Callable[[], Request], now_ms: int) -> ErrorCode:
        """Ask every shard, each with a request of its own; an error where not all of them are there."""
        shards = list(self.runtime.shards.values())
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if any(shard.life is Life.LOADING for shard in shards):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for shard in shards:
            if shard.life is ACTIVE:
                shard.state.now_ms = now_ms
                self.runtime.decided(shard, admin.list_transactions(shard.state, requests()))
        return ErrorCode.NONE

    def marker_written(self, marker: Marker, partition: TopicPartition, error: ErrorCode, now_ms: int) -> None:
        shard = self.runtime.shards.get(marker.shard_partition)
        if shard is None or shard.incarnation != marker.incarnation or shard.life is not ACTIVE:
            return
        shard.state.now_ms = now_ms
        self.runtime.decided(shard, shard.state.marker_written(marker, partition, error))

    # ---- where to

    def use_partitions(self, count: int, grown_from: Sequence[int] = ()) -> None:
        """How many the topic has now, and had before. An id that is known stays where it is, a new one goes where its
        name belongs."""
        self._counts_before = list(grown_from)
        self.config.transaction_state_log_num_partitions = count
        self._shards_changed()

    def _shards_changed(self) -> None:
        self._scattered = True

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self.config.transaction_state_log_num_partitions)

    def _shard(self, transactional_id: str) -> TransactionShard | ErrorCode:
        if not self.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self.runtime.shards.get(self.partition_for(transactional_id))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        if shard.life is not ACTIVE:
            return UNAVAILABLE[shard.life]
        if self._scattered and transactional_id not in shard.state.transactions:
            return self._wherever(transactional_id, shard)
        return shard

    def _wherever(self, transactional_id: str, home: TransactionShard) -> TransactionShard | ErrorCode:
        """In a topic that has grown an id may be where it belonged before. Until all is read nobody can tell, and where
        nothing can be read, or another broker leads, an id that seems new would begin without its fence."""
        shards = self.runtime.shards
        if any(shard.life is Life.LOADING for shard in shards.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._scattered = bool(self._counts_before)
        before = [partition_for(transactional_id, count) for count in self._counts_before]
        if any(index not in shards for index in before):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for shard in (shards[index] for index in before):
            if shard.life is not ACTIVE:
                return UNAVAILABLE[shard.life]
            if transactional_id in shard.state.transactions:
                return shard
        return home

    # ---- to look at

    @property
    def transactions(self) -> dict[str, Transaction]:
        """All that are served here. Made for the question: for tools, not for requests."""
        return {
            name: transaction
            for shard in self.runtime.shards.values()
            if shard.life is ACTIVE
            for name, transaction in shard.state.transactions.items()
        }
