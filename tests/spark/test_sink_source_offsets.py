"""Offsets of the source in the sink's transaction: they count with the batch, and whoever has lost a partition
publishes nothing of it. Source and sink without Spark, on a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import kohort
from kohort.spark import notices, sink_driver
from kohort.spark import sink_commit as sc
from kohort.spark.options import OptionError, parse_write_options
from kohort.spark.sink_commit import Refusal
from spark.query import Query, committed, create, numbers, produce, read_batch, stopping, unique, until
from spark.test_sink_exactly_once import Query as Sink
from spark.test_sink_exactly_once import is_a, open_transactions

SESSION_S = 7
TRANSACTION_S = 1000


class Pipeline:
    """A query that copies: what Spark calls, with its offset log."""

    def __init__(
        self, servers: str, topics: tuple[str, str], group: str, home: Path, before: Pipeline | None = None
    ) -> None:
        self.home, self.before = home, before
        self.batch = 0 if before is None else before.batch
        checkpoint = None if before is None else before.source.offset
        given = {"subscribe": topics[0], "checkpointLocation": str(home)}
        self.source = Query(servers, group, checkpoint, **given)
        options = {"checkpointLocation": str(home), "sourceOffsets": "in-transaction"}
        self.sink = Sink(servers, topics[1], None if before is None else before.sink.name, **options)

    def plan(self) -> None:
        until(self.source.plan, what="a batch")
        (self.home / "offsets").mkdir(exist_ok=True, parents=True)
        (self.home / "offsets" / str(self.batch)).write_text(f"v1\n{{}}\n{json.dumps(self.source.planned)}\n")

    def write(self) -> list[Any]:
        assert self.source.planned is not None
        values = [row[3] for row in read_batch(self.source, self.source.planned)]
        return [self.sink.write_task(self.batch, values[::2]), self.sink.write_task(self.batch, values[1::2])]

    def run(self) -> None:
        self.plan()
        self.sink.writer.commit(self.write(), self.batch)
        self.source.offset, self.source.planned = self.source.planned, None
        self.batch += 1


@pytest.fixture
def topics(servers: str) -> tuple[str, str]:
    made = unique("in"), unique("out")
    create(servers, made[0], 4)
    create(servers, made[1], 2)
    return made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_driver, "_JOIN_LIMIT_S", 0.3)


def test_offsets_count_with_the_batch(
    servers: str, topics: tuple[str, str], tmp_path: Path, broker: kohort.Broker
) -> None:
    group = unique()
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, group, tmp_path / "a")
    with stopping(one.source):
        one.plan()
        messages = one.write()
        assert sum(committed(servers, group, topics[0]).values()) == 0
        one.sink.writer.commit(messages, 0)
        assert committed(servers, group, topics[0]) == dict.fromkeys(range(4), 10)  # the source has not committed yet
        one.source.vanish()
    broker.clock.advance(SESSION_S)
    two = Pipeline(servers, topics, group, tmp_path / "b")
    with stopping(two.source):
        produce(servers, topics[0], numbers(40, 80))
        two.run()
    assert sorted(two.sink.read(), key=int) == numbers(0, 80)


def test_who_takes_over_publishes_what_was_decided(
    servers: str, topics: tuple[str, str], tmp_path: Path, broker: kohort.Broker
) -> None:
    """The group's offsets are behind those rows: nobody else would ever write them."""
    group = unique()
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, group, tmp_path / "a")
    with stopping(one.source):
        one.plan()
        one.sink.commit_until(one.write(), 0, is_a(sc.End, commit=True))
        one.source.vanish()
    assert len(open_transactions(one.sink)) == 2
    broker.clock.advance(SESSION_S)
    two = Pipeline(servers, topics, group, tmp_path / "b")
    with stopping(two.source):
        produce(servers, topics[0], numbers(40, 80))
        two.run()
        assert open_transactions(one.sink) == []
        assert sorted(two.sink.read(), key=int) == numbers(0, 80)
        with mock.patch.object(sink_driver.SinkDriver, "roll_forward") as rolled:
            produce(servers, topics[0], numbers(80, 120))
            two.run()
        assert not rolled.called  # its place in the group is the same


def test_whoever_has_lost_a_partition_cannot_publish(
    servers: str, topics: tuple[str, str], tmp_path: Path, broker: kohort.Broker
) -> None:
    group = unique()
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, group, tmp_path / "a")
    one.plan()
    messages = one.write()
    one.source.vanish()  # as after a pause that was longer than its session
    broker.clock.advance(SESSION_S)
    two = Pipeline(servers, topics, group, tmp_path / "b")
    with stopping(two.source):
        until(lambda: len(two.source.owned()) == 4)
        with pytest.raises(Refusal, match="lost its place in the group"):
            one.sink.writer.commit(messages, 0)
        one.sink.writer.abort(messages, 0)
        assert open_transactions(one.sink) == []
        two.run()
    again = Pipeline(servers, topics, group, tmp_path / "a", one)  # and as member it comes back with its old batch
    again.source.planned = json.loads((tmp_path / "a" / "offsets" / "0").read_text().splitlines()[2])
    with stopping(again.source):
        messages = again.write()
        until(lambda: len(again.source.owned()) == 4, what="it has them again")
        with pytest.raises(Refusal, match="the group stands at 10"):
            again.sink.writer.commit(messages, 0)
        again.sink.writer.abort(messages, 0)
    assert sorted(one.sink.read(), key=int) == numbers(0, 40)


def test_a_machine_that_stood_still_for_longer_than_the_session(
    servers: str, topics: tuple[str, str], tmp_path: Path, broker: kohort.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member is out of the group, nobody else was there to take its partitions, and it is back in a moment: the
    commit waits for that."""
    monkeypatch.setattr(sink_driver, "_JOIN_LIMIT_S", 30)
    group = unique()
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, group, tmp_path / "a")
    with stopping(one.source):
        one.plan()
        messages = one.write()
        broker.clock.advance(SESSION_S)
        one.sink.writer.commit(messages, 0)
        assert committed(servers, group, topics[0]) == dict.fromkeys(range(4), 10)
    assert sorted(one.sink.read(), key=int) == numbers(0, 40)


def test_a_machine_that_stood_still_for_longer_than_the_transactions(
    servers: str, topics: tuple[str, str], tmp_path: Path, broker: kohort.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query fails, as the brokers have aborted what it wrote; its next start writes the batch again."""
    monkeypatch.setattr(sink_driver, "_JOIN_LIMIT_S", 30)
    group = unique()
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, group, tmp_path / "a")
    one.plan()
    planned = one.source.planned
    messages = one.write()
    broker.clock.advance(TRANSACTION_S)
    with stopping(one.source):
        with pytest.raises(Refusal, match="nothing of it is lost: the brokers have aborted"):
            one.sink.writer.commit(messages, 0)
        one.sink.writer.abort(messages, 0)
    assert open_transactions(one.sink) == []
    assert sum(committed(servers, group, topics[0]).values()) == 0
    again = Pipeline(servers, topics, group, tmp_path / "a", one)
    again.source.planned = planned
    with stopping(again.source):
        again.sink.writer.commit(again.write(), 0)
        assert committed(servers, group, topics[0]) == dict.fromkeys(range(4), 10)
    assert sorted(one.sink.read(), key=int) == numbers(0, 40)


def test_a_source_between_two_assignments_is_waited_for(
    servers: str, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notice that nothing is assigned, as a run that was stopped leaves it behind, is no proof of a loss."""
    monkeypatch.setattr(sink_driver, "_JOIN_LIMIT_S", 30)
    read, calls = notices.read, 0

    def late(location: str, batch: int) -> list[Any]:
        nonlocal calls
        calls += 1
        found = read(location, batch)
        return [(notice._replace(owned=frozenset()), end) for notice, end in found] if calls < 3 else found

    monkeypatch.setattr(notices, "read", late)
    group = unique()
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, group, tmp_path / "a")
    with stopping(one.source):
        one.run()
        assert calls == 3
        assert committed(servers, group, topics[0]) == dict.fromkeys(range(4), 10)
    assert sorted(one.sink.read(), key=int) == numbers(0, 40)


def test_partitions_that_do_not_come_back_are_lost(
    servers: str, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = notices.read
    nothing: Any = lambda *of: [(notice._replace(owned=frozenset()), end) for notice, end in read(*of)]  # noqa: E731
    monkeypatch.setattr(notices, "read", nothing)
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, unique(), tmp_path / "a")
    with stopping(one.source):
        one.plan()
        messages = one.write()
        with pytest.raises(Refusal, match="not assigned to this query any more"):
            one.sink.writer.commit(messages, 0)
        one.sink.writer.abort(messages, 0)
    assert open_transactions(one.sink) == []
    assert one.sink.read() == []


def test_a_batch_decided_before_a_crash_is_not_refused_for_its_own_commits(
    servers: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    produce(servers, topics[0], numbers(0, 40))
    one = Pipeline(servers, topics, unique(), tmp_path / "a")
    with stopping(one.source):
        one.plan()
        one.sink.commit_until(one.write(), 0, is_a(sc.Finish), ends=1)
        for name in open_transactions(one.sink):
            with kohort.Admin(bootstrap_servers=servers) as admin:
                admin.end_transaction(handed(admin, name), commit=False)  # as the brokers do in time
        one.sink.writer.commit(one.write(), 0)
    assert sorted(one.sink.read(), key=int) == numbers(0, 40)


def handed(admin: kohort.Admin, name: str) -> kohort.OpenTransaction:
    found = admin.describe_transactions([name])[name]
    assert found is not None
    return kohort.OpenTransaction(name, found.producer_id, found.producer_epoch, True)


def test_a_query_without_such_a_source_is_told(servers: str, topics: tuple[str, str], tmp_path: Path) -> None:
    sink = Sink(servers, topics[1], checkpointLocation=str(tmp_path), sourceOffsets="in-transaction")
    with pytest.raises(Refusal, match="no source of this query"):
        sink.run(0)


@pytest.mark.parametrize(
    "options", [{"delivery": "exactly-once"}, {"checkpointLocation": "/c"}, {"sourceOffsets": "yes"}]
)
def test_options_that_it_needs(options: dict[str, str]) -> None:
    given = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "sourceOffsets": "in-transaction", **options}
    with pytest.raises(OptionError, match="sourceOffsets"):
        parse_write_options(given)
