"""The transaction coordinator in the broker: requests to it, its answers to clients and to others in the broker.

Its log is coordinator_log.py's business, markers are transaction_markers.py's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kohort.broker.connection import Call
from kohort.broker.coordinator_log import CoordinatorLog
from kohort.broker.coordinator_service import CoordinatorService
from kohort.broker.find_coordinator import NO_NODE, TRANSACTION
from kohort.broker.internal_topics import ensure_offsets_topic, ensure_transactions_topic
from kohort.broker.table import Api
from kohort.broker.transaction_markers import MARKERS_AT_ONCE, Ending, MarkerWriter, PendingMarkers
from kohort.coordinator import expressions
from kohort.coordinator.effects import Request
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.coordinator.shard import Write
from kohort.coordinator.transactions import beginning, ending
from kohort.coordinator.transactions.asks import Enlist, ListShard, Marker
from kohort.coordinator.transactions.coordinator import TransactionCoordinator
from kohort.coordinator.transactions.records import TRANSACTIONS_TOPIC
from kohort.coordinator.transactions.shard_transactions import ShardTransactions, TransactionConfig
from kohort.coordinator.transactions.states import TransactionState
from kohort.coordinator.transactions.transaction import TV_0, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import AddOffsetsToTxnResponse, InitProducerIdResponse, ListTransactionsResponse
from kohort.records.compression import Compression

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.core import Core
    from kohort.broker.long_work import Steps
    from kohort.broker.topics import Topic

logger = logging.getLogger("kohort.transactions")

_STATES = frozenset(state.value for state in TransactionState)
_ON_THE_MOVE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION})
"""A marker is sent again; that is what happens when a broker dies."""


class Asker(Protocol):
    """Whoever asks from within the broker."""

    def answered(self, response: Any, now_ms: int) -> None: ...


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        transaction_state_log_num_partitions=config["transaction.state.log.num.partitions"],
        transaction_max_timeout_ms=config["transaction.max.timeout.ms"],
        transactional_id_expiration_ms=config["transactional.id.expiration.ms"],
        abort_timed_out_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        remove_expired_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )


class TransactionService(CoordinatorService):
    """A service of the core: see the contract at the top of core.py."""

    name = "transactions"
    key_type = TRANSACTION
    topic_name = TRANSACTIONS_TOPIC
    coordinator: TransactionCoordinator

    def __init__(self, core: Core) -> None:
        self._core = core
        config = core.config
        self.coordinator = TransactionCoordinator(transaction_config(config), core.topics.new_producer_id)
        self._effects = self.coordinator.effects
        self._log: CoordinatorLog[ShardTransactions] = CoordinatorLog(
            core,
            self.coordinator.runtime,
            Compression.NONE,
            config["transaction.state.log.load.buffer.size"],
            self._changed,
        )
        self.next_deadline = self._log.next_deadline
        self._writer = MarkerWriter(core)

    def apis(self) -> list[Api]:
        return [
            Api(22, "InitProducerId", 0, 5, self._init_producer_id),
            Api(24, "AddPartitionsToTxn", 0, 5, self._add_partitions),
            Api(25, "AddOffsetsToTxn", 0, 4, self._add_offsets),
            Api(26, "EndTxn", 0, 5, self._end),
            Api(27, "WriteTxnMarkers", 1, 2, self._write_markers),
            Api(65, "DescribeTransactions", 0, 0, self._describe),
            Api(66, "ListTransactions", 0, 2, self._list),
        ]

    # ---- requests of clients

    def _init_producer_id(self, core: Core, call: Call, message: Any, now_ms: int) -> Any:
        """An id that was never given out before, also after a crash; of a transactional id the one that it has."""
        request = Request(call, message, call.version)
        if (message.producer_id == -1) != (message.producer_epoch == -1):
            return beginning.refused(request, ErrorCode.INVALID_REQUEST)
        if message.transactional_id is None:
            try:
                return InitProducerIdResponse(producer_id=core.topics.new_producer_id(), producer_epoch=0)
            except KafkaError as error:
                return beginning.refused(request, error.code)
        if not message.transactional_id:
            return beginning.refused(request, ErrorCode.INVALID_REQUEST)
        if core.membership is not None and core.membership.peers.closed_door is not None:
            # The one refusal that no client tries again.
            logger.warning("%s asks for a transaction: %s", call.connection, core.membership.peers.closed_door)
            return beginning.refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not 0 < message.transaction_timeout_ms <= self.coordinator.config.transaction_max_timeout_ms:
            return beginning.refused(request, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return self._ask(request, now_ms)

    def _end(self, core: Core, call: Call, message: Any, now_ms: int) -> Any:
        request = Request(call, message, call.version)
        if not message.transactional_id:
            return ending.refused(request, ErrorCode.INVALID_REQUEST)
        return self._ask(request, now_ms)

    def _add_partitions(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps:
        from kohort.broker.gathered import AddedPartitions  # as below: few brokers are asked for transactions

        return AddedPartitions(core, call, message).begin(self)

    def _add_offsets(self, core: Core, call: Call, message: Any, now_ms: int) -> Any:
        if not message.transactional_id:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        if core.membership is not None and OFFSETS_TOPIC not in core.topics.by_name:
            # A marker goes to what this broker knows of: a topic that is not there yet would be taken for deleted.
            from kohort.broker.proposals import Asked  # of brokers on their own nobody pays for it

            core.membership.propose(Asked(core.membership, _make_offsets_topic, call, message), now_ms)
            return None
        groups: Any = core.service("groups")
        partition = (OFFSETS_TOPIC, groups.coordinator.partition_for(message.group_id) if groups is not None else 0)
        ask = Enlist(message.transactional_id, message.producer_id, message.producer_epoch, (partition,), False, TV_0)
        self.enlist(ask, _AddedOffsets(core, call, partition), now_ms)
        return None

    def _describe(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps:
        from kohort.broker.gathered import DescribedTransactions

        return DescribedTransactions(core, call, message).begin(self)

    def _list(self, core: Core, call: Call, message: Any, now_ms: int) -> Any:
        wanted = frozenset(message.state_filters)
        unknown = [state for state in message.state_filters if state not in _STATES]
        if message.transactional_id_pattern and expressions.problem(message.transactional_id_pattern):
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        ask = ListShard(
            wanted,
            frozenset(message.producer_id_filters),
            message.duration_filter,
            message.transactional_id_pattern or "",
        )
        from kohort.broker.gathered import ListedTransactions

        listed = ListedTransactions(core, call, unknown)
        error = self.coordinator.list(lambda: listed.request(ask), now_ms)
        if error:
            return ListTransactionsResponse(error_code=error)
        self._answer(now_ms)
        listed.finish_one()
        return None

    def _write_markers(self, core: Core, call: Call, message: Any, now_ms: int) -> Steps:
        return PendingMarkers(core, call).begin(self._writer, message.markers)

    # ---- requests of others in the broker

    def enlist(self, ask: Enlist, asker: Asker, now_ms: int) -> None:
        """The asker gets a code for each partition, at once or when it is stored."""
        self._ask(Request(asker, ask, 0), now_ms)

    def enlist_anywhere(self, ask: Enlist, asker: Asker, now_ms: int) -> None:
        """The same, whoever the coordinator of the transaction is."""
        node_id = self._leader_of(TRANSACTIONS_TOPIC, self.coordinator.partition_for(ask.transactional_id))
        if node_id in (self._core.node_id, NO_NODE.node_id):
            self.enlist(ask, asker, now_ms)
        else:
            from kohort.broker.transaction_peers import AskedElsewhere

            AskedElsewhere(ask, asker).send(self._core, node_id, now_ms)

    def _leader_of(self, topic: str, index: int) -> int:
        """Itself where there is no such partition: whoever is asked here says so."""
        found = self._core.topics.partition(topic, index)
        return self._core.node_id if found is None else self._core.leader_of(found)

    def ask(self, message: Any, asker: Asker, now_ms: int) -> None:
        self._ask(Request(asker, message, 0), now_ms)

    def _ask(self, request: Request, now_ms: int) -> None:
        try:
            self.coordinator.handle(request, now_ms)
        except Exception:
            self._log.on_time(now_ms)  # the shard is read again
            raise
        self._answer(now_ms)

    # ---- answers and markers

    def _answer(self, now_ms: int) -> None:
        """Answers first: what a producer was allowed is written before the marker that ends it."""
        coordinator, effects = self.coordinator, self._effects
        while effects.replies or coordinator.markers:
            replies, effects.replies = effects.replies, []
            for request, response in replies:
                if isinstance(request.call, Call):
                    self._core.reply(request.call, response)
                else:
                    request.call.answered(response, now_ms)
            markers = coordinator.markers[:]
            coordinator.markers.clear()
            for marker in markers:
                self._write(marker, now_ms)
        for rolled_back in coordinator.rollbacks:
            logger.warning(
                "aborted the transaction of %s (producer %d, epoch %d): %s",
                rolled_back.transactional_id,
                rolled_back.producer_id,
                rolled_back.producer_epoch,
                rolled_back.why,
            )
        coordinator.rollbacks.clear()

    def _write(self, marker: Marker, now_ms: int) -> None:
        """Into the logs of this broker, and to the leaders of the others."""
        steps = self._writing(marker)
        if next(steps, self) is not self:
            self._core.long_work.own.append(steps)

    def _writing(self, marker: Marker) -> Steps:
        end = Ending(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.committed, marker.version
        )
        done = _MarkerDone(self, marker)
        elsewhere: dict[int, list[TopicPartition]] = {}
        for number, partition in enumerate(marker.partitions, 1):
            node_id = self._leader_of(*partition)
            if node_id in (self._core.node_id, NO_NODE.node_id):
                self._writer.write(end, partition, done, self._core.topics.now_ms)
            else:
                elsewhere.setdefault(node_id, []).append(partition)
            if number % MARKERS_AT_ONCE == 0:
                yield
        for node_id, partitions in elsewhere.items():
            from kohort.broker.transaction_peers import MarkersElsewhere

            MarkersElsewhere(self._core, end, partitions, done).send(node_id, self._core.topics.now_ms)

    def marker_written(self, marker: Marker, partition: TopicPartition, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error = ErrorCode.NONE  # it was deleted, and with it what was written to it
        if error:
            level = logging.DEBUG if error in _ON_THE_MOVE else logging.WARNING
            logger.log(level, "the end of a transaction of %s cannot be written to %s-%d: %s",
                       marker.transactional_id, *partition, error.name)  # fmt: skip
        self.coordinator.marker_written(marker, partition, error, now_ms)

    def _changed(self, stored: Write[ShardTransactions] | None, now_ms: int) -> None:
        self._answer(now_ms)

    # ---- the life of the broker

    def collect(self, now_ms: int) -> None:
        if self.coordinator.runtime.open_shards:
            self._log.collect(now_ms)

    # ---- topics

    def _ensure_topic(self) -> Topic:
        return ensure_transactions_topic(self._core)

    def topic_created(self, topic: Topic, now_ms: int) -> None:
        if topic.name == TRANSACTIONS_TOPIC:
            self.coordinator.use_partitions(len(topic.partitions), topic.grown_from)
            self._log.lead(topic, now_ms)

    def topics_deleted(self, topics: dict[str, bytes], now_ms: int) -> None:
        if TRANSACTIONS_TOPIC in topics:
            self._log.resign(now_ms)


def _make_offsets_topic(core: Core, call: Call, message: Any, now_ms: int) -> Any:
    """For whoever wants offsets in a transaction before there was any group; the client asks again."""
    ensure_offsets_topic(core)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class _AddedOffsets:
    """One AddOffsetsToTxn until it is stored."""

    PRODUCER_FENCED_SINCE = 2

    def __init__(self, core: Core, call: Call, partition: TopicPartition) -> None:
        self._core = core
        self._call = call
        self._partition = partition

    def answered(self, errors: dict[TopicPartition, ErrorCode], now_ms: int) -> None:
        error = errors[self._partition]
        if error is ErrorCode.PRODUCER_FENCED and self._call.version < self.PRODUCER_FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        self._core.reply(self._call, AddOffsetsToTxnResponse(error_code=error))


class _MarkerDone:
    """Where news of a marker goes."""

    def __init__(self, service: TransactionService, marker: Marker) -> None:
        self._service = service
        self._marker = marker

    def marker_written(self, partition: TopicPartition, error: ErrorCode, now_ms: int) -> None:
        self._service.marker_written(self._marker, partition, error, now_ms)
