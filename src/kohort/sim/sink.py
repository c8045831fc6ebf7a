"""Spark queries with the exactly-once sink in the simulated world: one run of a query after another, now and then two.

A run writes the rows of a batch in a transaction per task, leaves them open, and has the real protocol (`sink_commit`,
`sink_decisions`) decide and end them, each of its effects carried out by requests to the broker. It may die between any
two requests; the next one begins with the batch that Spark's commit log does not have. The `SinkOutput` checker reads
the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from kohort.client.types import OpenTransaction, TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import (
    DescribeTransactionsRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ProduceRequest,
)
from kohort.records.batch import Record, build_batch
from kohort.sim.client import Caller
from kohort.spark import sink_commit as sc
from kohort.spark import sink_decisions as decisions
from kohort.spark.sink_commit import Fate, Share

if TYPE_CHECKING:
    from kohort.sim.world import World

OUTPUT, DECISIONS = "sink-out", "sink-decisions"
TASKS = 3
TIMEOUT_MS, RETRY_MS = 10_000, 100
TRANSACTION_TIMEOUT_MS, DECISION_TIMEOUT_MS = 40_000, 25_000
DIES, SEEMS_DEAD, TASK_FAILS = 0.01, 0.004, 0.05
INIT, END, PRODUCE, FETCH = 4, 5, 12, 12
_LOST = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_AGAIN = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})

Steps = Generator[Any, Any, Any]


class Send(NamedTuple):
    """A request; its answer comes back, or None where the connection broke."""

    request: Any
    version: int | None


class Lost(Exception):
    """Another has taken over, or the transaction was aborted."""


class Query:
    """A checkpoint, and the runs that begin with it."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.query_id = f"q{index}"
        self.random = world.random_for(self.query_id)
        self.begun = -1  # the last batch of Spark's offset log
        self.finished = 0  # how many batches Spark's commit log has
        self.attempts = 0
        self.running = True
        self.refusals: list[str] = []
        self._runs: list[Run] = []
        self._away = False

    def start(self) -> None:
        self._away = False
        run = Run(self, f"{self.query_id}.{len(self._runs)}")
        self._runs.append(run)
        run.go()

    def stop(self) -> None:
        """No batch begins any more; one that has begun is finished."""
        self.running = False

    @property
    def newest(self) -> Run | None:
        return self._runs[-1] if self._runs else None

    @property
    def idle(self) -> bool:
        return not self._away and self.begun < self.finished and all(run.over for run in self._runs)

    def names(self) -> list[str]:
        return [run.name for run in self._runs if not run.over]

    def ended(self, run: Run) -> None:
        if run is self.newest and not self._away and (self.running or self.begun >= self.finished):
            self._away = True
            self.world.scheduler.after(self.random.choice((50, 500, 5_000, 45_000)), self.start)

    def written(self) -> Iterator[bytes]:
        """All rows of the batches that Spark has finished."""
        for batch in range(self.finished):
            for task in range(TASKS):
                yield from self.rows(batch, task)

    def rows(self, batch: int, task: int) -> list[bytes]:
        """The same whenever they are computed; some tasks have none."""
        count = 0 if (batch + task) % 5 == 4 else 1 + (batch + task) % 3
        return [f"{self.query_id}/{batch}/{task}/{number}".encode() for number in range(count)]


class Run(Caller):
    """One life of a query's driver with its tasks."""

    def __init__(self, query: Query, name: str) -> None:
        super().__init__(query.world, name)
        self._query = query
        self._id = self._epoch = self._sequence = -1
        self.over = False

    # Requests as steps of a generator: it may end between any two.

    def go(self) -> None:
        self._advance(self._batches(), None)

    def _advance(self, steps: Steps, value: Any) -> None:
        if self.over:
            return
        if self._query.running and self._random.random() < DIES:
            return self._end(dies=True)
        if self._query.running and self._random.random() < SEEMS_DEAD and self is self._query.newest:
            self._scheduler.after(1, self._query.start)
        try:
            wanted = steps.send(value)
        except StopIteration:
            return self._end()
        if isinstance(wanted, Send):
            answered = lambda response: self._advance(steps, response)  # noqa: E731
            failed = lambda _: self._advance(steps, None)  # noqa: E731
            self._channel.request(wanted.request, answered, failed, TIMEOUT_MS, wanted.version)
        else:
            self._scheduler.after(wanted, self._advance, steps, None)

    def _end(self, *, dies: bool = False) -> None:
        self.over = True
        if dies:
            self._channel.vanish()
        self._query.ended(self)

    def _ask(self, request: Any, code_of: Callable[[Any], int], version: int | None = None) -> Steps:
        """Until there is an answer that says more than to ask again; Lost where it says that all is over."""
        while True:
            response = yield Send(request, version)
            code = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(code_of(response))
            if code in _LOST:
                raise Lost(code.name)
            if response is not None and not (code.retriable or code in _AGAIN):
                return response
            yield RETRY_MS

    # Spark.

    def _batches(self) -> Steps:
        query = self._query
        while query.running or query.begun >= query.finished:
            batch = query.finished
            if batch > query.begun:
                yield self._random.randint(1, 1_000)
                if query.finished > batch:
                    continue  # by another run, which this one does not know of yet
                query.begun = max(query.begun, batch)
            elif self._random.random() < 0.8:
                yield from self._machine(sc.RollForward())
            yield from self._find(decisions.driver_id(query.query_id))
            if not (yield from self._run_batch(batch)):
                return
            self._world.trace.note("sink", f"{self.name} has finished batch {batch}")
            query.finished = max(query.finished, batch + 1)

    def _run_batch(self, batch: int) -> Steps:
        """False: the query fails, and is started again."""
        shares: tuple[Share, ...] = ()
        try:
            for task in range(TASKS):
                shares += ((yield from self._task(batch, task)),)
            yield from self._machine(sc.BatchCommit(batch, shares))
            return True
        except (Lost, sc.Refusal) as error:
            self._world.trace.note("sink", f"{self.name} fails batch {batch}: {error}")
            self._query.refusals += [str(error)] if isinstance(error, sc.Refusal) else []
        try:
            yield from self._machine(sc.BatchAbort(batch, shares))
        except (Lost, sc.Refusal) as error:
            self._world.trace.note("sink", f"{self.name} cannot abort batch {batch}: {error}")
        return False

    def _task(self, batch: int, task: int) -> Steps:
        """Attempts are made under names of their own; the first may be lost, and leave what it wrote."""
        rows = self._query.rows(batch, task)
        if not rows:
            return Share(0, 0)
        while True:
            self._query.attempts += 1
            name = f"{decisions.task_prefix(self._query.query_id)}{self._query.attempts}"
            yield from self._find(name)
            made, epoch = yield from self._init(name, TRANSACTION_TIMEOUT_MS)
            tp = self._random.choice(self._world.sink_partitions())
            yield from self._produce(name, (made, epoch), tp, [(None, row) for row in rows], 0)
            if self._random.random() >= TASK_FAILS:
                return Share(len(rows), sum(map(crc32, rows)), OpenTransaction(name, made, epoch, True))

    # The protocol.

    def _machine(self, machine: sc.BatchCommit | sc.BatchAbort | sc.RollForward) -> Steps:
        effect = machine.begin()
        while not isinstance(effect, sc.Finish):
            effect = machine.answered((yield from self._carry_out(effect)))

    def _carry_out(self, effect: sc.Effect) -> Steps:
        driver = decisions.driver_id(self._query.query_id)
        match effect:
            case sc.TakeOver():
                self._id, self._epoch = yield from self._init(driver, DECISION_TIMEOUT_MS)
                self._sequence = 0
            case sc.Read():
                return (yield from self._scan()).result()
            case sc.ReadAll():
                return list((yield from self._scan()).found().values())
            case sc.Sweep(keep):
                yield from self._sweep(keep)
            case sc.Write(decision):
                content = self._query.query_id.encode(), decisions.encode(self._query.query_id, decision)
                place = TopicPartition(DECISIONS, decisions.PARTITION)
                yield from self._produce(driver, (self._id, self._epoch), place, [content], self._sequence)
                self._sequence += 1
            case sc.Look(transactions):
                return (yield from self._look(driver, transactions))
            case sc.Settle(commit):
                request = _end_request(OpenTransaction(driver, self._id, self._epoch, True), commit)
                yield from self._ask(request, lambda r: r.error_code, END)
            case sc.End(transactions, commit):
                fates = {}
                for transaction in transactions:
                    fates[transaction.transactional_id] = yield from self._end_one(transaction, commit)
                return fates
        return None

    def _find(self, name: str) -> Steps:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        yield from self._ask(request, lambda r: r.coordinators[0].error_code, 4)

    def _init(self, name: str, timeout_ms: int) -> Steps:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )
        response = yield from self._ask(request, lambda r: r.error_code, INIT)
        return response.producer_id, response.producer_epoch

    def _produce(
        self, name: str, who: tuple[int, int], tp: TopicPartition, rows: list[tuple[bytes | None, bytes]], sequence: int
    ) -> Steps:
        records = [Record(place, self._scheduler.now_ms, key, value) for place, (key, value) in enumerate(rows)]
        data = build_batch(
            records, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=True
        )
        partition = ProduceRequest.PartitionProduceData(index=tp.partition, records=data)
        topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[partition])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        answer = yield from self._ask(request, lambda r: r.responses[0].partition_responses[0].error_code, PRODUCE)
        if answer.responses[0].partition_responses[0].error_code:
            raise Lost("a record was refused")

    def _scan(self) -> Steps:
        """Everything that was in the topic of decisions when this began."""
        scan, at, end = decisions.Scan(self._query.query_id), 0, None
        kind = FetchRequest
        while end is None or at < end:
            row = kind.FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1 << 20)
            request = kind(max_wait_ms=0, topics=[kind.FetchTopic(topic=DECISIONS, partitions=[row])])
            code = lambda r: r.error_code or r.responses[0].partitions[0].error_code  # noqa: E731
            found = (yield from self._ask(request, code, FETCH)).responses[0].partitions[0]
            end = found.high_watermark if end is None else end
            at = scan.feed(bytes(found.records or b"")) or at
        return scan

    def _look(self, driver: str, transactions: tuple[OpenTransaction, ...]) -> Steps:
        own = yield from self._describe(driver)
        rows = {}
        for transaction in transactions:
            rows[transaction] = yield from self._describe(transaction.transactional_id)
        begun = [row.transaction_start_time_ms for row in rows.values() if row.transaction_start_time_ms >= 0]
        fates = {t.transactional_id: _fate(t, row) for t, row in rows.items()}
        oldest_ms = max((own.transaction_start_time_ms - start for start in begun), default=0)
        return sc.Looked(fates, oldest_ms, TRANSACTION_TIMEOUT_MS)

    def _describe(self, name: str) -> Steps:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return (yield from self._ask(request, lambda r: r.transaction_states[0].error_code)).transaction_states[0]

    def _end_one(self, transaction: OpenTransaction, commit: bool) -> Steps:
        yield from self._find(transaction.transactional_id)
        try:
            yield from self._ask(_end_request(transaction, commit), lambda r: r.error_code, END)
        except Lost:
            return _fate(transaction, (yield from self._describe(transaction.transactional_id)))
        return Fate.COMMITTED if commit else Fate.ABORTED

    def _sweep(self, keep: frozenset[str]) -> Steps:
        listed = yield from self._ask(ListTransactionsRequest(state_filters=["Ongoing"]), lambda r: r.error_code)
        prefix = decisions.task_prefix(self._query.query_id)
        for row in listed.transaction_states:
            if row.transactional_id.startswith(prefix) and row.transactional_id not in keep:
                found = yield from self._describe(row.transactional_id)
                if found.transaction_state == "Ongoing":
                    left = OpenTransaction(row.transactional_id, found.producer_id, found.producer_epoch, True)
                    yield from self._end_one(left, False)


def _fate(transaction: OpenTransaction, row: Any) -> Fate:
    return decisions.fate(transaction, row.transaction_state, row.producer_id, row.producer_epoch)


def _end_request(transaction: OpenTransaction, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=commit,
    )
