"""The exactly-once sink's driver over asyncio: carries the effects of `sink_commit` out. No policy.

Spark calls it in a process that may be new for every batch: nothing is remembered here, all is in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from kohort.client.admin_async import AsyncAdmin
from kohort.client.admin_types import NewTopic, TransactionDescription
from kohort.client.config import SETTINGS
from kohort.client.errors import ProducerFencedError, TransactionAbortableError
from kohort.client.metadata import leader_nodes
from kohort.client.producer_async import AsyncProducer
from kohort.client.types import OpenTransaction, TopicPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FetchRequest
from kohort.spark import notices
from kohort.spark import sink_commit as sc
from kohort.spark import sink_decisions as decisions
from kohort.spark.offsets import StreamOffset
from kohort.spark.sink_commit import Decision, Fate, Looked, Refusal

log = logging.getLogger("kohort.spark")

_LAST_FETCH_WITH_NAMES = 12
_FETCH_BYTES = 8 * 1024 * 1024
_FIRST_WINDOW = 256
_DECISION_TIMEOUT_MS = 60_000
_JOIN_LIMIT_S, _LOOK_EVERY_S, _ROLL_FORWARD_LIMIT_S = 60.0, 0.1, 30.0
_MOST_DECISION_BYTES = 16 * 1024 * 1024
_FENCED = (
    "another driver of this query has begun, with the same checkpoint, and has fenced this one: two runs of a query "
    "cannot go on side by side. Nothing is lost, and nothing written twice: stop one of them"
)


def run(
    machine: sc.BatchCommit | sc.BatchAbort,
    query: str,
    settings: Mapping[str, Any],
    topic: str,
    sources: str | None = None,
) -> str:
    """The machine's effects, until it is done; the words it ends with. `sources`: the checkpoint of those whose offsets
    are committed with the decision."""
    return asyncio.run(_run(machine, SinkDriver(query, settings, topic, sources)))


def roll_forward(query: str, settings: Mapping[str, Any], topic: str) -> str:
    """What runs before this one have decided, committed at once; the words it ends with."""

    async def roll() -> str:
        driver = SinkDriver(query, settings, topic, None)
        try:
            async with asyncio.timeout(_ROLL_FORWARD_LIMIT_S):
                return await driver.roll_forward()
        finally:
            await driver.close()

    return asyncio.run(roll())


async def _run(machine: sc.BatchCommit | sc.BatchAbort, driver: SinkDriver) -> str:
    try:
        effect = machine.begin()
        while not isinstance(effect, sc.Finish):
            effect = machine.answered(await driver.carry_out(effect))
        return effect.words
    except ProducerFencedError as error:
        raise Refusal(f"batch {machine.batch_id}: {_FENCED} ({error.code.name})") from error
    finally:
        await driver.close()


class SinkDriver:
    """One commit or abort of one query."""

    def __init__(self, query: str, settings: Mapping[str, Any], topic: str, sources: str | None) -> None:
        self._query = query
        self._sources = sources
        self._topic = TopicPartition(topic, decisions.PARTITION)
        common = {name: value for name, value in settings.items() if name in SETTINGS}
        self._admin = AsyncAdmin(common)
        self._producer = AsyncProducer(
            {
                **common,
                "transactional.id": decisions.driver_id(query),
                "transaction.timeout.ms": _DECISION_TIMEOUT_MS,
                "max.request.size": _MOST_DECISION_BYTES,
                "compression.type": "gzip",
                "linger.ms": 0,
            }
        )
        self._has_topic = False
        self._members: tuple[tuple[str, int], ...] = ()  # of the last decision

    async def roll_forward(self, groups: frozenset[str] = frozenset()) -> str:
        """Of the query itself, or of all queries that have committed offsets of these groups."""
        machine = sc.RollForward()
        effect = machine.begin()
        while not isinstance(effect, sc.Finish):
            if isinstance(effect, sc.End):
                effect = machine.answered(await self._end_all(effect.transactions, effect.commit))
            else:
                effect = machine.answered(await self._read_all(groups))
        return effect.words

    async def carry_out(self, effect: sc.Effect) -> Any:
        match effect:
            case sc.TakeOver():
                await self._producer.begin()
            case sc.Read():
                found = await self._read(decisions.Scan.result)
                self._members = () if found is None else found.members
                return found
            case sc.Sweep(keep):
                await self._sweep(keep)
            case sc.Write(decision):
                await self._write_with_offsets(decision)
            case sc.Look(transactions):
                return await self._look(transactions)
            case sc.Settle(commit):
                await (self._producer.commit() if commit else self._producer.abort())
            case sc.End(transactions, commit):
                return await self._end_all(transactions, commit)
        return None

    async def close(self) -> None:
        try:
            await self._producer.close()
        except KafkaError as error:
            log.info("the decision's transaction was left to the next driver: %s", error)
        await self._admin.close()

    # -- decisions -----------------------------------------------------------------------------------------------------

    async def _read(self, result: Callable[[decisions.Scan], Decision | None]) -> Decision | None:
        """Backwards in windows that double, since a running query's last decision is near the end."""
        first, end = await self._bounds()
        window = _FIRST_WINDOW
        while True:
            start = max(first, end - window)
            found = result(await self._scan(decisions.Scan(self._query), start, end))
            if found is not None or start == first:
                return found
            window *= 8

    async def _read_all(self, groups: frozenset[str]) -> list[Decision]:
        if groups:
            return await self._read_groups(groups)
        found = await self._read(lambda scan: scan.found().get(self._query))
        return [] if found is None else [found]

    async def _read_groups(self, groups: frozenset[str]) -> list[Decision]:
        """What is being decided is waited for: the group's offsets may say so before the topic of decisions does."""
        deadline = asyncio.get_running_loop().time() + _JOIN_LIMIT_S
        while True:
            scan = await self._scan(decisions.Scan(None), *await self._bounds())
            if not scan.is_open(groups) or asyncio.get_running_loop().time() > deadline:
                return scan.of_groups(groups)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _bounds(self) -> tuple[int, int]:
        """Of the topic of decisions; an empty one where there is none yet."""
        try:
            await self._admin.describe_topics([self._topic.topic])
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return 0, 0
        self._has_topic = True
        bounds = [(await self._admin.list_offsets({self._topic: end}))[self._topic] for end in ("earliest", "latest")]
        first, end = (0 if found is None else found.offset for found in bounds)
        return first, end

    async def _scan(self, scan: decisions.Scan, start: int, end: int) -> decisions.Scan:
        at = start
        while at < end:
            reached = scan.feed(await self._fetch(at))
            if reached is None or reached <= at:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._topic}: nothing can be read at offset {at}")
            at = reached
        return scan

    async def _fetch(self, offset: int) -> bytes:
        async def attempt() -> bytes:
            cluster = self._admin._cluster
            await cluster.topics([self._topic.topic])
            (node_id,) = leader_nodes(cluster.metadata, [self._topic])
            make = FetchRequest
            wanted = make.FetchPartition(
                partition=self._topic.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
            )
            request = make(
                replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=_FETCH_BYTES, isolation_level=0,
                topics=[make.FetchTopic(topic=self._topic.topic, partitions=[wanted])],
            )  # fmt: skip
            answer = await cluster.request(node_id, request, max_version=_LAST_FETCH_WITH_NAMES)
            row = answer.responses[0].partitions[0]
            if row.error_code:
                raise KafkaError(ErrorCode.of(row.error_code))
            return bytes(row.records or b"")

        return await self._admin._retried(f"decisions in {self._topic.topic}", attempt)

    async def _write(self, decision: Decision) -> None:
        if not self._has_topic:
            await self._create_topic()
        value = decisions.encode(self._query, decision)
        delivery = await self._producer.send(self._topic.topic, value, self._query, partition=self._topic.partition)
        await self._producer._flush(None)
        await delivery

    async def _write_with_offsets(self, decision: Decision) -> None:
        """Again where a rebalance has come between the source's notice and the coordinator's answer."""
        if self._sources is None:
            return await self._write(decision)
        deadline = asyncio.get_running_loop().time() + _JOIN_LIMIT_S
        while True:
            found = notices.read(self._sources, decision.batch_id)
            members = tuple((notice.member.group_id, notice.member.generation_id) for notice, _ in found)
            if members != self._members:
                await self._take_over_decided(frozenset(group for group, _ in members))
            await self._write(decision._replace(members=members))
            try:
                return await self._commit_sources(found, decision.batch_id)
            except (TransactionAbortableError, notices.NotAssigned) as error:
                if asyncio.get_running_loop().time() > deadline:
                    if isinstance(error, Refusal):
                        raise
                    raise Refusal(f"batch {decision.batch_id} is not published, and not lost: {error}") from error
            await self._producer.abort()
            await asyncio.sleep(_LOOK_EVERY_S)
            await self._producer.begin()

    async def _take_over_decided(self, groups: frozenset[str]) -> None:
        """The group has another generation than at the last decision: maybe partitions came here of somebody who died
        between his decision, with which the group's offsets have moved on, and the end of his transactions."""
        if self._has_topic and groups:
            log.info("groups %s: %s", ", ".join(sorted(groups)), await self.roll_forward(groups))

    async def _commit_sources(self, found: list[tuple[notices.Notice, StreamOffset]], batch_id: int) -> None:
        if not found:
            raise Refusal(
                f"batch {batch_id}: no source of this query has told its place in a group: sourceOffsets is "
                'for queries that read with format("kohort") and the sink\'s checkpointLocation among its options'
            )
        for notice, end in found:
            if not notice.is_member:
                raise TransactionAbortableError(f"the query is not a member of group {notice.member.group_id} now")
            read = [tp for tp, (first, stop) in end.ranges.items() if first < stop]
            committed = await self._admin.group_offsets(notice.member.group_id, read)
            await self._producer.send_offsets(notices.offsets_to_commit(notice, end, committed), notice.member)

    async def _create_topic(self) -> None:
        try:
            await self._admin.create_topics([NewTopic(self._topic.topic, 1, -1, configs=decisions.TOPIC_CONFIG)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise Refusal(
                    f"the topic {self._topic.topic} for decisions cannot be created ({error}): create it, with one "
                    "partition and cleanup.policy=compact, or name another with the option decisionsTopic"
                ) from error

    # -- the tasks' transactions ---------------------------------------------------------------------------------------

    async def _look(self, transactions: tuple[OpenTransaction, ...]) -> Looked:
        own = decisions.driver_id(self._query)
        found = await self._admin.describe_transactions([own, *(t.transactional_id for t in transactions)])
        known = [found[t.transactional_id] for t in transactions]
        begun = [row.start_ms for row in known if row is not None and row.start_ms is not None]
        driver = found[own]
        now_ms = 0 if driver is None or driver.start_ms is None else driver.start_ms
        timeouts = [row.timeout_ms for row in known if row is not None]
        return Looked(
            {t.transactional_id: _fate(t, found[t.transactional_id]) for t in transactions},
            max((now_ms - start for start in begun), default=0),
            min(timeouts, default=_DECISION_TIMEOUT_MS),
        )

    async def _end_all(self, transactions: tuple[OpenTransaction, ...], commit: bool) -> dict[str, Fate]:
        fates = await asyncio.gather(*(self._end(transaction, commit) for transaction in transactions))
        return {t.transactional_id: fate for t, fate in zip(transactions, fates, strict=True)}

    async def _end(self, transaction: OpenTransaction, commit: bool) -> Fate:
        try:
            await self._admin.end_transaction(transaction, commit)
        except ProducerFencedError:
            name = transaction.transactional_id
            return _fate(transaction, (await self._admin.describe_transactions([name]))[name])
        return Fate.COMMITTED if commit else Fate.ABORTED

    async def _sweep(self, keep: frozenset[str]) -> None:
        """By an end with the numbers of the open transaction, so that one that is committed meanwhile stays so."""
        prefix = decisions.task_prefix(self._query)
        try:
            listed = await self._admin.list_transactions(["Ongoing"])
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return log.info("these brokers do not list transactions: what is open is left to its timeout")
        left = {row.transactional_id for row in listed if row.transactional_id.startswith(prefix)} - keep
        if left:
            log.warning("query %s: %d transactions of lost tasks are aborted", self._query, len(left))
        found = await self._admin.describe_transactions(left)
        await asyncio.gather(*(self._abort(row) for row in found.values() if row is not None))

    async def _abort(self, row: TransactionDescription) -> None:
        transactions = self._producer._transactions
        is_tv2 = transactions is not None and transactions._is_tv2
        handed = OpenTransaction(row.transactional_id, row.producer_id, row.producer_epoch, is_tv2)
        if row.state == "Ongoing" and await self._end(handed, False) is Fate.ABORTED and not is_tv2:
            await self._admin.terminate_transaction(row.transactional_id)  # the end itself fences nobody before TV2


def _fate(transaction: OpenTransaction, row: TransactionDescription | None) -> Fate:
    if row is None:
        return Fate.UNKNOWN
    return decisions.fate(transaction, row.state, row.producer_id, row.producer_epoch)
