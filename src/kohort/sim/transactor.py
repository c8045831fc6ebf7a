"""Producers with a transactional id in the simulated world: one life of it after another, and now and then two at once.

Each transaction writes values that nobody else writes to some partitions, and may commit an offset that counts up. A
life speaks TV1 or TV2 (KIP-890), tries again what may be tried again, aborts what went wrong, and ends when it is
fenced. What it has done, and was told, goes to the `Transactions` checker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.client.types import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kohort.records.batch import Record, build_batch
from kohort.sim.checkers.transactions import Txn
from kohort.sim.client import Caller
from kohort.sim.routes import Coordinator, Place

if TYPE_CHECKING:
    from kohort.sim.world import World

TIMEOUT_MS = 10_000
RETRY_MS = 100
TRANSACTION_TIMEOUT_MS = 25_000
VANISHES, DOUBLES, ABORTS = 0.02, 0.02, 0.2
_OVER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
_AGAIN = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})

Step = Callable[[], None]


class Transactor:
    """The place of one transactional id, which some producer fills."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.transactional_id = f"x{index}"
        self.group_id = f"xg{index}"
        self.random = world.random_for(self.transactional_id)
        self.numbers = 0
        self.running = True
        self._lives: list[Life] = []
        self._away = False

    def start(self) -> None:
        """Another life; whoever had the id before may still be there, and not know it."""
        self._away = False
        tv = self.random.choice((0, 2))
        life = Life(self, f"{self.transactional_id}.{len(self._lives)}", tv)
        self._lives.append(life)
        life.begin()

    def stop(self) -> None:
        """What is open comes to its end, nothing new begins."""
        self.running = False

    @property
    def newest(self) -> Life | None:
        return self._lives[-1] if self._lives else None

    @property
    def idle(self) -> bool:
        return not self._away and all(life.over or life.resting for life in self._lives)

    def names(self) -> list[str]:
        return [life.name for life in self._lives if not life.over]

    def ended(self, life: Life) -> None:
        if life is self.newest and not self._away:
            self._away = True
            self.world.scheduler.after(self.random.choice((50, 500, 5_000)), self.start)


class Life(Caller):
    def __init__(self, place: Transactor, name: str, tv: int) -> None:
        super().__init__(place.world, name)
        self._place = place
        self._tv = tv
        self._ledger = place.world.ledger
        self._id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._txn: Txn | None = None
        self._steps: list[Step] = []
        self.over = False
        self.resting = False
        self._group, self._coordinator = Coordinator(0, place.group_id), Coordinator(1, place.transactional_id)

    # What may go wrong with any request.

    def _ask(
        self,
        place: Place,
        request: Any,
        version: int,
        code_of: Callable[[Any], int],
        then: Callable[[Any], None],
    ) -> None:
        """Until there is an answer that says more than to ask again."""
        if self.over:
            return
        if self._place.running and self._random.random() < VANISHES:
            self._end(vanishes=True)
            return
        if self._place.running and self._random.random() < DOUBLES and self is self._place.newest:
            self._scheduler.after(1, self._place.start)

        if isinstance(place, Coordinator) and not self._routes.is_known(place):
            self._find(place, lambda: self._ask(place, request, version, code_of, then))
            return

        def again(why: str = "", leader_id: int = -1) -> None:
            self._routes.learn(place, leader_id)
            self._scheduler.after(RETRY_MS, self._ask, place, request, version, code_of, then)

        def answered(response: Any) -> None:
            if self.over:
                return
            code = ErrorCode.of(code_of(response))
            if code in _OVER:
                self._ledger.fenced(self.name, code)
                self._end()
            elif code.retriable or code in _AGAIN:
                again(leader_id=_leader_in(response))
            elif code:
                self._give_up(code)
            else:
                then(response)

        self._routes.to(place).request(request, answered, again, TIMEOUT_MS, version)

    def _end(self, *, vanishes: bool = False) -> None:
        self.over = True
        if vanishes:
            self._routes.vanish()
        self._place.ended(self)

    def _give_up(self, code: ErrorCode) -> None:
        """Abort, and begin anew under another epoch: what of this one was written is not known."""
        txn = self._txn
        if txn is None or txn.wants_commit is not None:
            self._end()
            return
        self._finish(txn, False, self._end)

    # The beginning.

    def begin(self) -> None:
        self._find(self._coordinator, lambda: self._find(self._group, self._init))

    def _find(self, place: Coordinator, then: Step) -> None:
        def found(response: Any) -> None:
            self._routes.learn(place, response.coordinators[0].node_id)
            then()

        request = FindCoordinatorRequest(key_type=place.key_type, coordinator_keys=[place.key])
        self._ask(None, request, 4, lambda r: r.coordinators[0].error_code, found)

    def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._place.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        self._ask(self._coordinator, request, 4, lambda r: r.error_code, self._inited)

    def _inited(self, response: Any) -> None:
        self._id, self._epoch = response.producer_id, response.producer_epoch
        self._ledger.begun(self._place.transactional_id, self._id, self._epoch)
        self._next()

    # One transaction after the other.

    def _next(self) -> None:
        self._txn = None
        if self._place.running:
            self.resting = False
            every_ms = self._world.options.transact_every_ms
            self._scheduler.after(self._random.randint(1, 2 * every_ms), self._transact)
        else:
            self.resting = True

    def _transact(self) -> None:
        if self.over:
            return
        if not self._place.running:
            self.resting = True
            return
        self._place.numbers += 1
        place, number = self._place, self._place.numbers
        there = self._world.transactional_partitions()
        txn = self._txn = Txn(place.transactional_id, number, self.name)
        for tp in self._random.sample(there, self._random.randint(1, min(3, len(there)))):
            values = [f"{place.transactional_id}/{number}/{tp.topic}-{tp.partition}/{i}".encode() for i in (1, 2)]
            txn.values |= dict.fromkeys(values[: self._random.randint(1, 2)], tp)
        txn.with_offset = self._random.random() < 0.5
        self._ledger.opened(txn)
        by_partition: dict[TopicPartition, list[bytes]] = {}
        for value, tp in txn.values.items():
            by_partition.setdefault(tp, []).append(value)
        self._steps = [self._produce_step(txn, tp, values) for tp, values in by_partition.items()]
        if self._tv < 2:
            self._steps.insert(0, lambda: self._add(list(by_partition)))
        if txn.with_offset:
            self._steps += [self._add_offsets] if self._tv < 2 else []
            self._steps.append(lambda: self._commit_offset(number))
        commit = self._random.random() >= ABORTS
        self._steps.append(lambda: self._finish(txn, commit, self._next))
        self._step()

    def _step(self, response: Any = None) -> None:
        self._steps.pop(0)()

    def _add(self, partitions: list[TopicPartition]) -> None:
        kind = AddPartitionsToTxnRequest
        request = kind(
            v3_and_below_transactional_id=self._place.transactional_id,
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                kind.AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition]) for tp in partitions
            ],
        )
        self._ask(self._coordinator, request, 3, _added_code, self._step)

    def _produce_step(self, txn: Txn, tp: TopicPartition, values: list[bytes]) -> Step:
        return lambda: self._produce(txn, tp, values)

    def _produce(self, txn: Txn, tp: TopicPartition, values: list[bytes]) -> None:
        epoch, sent = self._epoch, self._ledger.moment
        data = build_batch(
            [Record(i, self._scheduler.now_ms, None, value) for i, value in enumerate(values)],
            producer_id=self._id,
            producer_epoch=epoch,
            base_sequence=self._sequences.get(tp, 0),
            transactional=True,
        )
        self._sequences[tp] = self._sequences.get(tp, 0) + len(values)
        partition = ProduceRequest.PartitionProduceData(index=tp.partition, records=data)
        topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[partition])
        request = ProduceRequest(
            transactional_id=txn.transactional_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic]
        )

        def written(response: Any) -> None:
            offset = response.responses[0].partition_responses[0].base_offset
            self._ledger.written(txn, tp, values, offset, (self._id, epoch), sent)
            self._step()

        version = 12 if self._tv >= 2 else 11
        self._ask(tp, request, version, lambda r: r.responses[0].partition_responses[0].error_code, written)

    def _add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._place.transactional_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            group_id=self._place.group_id,
        )
        self._ask(self._coordinator, request, 3, lambda r: r.error_code, self._step)

    def _commit_offset(self, offset: int) -> None:
        kind, tp = TxnOffsetCommitRequest, self._world.transactional_partitions()[0]
        row = kind.TxnOffsetCommitRequestPartition(partition_index=tp.partition, committed_offset=offset)
        request = kind(
            transactional_id=self._place.transactional_id,
            group_id=self._place.group_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[kind.TxnOffsetCommitRequestTopic(name=tp.topic, partitions=[row])],
        )
        version = 5 if self._tv >= 2 else 3
        self._ask(self._group, request, version, lambda r: r.topics[0].partitions[0].error_code, self._step)

    def _finish(self, txn: Txn, commit: bool, then: Step) -> None:
        request = EndTxnRequest(
            transactional_id=self._place.transactional_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        self._ledger.ending(txn, commit)

        def ended(response: Any) -> None:
            self._ledger.ended(txn, commit)
            if self._tv >= 2:
                if (response.producer_id, response.producer_epoch) != (self._id, self._epoch):
                    self._sequences.clear()
                self._id, self._epoch = response.producer_id, response.producer_epoch
                self._ledger.begun(self._place.transactional_id, self._id, self._epoch)
            then()

        self._ask(self._coordinator, request, 5 if self._tv >= 2 else 4, lambda r: r.error_code, ended)


def _leader_in(response: Any) -> int:
    """Who leads instead, where a Produce is told (KIP-951)."""
    rows = response.responses[0].partition_responses if hasattr(response, "responses") else []
    return int(rows[0].current_leader.leader_id) if rows else -1


def _added_code(response: Any) -> int:
    rows = [row for topic in response.results_by_topic_v3_and_below for row in topic.results_by_partition]
    codes = {row.partition_error_code for row in rows}
    return int(max(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes))
