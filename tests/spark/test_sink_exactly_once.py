"""The exactly-once sink without Spark, on a broker: batches, crashes between any two of its steps, and bad input."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import kohort
from kohort.client.types import TopicPartition
from kohort.spark import sink, sink_driver
from kohort.spark import sink_commit as sc
from kohort.spark.options import OptionError, parse_write_options
from kohort.spark.sink import ExactlyOnceWriter, WriteError, check_delivery
from kohort.spark.sink_commit import Refusal
from kohort.spark.source import KohortDataSource
from spark.query import create, unique


class Crash(BaseException):
    """The driver is gone."""


class Query:
    """The calls that Spark makes, a batch of two tasks at a time."""

    def __init__(self, servers: str, topic: str, name: str | None = None, **options: str) -> None:
        self.servers, self.topic, self.name = servers, topic, name or unique("query")
        given = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": "exactly-once"}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        self.writer = ExactlyOnceWriter(parse_write_options(given), ("key", "value"))

    def write(self, batch: int, tasks: int = 2, rows: int = 3) -> list[Any]:
        return [self.write_task(batch, [f"{batch}.{task}.{n}" for n in range(rows)]) for task in range(tasks)]

    def write_task(self, batch: int, values: list[str]) -> Any:
        with mock.patch.object(sink, "task_identity", lambda: (self.name, batch)):
            return self.writer.write(iter([pa.record_batch({"key": values, "value": values})]))

    def run(self, batch: int, **shape: int) -> None:
        self.writer.commit(self.write(batch, **shape), batch)

    def commit_until(self, messages: list[Any], batch: int, is_there: Callable[[Any], bool], ends: int = 99) -> None:
        """Dies before the first effect that `is_there` says; of its ends so many are done."""
        carry_out, end = sink_driver.SinkDriver.carry_out, sink_driver.SinkDriver._end
        begun = finished = 0

        async def dying(driver: Any, effect: Any) -> Any:
            if is_there(effect):
                raise Crash
            return await carry_out(driver, effect)

        async def counted(driver: Any, transaction: Any, commit: bool) -> Any:
            nonlocal begun, finished
            begun += 1
            if begun > ends:
                while finished < ends:
                    await asyncio.sleep(0.001)
                raise Crash
            fate = await end(driver, transaction, commit)
            finished += 1
            return fate

        async def vanish(driver: Any) -> None:
            driver._producer._transactions.state.step = None  # it ends nothing any more
            await driver._producer.close()
            await driver._admin.close()

        patched = mock.patch.multiple(sink_driver.SinkDriver, carry_out=dying, _end=counted, close=vanish)
        with patched, pytest.raises(Crash):
            self.writer.commit(messages, batch)

    def read(self) -> list[str]:
        """All there is for a read_committed consumer, and that nothing is left open before the end of the log."""
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with kohort.Consumer(bootstrap_servers=self.servers, **settings) as consumer:
            places = [TopicPartition(self.topic, p.partition) for p in consumer.partitions_for(self.topic)]
            with kohort.Admin(bootstrap_servers=self.servers) as admin:
                ends = {
                    tp: at.offset if at else 0 for tp, at in admin.list_offsets(dict.fromkeys(places, "latest")).items()
                }
            consumer.assign(places)
            found: list[str] = []
            while any(consumer.position(tp) < ends[tp] for tp in places):
                found += [record.value.decode() for record in consumer.poll(1)]
        return sorted(found)


def expected(batches: int, tasks: int = 2, rows: int = 3) -> list[str]:
    return sorted(f"{b}.{t}.{n}" for b in range(batches) for t in range(tasks) for n in range(rows))


@pytest.fixture
def query(servers: str) -> Query:
    topic = unique("exactly")
    create(servers, topic, 2)
    return Query(servers, topic)


def open_transactions(query: Query) -> list[str]:
    with kohort.Admin(bootstrap_servers=query.servers) as admin:
        listed = admin.list_transactions(["Ongoing"])
    return [row.transactional_id for row in listed if query.name in row.transactional_id]


def test_batches_are_read_once_they_are_committed(query: Query) -> None:
    messages = query.write(0)
    assert not _anything_stable(query)
    query.writer.commit(messages, 0)
    query.run(1)
    assert query.read() == expected(2)
    with kohort.Admin(bootstrap_servers=query.servers) as admin:
        ids = [row.transactional_id for row in admin.list_transactions() if query.name in row.transactional_id]
    assert len(ids) == 3  # the driver's and two of tasks, which the second batch has used again


def _anything_stable(query: Query) -> bool:
    with kohort.Admin(bootstrap_servers=query.servers) as admin:
        places = {TopicPartition(query.topic, number): "latest" for number in range(2)}
        return any(at is not None and at.offset for at in admin.list_offsets(places, read_committed=True).values())


def is_a(kind: type[Any], **fields: Any) -> Callable[[Any], bool]:
    return lambda effect: isinstance(effect, kind) and all(getattr(effect, n) == v for n, v in fields.items())


CRASHES = [
    pytest.param(is_a(sc.Read), 99, id="once it has taken over"),
    pytest.param(is_a(sc.Write), 99, id="before it writes a decision"),
    pytest.param(is_a(sc.Settle), 99, id="before the decision counts"),
    pytest.param(is_a(sc.End, commit=True), 99, id="between decision and first EndTxn"),
    pytest.param(is_a(sc.Finish), 1, id="between two EndTxn"),
]


@pytest.mark.parametrize(("is_there", "ends"), CRASHES)
def test_a_driver_that_dies(query: Query, is_there: Callable[[Any], bool], ends: int) -> None:
    query.run(0)
    query.commit_until(query.write(1), 1, is_there, ends)
    again = Query(query.servers, query.topic, query.name)
    again.run(1)  # Spark's commit log does not have it
    again.run(2)
    assert again.read() == expected(3)
    assert open_transactions(query) == []


def test_a_driver_that_dies_before_sparks_commit_log_has_the_batch(query: Query) -> None:
    query.run(0)
    query.run(0)
    assert query.read() == expected(1)


def test_tasks_that_died_are_swept(query: Query) -> None:
    query.write(0)  # of a run whose driver never got to commit
    query.run(0)
    assert query.read() == expected(1)
    assert open_transactions(query) == []


def test_an_abort_of_spark_after_the_decision_takes_nothing_back(query: Query) -> None:
    query.run(0)
    messages = query.write(1)
    query.commit_until(messages, 1, is_a(sc.Finish), ends=1)
    query.writer.abort(messages, 1)
    query.run(1)
    assert query.read() == expected(2)


def test_an_abort_before_the_decision_publishes_nothing(query: Query) -> None:
    query.run(0)
    query.writer.abort([query.write_task(1, ["lost"]), None], 1)
    assert open_transactions(query) == []
    assert query.read() == expected(1)


def test_an_older_driver_that_comes_back_cannot_decide(query: Query) -> None:
    query.run(0)
    old, carry_out = query.write(1), sink_driver.SinkDriver.carry_out

    async def overtaken(driver: Any, effect: Any) -> Any:
        if isinstance(effect, sc.Settle):
            await _in_another_process(query)
        return await carry_out(driver, effect)

    with (
        mock.patch.object(sink_driver.SinkDriver, "carry_out", overtaken),
        pytest.raises(Refusal, match="another driver"),
    ):
        query.writer.commit(old, 1)
    query.writer.abort(old, 1)
    query.run(2)
    assert query.read() == expected(3)


async def _in_another_process(query: Query) -> None:
    successor = Query(query.servers, query.topic, query.name)
    with mock.patch.object(sink_driver.SinkDriver, "carry_out", _CARRY_OUT):
        await asyncio.to_thread(successor.run, 1)


_CARRY_OUT = sink_driver.SinkDriver.carry_out


# -- decided, and the driver died ------------------------------------------------------------------------------------


class Restarted:
    """What Spark does first with a checkpoint: it writes down that a batch begins, and plans it."""

    def __init__(self, query: Query, home: Path) -> None:
        self.query, self.home = query, home
        (home / "offsets").mkdir()
        (home / "metadata").write_text(json.dumps({"id": query.name}))
        self.options = {"kafka.bootstrap.servers": query.servers, "topic": query.topic, "delivery": "exactly-once"}

    def plan(self, batch: int) -> None:
        (self.home / "offsets" / str(batch)).write_text("")
        source = KohortDataSource({**self.options, "checkpointLocation": str(self.home)})
        source.streamWriter(StructType().add("value", "string"), overwrite=False)


@pytest.mark.parametrize("ends", [0, 1])
def test_what_was_decided_is_read_before_the_batch_is_computed_again(query: Query, tmp_path: Path, ends: int) -> None:
    spark = Restarted(query, tmp_path)
    spark.plan(0)
    query.run(0)
    spark.plan(1)
    query.commit_until(query.write(1), 1, is_a(sc.Finish), ends=ends)
    spark.plan(1)
    assert query.read() == expected(2)
    query.run(1)
    spark.plan(2)
    query.run(2)
    assert query.read() == expected(3)


def test_nobody_looks_for_decisions_while_all_goes_well(query: Query, tmp_path: Path) -> None:
    spark = Restarted(query, tmp_path)
    with mock.patch.object(sink_driver, "roll_forward") as rolled:
        for batch in range(3):
            spark.plan(batch)
        assert not rolled.called
        spark.plan(2)
        assert rolled.called


def test_what_is_not_decided_stays_unread_at_a_restart(query: Query, tmp_path: Path) -> None:
    spark = Restarted(query, tmp_path)
    query.run(0)
    spark.plan(1)
    query.commit_until(query.write(1), 1, is_a(sc.Settle))
    spark.plan(1)
    assert len(open_transactions(query)) == 3  # two of tasks, and the driver's with its decision
    query.run(1)
    assert query.read() == expected(2)


def test_a_restart_goes_on_where_the_brokers_do_not_answer(query: Query, tmp_path: Path, caplog: Any) -> None:
    spark = Restarted(query, tmp_path)
    spark.plan(1)
    with mock.patch.object(sink_driver, "roll_forward", side_effect=TimeoutError("no broker")):
        spark.plan(1)
    assert "when its batch is committed again" in caplog.text


# -- transactions that expire ---------------------------------------------------------------------------------------

LONGER_THAN_ANY_S = 920


def test_a_batch_that_outlives_its_transactions_is_refused_and_comes_again(query: Query, broker: kohort.Broker) -> None:
    query.run(0)
    messages = query.write(1)
    broker.clock.advance(LONGER_THAN_ANY_S)
    with pytest.raises(Refusal, match="the brokers have aborted"):
        query.writer.commit(messages, 1)
    query.writer.abort(messages, 1)
    assert query.read() == expected(1)
    Query(query.servers, query.topic, query.name).run(1)
    assert query.read() == expected(2)


def test_a_batch_that_nearly_outlives_them_is_refused(query: Query, broker: kohort.Broker) -> None:
    messages = query.write(0)
    broker.clock.advance(893)
    with pytest.raises(Refusal, match="too near to"):
        query.writer.commit(messages, 0)
    query.writer.abort(messages, 0)
    assert open_transactions(query) == []


@pytest.mark.parametrize("ends", [0, 1])
def test_what_was_decided_and_expired_while_the_query_was_down_is_written_again(
    query: Query, broker: kohort.Broker, ends: int
) -> None:
    query.run(0)
    query.commit_until(query.write(1), 1, is_a(sc.Finish), ends=ends)
    broker.clock.advance(LONGER_THAN_ANY_S)
    query.run(1)
    query.run(2)
    assert query.read() == expected(3)


def test_of_a_half_published_batch_that_spark_computes_otherwise_nothing_more_is_written(
    query: Query, broker: kohort.Broker
) -> None:
    query.run(0)
    query.commit_until(query.write(1), 1, is_a(sc.Finish), ends=1)
    broker.clock.advance(LONGER_THAN_ANY_S)
    again = query.write(1, rows=4)
    with pytest.raises(Refusal, match="computes other rows"):
        query.writer.commit(again, 1)
    query.writer.abort(again, 1)
    assert len(query.read()) == 9


# -- bad input -------------------------------------------------------------------------------------------------------


def test_a_timeout_above_the_brokers_maximum(query: Query) -> None:
    asking = Query(query.servers, query.topic, kafka_transaction_timeout_ms="900001")
    with pytest.raises(WriteError, match=r"refuse kafka.transaction.timeout.ms=900001.*transaction.max.timeout.ms"):
        asking.write(0)


def test_a_topic_that_does_not_exist(servers: str) -> None:
    options = {"kafka_max_block_ms": "300", "kafka_allow_auto_create_topics": "false"}
    with pytest.raises(WriteError, match="no topic missing within"):
        Query(servers, "missing", **options).write(0)


def test_a_row_that_is_too_large_for_the_producer_and_for_the_topic(query: Query) -> None:
    with pytest.raises(WriteError, match=r"a row is too large.*kafka.max.request.size"):
        query.write_task(0, ["fine", "x" * 1_100_000])
    patient = Query(query.servers, query.topic, query.name, kafka_max_request_size="4000000")
    with pytest.raises(WriteError, match=r"a row is too large.*max.message.bytes"):
        patient.write_task(0, ["x" * 2_000_000])
    assert open_transactions(query) == []  # both were aborted
    query.run(0)
    assert query.read() == expected(1)


def test_a_checkpoint_of_another_delivery(query: Query, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="wrote with another delivery"):
        query.writer.commit(query.write(3), 3)
    here = Query(query.servers, query.topic, checkpointLocation=str(tmp_path))
    here.run(0)
    options = {"kafka.bootstrap.servers": query.servers, "topic": query.topic, "checkpointLocation": str(tmp_path)}
    with pytest.raises(OptionError, match="delivery=exactly-once: set that option"):
        check_delivery(parse_write_options(options))
    check_delivery(parse_write_options({**options, "delivery": "exactly-once"}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delivery": "exactly once"}, "must be at-least-once or exactly-once"),
        ({"delivery": "exactly-once", "kafka.message.max.bytes": "1"}, "max.request.size"),
        ({"delivery": "exactly-once", "kafka.acks": "1"}, "acks=all"),
        ({"delivery": "exactly-once", "kafka.transactional.id": "mine"}, "leave it out"),
        ({"decisionsTopic": "d"}, "is for delivery=exactly-once"),
        ({"delivery": "exactly-once", "decisionsTopic": " "}, "decisionsTopic is empty"),
    ],
)
def test_options_that_contradict(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_write_options({"kafka.bootstrap.servers": "localhost:1", "topic": "t", **options})


def test_a_bounded_write_is_refused() -> None:
    source = KohortDataSource({"kafka.bootstrap.servers": "localhost:1", "topic": "t", "delivery": "exactly-once"})
    with pytest.raises(OptionError, match="for streams"):
        source.writer(StructType().add("value", "string"), overwrite=False)
