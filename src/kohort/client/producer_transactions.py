"""The requests of a transactional producer over asyncio: InitProducerId, enlisting, offsets, EndTxn, with retries.

TV1, which every broker since 0.11 knows: partitions are enlisted before they are written to, and nothing is on its way
any more when a transaction is ended, so that no late record can enter the next one.
TV2 (KIP-890), where the cluster's transaction.version says so: partitions are enlisted by being written to, and every
end raises the epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.assignors.types import ConsumerGroupMetadata
from kohort.client.batching import ProducerId
from kohort.client.cluster import Cluster, Coordinator
from kohort.client.errors import KafkaTimeoutError, TransactionAbortableError
from kohort.client.metadata import Node
from kohort.client.transactions import Step, Transaction, end_version
from kohort.client.types import OffsetAndMetadata, OpenTransaction, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

if TYPE_CHECKING:
    from kohort.client.producer_async import AsyncProducer

GROUP, TRANSACTION = 0, 1
FEATURE, TV2 = "transaction.version", 2
TV1_OFFSETS, TV2_OFFSETS = 3, 5
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
_LOOK_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
     ErrorCode.REQUEST_TIMED_OUT}
)  # fmt: skip
_AGAIN = _LOOK_AGAIN | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


class Transactions:
    """Of one AsyncProducer with a transactional.id."""

    def __init__(self, producer: AsyncProducer, transactional_id: str) -> None:
        self._producer = producer
        self.state = Transaction(transactional_id)
        self._id = ProducerId()
        self._coordinators: dict[tuple[int, str], Coordinator] = {}
        self._nothing_is_asked = asyncio.Event()  # whether no partition is being enlisted
        self._nothing_is_asked.set()
        self._is_tv2 = False

    # -- for users, by way of the producer ----------------------------------------------------------------------------

    async def begin(self) -> None:
        self._producer.start()
        self.state.require("begin()", Step.IDLE, Step.HANDED_OVER)
        if self._id.producer_id < 0 or self.state.step is Step.HANDED_OVER:
            await self._init()
        self.state.become(Step.OPEN)

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata | str) -> None:
        self.state.require("send_offsets()", Step.OPEN)
        member = ConsumerGroupMetadata(group, -1, "") if isinstance(group, str) else group
        if not offsets:
            return
        try:
            if not self._is_tv2:
                await self._add_offsets(member.group_id)
            self.state.has_offsets = True
            commit = _offset_commit(self.state.transactional_id, self._id, member, offsets)
            codes = lambda answer: [p.error_code for t in answer.topics for p in t.partitions]  # noqa: E731
            version = TV2_OFFSETS if self._is_tv2 else TV1_OFFSETS
            await self._at(GROUP, commit, "send_offsets()", codes, version, member.group_id)
        except KafkaError as error:
            self.state.failed(error)
            raise

    async def _add_offsets(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.state.transactional_id,
            producer_id=self._id.producer_id,
            producer_epoch=self._id.epoch,
            group_id=group_id,
        )
        await self._at(TRANSACTION, request, "send_offsets()", lambda answer: [answer.error_code], 3)

    async def commit(self) -> None:
        self.state.require("commit()", Step.OPEN, Step.COMMITTING)
        if self.state.step is Step.OPEN:
            await self._producer._flush(None)
            self.state.require("commit()", Step.OPEN)
        self.state.become(Step.COMMITTING)
        await self._end(True, "commit()")
        self._ended()

    async def abort(self) -> None:
        """What is not stored yet is dropped; nothing of the transaction will be read."""
        self.state.require("abort()", Step.OPEN, Step.BROKEN, Step.ABORTING)
        was_broken = self.state.step is not Step.OPEN
        self.state.become(Step.ABORTING)
        producer = self._producer
        with producer._lock:
            dropped = producer._batching.drop_queued(
                TransactionAbortableError("the transaction was aborted before this record was stored")
            )
        producer._settle(dropped)
        await producer._flush(None)
        producer._unseen.clear()
        await self._nothing_is_asked.wait()  # what is enlisted after the end would be in the next transaction
        self.state.require("abort()", Step.ABORTING)
        await self._end(False, "abort()", even_empty=self._is_tv2 and was_broken)
        if not self._is_tv2 and (was_broken or dropped):
            await self._init(keep=True)  # nobody knows which numbers the broker has seen: begin anew (KIP-360)
        self._ended()

    async def hand_over(self) -> OpenTransaction | None:
        self.state.require("hand_over()", Step.OPEN)
        await self._producer._flush(None)
        self.state.require("hand_over()", Step.OPEN)
        is_known = bool(self._producer._batching.enlisted) or self.state.has_offsets
        self.state.become(Step.HANDED_OVER)
        self._forget_partitions()
        if not is_known:
            return None
        return OpenTransaction(self.state.transactional_id, self._id.producer_id, self._id.epoch, self._is_tv2)

    # -- for the producer ---------------------------------------------------------------------------------------------

    def enlist_soon(self, partitions: list[TopicPartition]) -> None:
        if partitions and self._nothing_is_asked.is_set() and self.state.step is Step.OPEN:
            self._nothing_is_asked.clear()
            self._producer._spawn(self._enlist(partitions))

    async def _enlist(self, partitions: list[TopicPartition]) -> None:
        kind = AddPartitionsToTxnRequest
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = kind(
            v3_and_below_transactional_id=self.state.transactional_id,
            v3_and_below_producer_id=self._id.producer_id,
            v3_and_below_producer_epoch=self._id.epoch,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()],
        )
        producer = self._producer
        try:
            await self._at(TRANSACTION, request, "send()", _enlisted_codes, 3)
        except KafkaError as error:
            with producer._lock:
                outcomes = producer._batching.drop_queued(error)
            producer._settle(outcomes)
        else:
            with producer._lock:
                assert producer._batching.enlisted is not None
                producer._batching.enlisted |= set(partitions)
        finally:
            self._nothing_is_asked.set()
        producer.pump()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _init(self, *, keep: bool = False) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.state.transactional_id,
            transaction_timeout_ms=self._producer.config["transaction.timeout.ms"],
            producer_id=self._id.producer_id if keep else -1,
            producer_epoch=self._id.epoch if keep else -1,
        )
        answer = await self._at(TRANSACTION, request, "begin()", lambda answer: [answer.error_code], 4)
        self._is_tv2 = await self._speaks_tv2()
        self._use(ProducerId(answer.producer_id, answer.producer_epoch))

    def _use(self, producer_id: ProducerId) -> None:
        self._id = producer_id
        with self._producer._lock:
            self._producer._batching.enlists_itself = self._is_tv2
            self._producer._batching.use_producer_id(producer_id)

    async def _speaks_tv2(self) -> bool:
        request = ApiVersionsRequest(client_software_name="kohort", client_software_version="0")
        answer = await self._at(TRANSACTION, request, "begin()", lambda answer: [answer.error_code], 4)
        return any(f.name == FEATURE and f.max_version_level >= TV2 for f in answer.finalized_features)

    async def _end(self, commit: bool, call: str, *, even_empty: bool = False) -> None:
        enlisted = self._producer._batching.enlisted
        if not enlisted and not self.state.has_offsets and not even_empty:
            return  # nobody knows of it
        request = EndTxnRequest(
            transactional_id=self.state.transactional_id,
            producer_id=self._id.producer_id,
            producer_epoch=self._id.epoch,
            committed=commit,
        )
        version = end_version(self._is_tv2)
        answer = await self._at(TRANSACTION, request, call, lambda answer: [answer.error_code], version)
        if self._is_tv2:
            self._use(ProducerId(answer.producer_id, answer.producer_epoch))

    def _ended(self) -> None:
        self.state.become(Step.IDLE)
        self._forget_partitions()

    def _forget_partitions(self) -> None:
        with self._producer._lock:
            assert self._producer._batching.enlisted is not None
            self._producer._batching.enlisted.clear()

    async def _at(
        self,
        kind: int,
        request: Any,
        call: str,
        codes_of: Callable[[Any], Iterable[int]],
        max_version: int,
        key: str | None = None,
    ) -> Any:
        """Ask a coordinator until it has an answer; KafkaTimeoutError after default.api.timeout.ms."""
        key = self.state.transactional_id if key is None else key
        config = self._producer.config
        last = ErrorCode.NONE
        try:
            async with asyncio.timeout(config["default.api.timeout.ms"] / 1000):
                while True:
                    answer, last = await self._ask(kind, key, request, codes_of, max_version)
                    if not last:
                        return answer
                    if last in _LOOK_AGAIN:
                        self._coordinators.pop((kind, key), None)
                    if last not in _AGAIN:
                        break
                    await asyncio.sleep(config["retry.backoff.ms"] / 1000)
        except TimeoutError:
            seconds = config["default.api.timeout.ms"] / 1000
            raise KafkaTimeoutError(f"{call}: no answer within {seconds:g} s ({last.name}): call it again") from None
        error = self.state.error(last, call)
        self.state.failed(error)
        raise error

    async def _ask(
        self, kind: int, key: str, request: Any, codes_of: Callable[[Any], Iterable[int]], max_version: int
    ) -> tuple[Any, ErrorCode]:
        try:
            coordinator = await self._coordinator(kind, key)
            answer = await coordinator.request(request, max_version=max_version)
        except KafkaError as error:
            return None, error.code
        return answer, next((ErrorCode.of(code) for code in codes_of(answer) if code), ErrorCode.NONE)

    async def _coordinator(self, kind: int, key: str) -> Coordinator:
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        cluster: Cluster = self._producer.start()
        answer = await cluster.request(None, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        found = answer.coordinators[0]
        if found.error_code:
            raise KafkaError(ErrorCode.of(found.error_code))
        made = self._coordinators[kind, key] = cluster.coordinator(Node(found.node_id, found.host, found.port))
        return made


def _enlisted_codes(answer: Any) -> list[int]:
    codes = [r.partition_error_code for t in answer.results_by_topic_v3_and_below for r in t.results_by_partition]
    # As one of them could not be added none was: say why, not that.
    return sorted(codes, key=lambda code: code in (0, ErrorCode.OPERATION_NOT_ATTEMPTED))


def _offset_commit(
    transactional_id: str, producer: ProducerId, member: ConsumerGroupMetadata, offsets: Offsets
) -> TxnOffsetCommitRequest:
    kind = TxnOffsetCommitRequest
    topics: dict[str, list[Any]] = {}
    for (topic, index), given in offsets.items():
        value = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        row = kind.TxnOffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            committed_metadata=value.metadata,
        )
        topics.setdefault(topic, []).append(row)
    return kind(
        transactional_id=transactional_id,
        group_id=member.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[kind.TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
