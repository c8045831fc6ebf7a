"""A task's read: every offset of its range, whatever happens to the broker meanwhile."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import kohort
from kohort.client.blocking import BlockingTransport
from kohort.client.types import TopicPartition as KohortPartition
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FetchRequest
from kohort.spark import fetch
from kohort.spark.accounting import DataLossError
from kohort.spark.connection import POOL
from kohort.spark.fetch import ReadTask
from kohort.spark.offsets import Piece
from spark.query import create, delete, produce, unique

VALUES = [f"{number:0100d}" for number in range(2000)]


@pytest.fixture
def topic(servers: str) -> str:
    name = unique("orders")
    create(servers, name, 1)
    for first in range(0, 2000, 500):
        produce(servers, name, VALUES[first : first + 500], partition=0)
    return name


def task(servers: str, topic: str, first: int, stop: int, strict: bool = True, **settings: Any) -> ReadTask:
    given = {"bootstrap.servers": servers, "max.partition.fetch.bytes": 65536, **settings}
    return ReadTask((Piece(topic, 0, first, stop),), ("offset", "value"), given, strict, rows_per_batch=100)


def rows(batches: Any) -> list[tuple[int, str]]:
    table = pa.Table.from_batches(list(batches))
    return [(row["offset"], row["value"].decode()) for row in table.to_pylist()]


def kept_connections(settings: Any) -> list[BlockingTransport]:
    """Those in the pool with the client id of these settings, which no other test uses."""
    (kept,) = [connections for key, connections in POOL._idle.items() if settings["client.id"] in key]
    return kept


def test_exactly_the_range_is_read(servers: str, topic: str) -> None:
    for first, stop in [(0, 2000), (0, 1), (1999, 2000), (137, 1603)]:
        assert rows(fetch.read(task(servers, topic, first, stop))) == list(enumerate(VALUES))[first:stop]


def test_a_task_reads_its_pieces_one_after_the_other_over_one_connection(servers: str, topic: str) -> None:
    POOL.close()
    pieces = (Piece(topic, 0, 0, 700), Piece(topic, 0, 700, 701), Piece(topic, 0, 1500, 2000))
    several = replace(task(servers, topic, 0, 1, **{"client.id": unique("worker")}), pieces=pieces)
    expected = list(enumerate(VALUES))[:701] + list(enumerate(VALUES))[1500:]
    assert rows(fetch.read(several)) == expected
    assert len(kept_connections(several.settings)) == 1
    reader = fetch.read(several)
    next(reader)
    reader.close()
    assert rows(fetch.read(several)) == expected


@pytest.fixture
def four(servers: str) -> str:
    """A topic with 20 records in each of four partitions."""
    name = unique("orders")
    create(servers, name, 4)
    for partition in range(4):
        produce(servers, name, VALUES[partition * 20 : partition * 20 + 20], partition=partition)
    return name


def several(servers: str, *pieces: Piece, **settings: Any) -> ReadTask:
    return replace(task(servers, pieces[0].topic, 0, 1, **settings), pieces=pieces)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The partitions of each Fetch sent from here."""
    fetches: list[list[int]] = []
    send = BlockingTransport.send

    def noting(transport: BlockingTransport, request: Any, *rest: Any, **named: Any) -> None:
        if isinstance(request, FetchRequest):
            fetches.append([part.partition for topic in request.topics for part in topic.partitions])
        send(transport, request, *rest, **named)

    monkeypatch.setattr(BlockingTransport, "send", noting)
    return fetches


@pytest.mark.parametrize("by_id", [True, False])
def test_a_small_task_asks_for_all_of_its_pieces_at_once(
    servers: str, four: str, sent: list[list[int]], by_id: bool
) -> None:
    small = several(servers, *(Piece(four, partition, 5, 20) for partition in range(4)))
    if by_id:
        cluster = fetch.cluster_for(small.settings)
        cluster.refresh([four])
        small = replace(small, topic_ids={four: cluster.topic_id(four)})
    expected = [(offset, VALUES[partition * 20 + offset]) for partition in range(4) for offset in range(5, 20)]
    assert rows(fetch.read(small)) == expected
    assert sent == [[0, 1, 2, 3]]


def test_two_pieces_of_a_partition_are_not_asked_for_at_once(servers: str, four: str, sent: list[list[int]]) -> None:
    pieces = (Piece(four, 0, 0, 3), Piece(four, 0, 10, 12), Piece(four, 1, 0, 2))
    found = [offset for offset, _ in rows(fetch.read(several(servers, *pieces)))]
    assert found == [0, 1, 2, 10, 11, 0, 1]
    assert sent == [[0, 1], [0]]


def test_a_piece_that_is_gone_is_a_loss_also_where_it_was_asked_for_with_others(servers: str, four: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(four, 2, 10)]).values():
        future.result(30)
    with pytest.raises(DataLossError, match=r"offsets \[5, 10\) were deleted"):
        list(fetch.read(several(servers, *(Piece(four, partition, 5, 20) for partition in range(4)))))


def test_an_answer_with_half_a_batch_is_asked_for_again(
    servers: str, four: str, sent: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers give a whole batch, however large, for the first partition of an answer only."""
    receive = BlockingTransport.receive

    def cut(transport: BlockingTransport) -> Any:
        response = receive(transport)
        parts = [part for topic in getattr(response, "responses", ()) for part in topic.partitions]
        if len(parts) > 1:
            parts[1].records, parts[2].records = bytes(parts[1].records)[:70], b""
        return response

    monkeypatch.setattr(BlockingTransport, "receive", cut)
    found = rows(fetch.read(several(servers, *(Piece(four, partition, 0, 20) for partition in range(4)))))
    assert found == [(offset, VALUES[partition * 20 + offset]) for partition in range(4) for offset in range(20)]
    assert sent == [[0, 1, 2, 3], [1], [2]]


def test_a_broker_that_goes_before_it_answers_all_at_once(
    servers: str, four: str, sent: list[list[int]], broker: kohort.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, restarted = BlockingTransport.receive, []

    def interrupted(transport: BlockingTransport) -> Any:
        if sent and not restarted:
            restarted.append(broker.restart())
        return receive(transport)

    monkeypatch.setattr(BlockingTransport, "receive", interrupted)
    found = rows(fetch.read(several(servers, *(Piece(four, partition, 0, 20) for partition in range(4)))))
    assert found == [(offset, VALUES[partition * 20 + offset]) for partition in range(4) for offset in range(20)]


def test_every_fetch_over_a_connection_uses_the_same_memory(servers: str, topic: str) -> None:
    POOL.close()
    settings = {"client.id": unique("worker")}
    whole = task(servers, topic, 0, 2000, **settings)
    assert rows(fetch.read(whole)) == list(enumerate(VALUES))
    (connection,) = kept_connections(settings)
    memory = connection.connection._kept
    assert 50_000 < len(memory) < 2 * 65536
    assert rows(fetch.read(whole)) == list(enumerate(VALUES))
    assert connection.connection._kept is memory


def test_the_memory_of_a_huge_fetch_is_not_kept(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    POOL.close()
    monkeypatch.setattr("kohort.client.connection.MOST_KEPT", 50_000)
    settings = {"client.id": unique("worker")}
    assert rows(fetch.read(task(servers, topic, 0, 2000, **settings))) == list(enumerate(VALUES))
    (connection,) = kept_connections(settings)
    assert len(connection.connection._kept) <= 50_000


@pytest.mark.parametrize("with_kernel", [True, False])
def test_rows_do_not_change_when_the_next_fetch_takes_the_memory(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch, with_kernel: bool
) -> None:
    if not with_kernel:
        monkeypatch.setattr("kohort.records.kernel.load", lambda: None)
    every_column = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    reader = fetch.read(replace(task(servers, topic, 0, 2000), columns=every_column))
    batches, texts = [], []
    for batch in reader:
        batches.append(batch)
        texts.append(str(batch.to_pylist()))
    assert [str(batch.to_pylist()) for batch in batches] == texts
    assert sum(batch.num_rows for batch in batches) == 2000


def test_a_read_that_is_given_up_leaves_no_answer_for_the_next(servers: str, topic: str) -> None:
    reader = fetch.read(task(servers, topic, 0, 2000))
    next(reader)
    reader.close()
    assert rows(fetch.read(task(servers, topic, 5, 7))) == list(enumerate(VALUES))[5:7]


def test_a_connection_is_kept_for_the_next_task(servers: str, topic: str) -> None:
    POOL.close()
    settings = {"client.id": unique("worker")}
    list(fetch.read(task(servers, topic, 0, 10, **settings)))
    kept = kept_connections(settings)
    connection = kept[0]
    list(fetch.read(task(servers, topic, 10, 20, **settings)))
    assert kept == [connection]


def test_a_broker_restart_within_a_range(servers: str, topic: str, broker: kohort.Broker) -> None:
    reader = fetch.read(task(servers, topic, 0, 2000))
    first = next(reader)
    broker.restart()
    assert rows([first, *reader]) == list(enumerate(VALUES))


def test_a_broker_that_is_away_for_a_while(servers: str, topic: str, broker: kohort.Broker) -> None:
    import threading

    reader = fetch.read(task(servers, topic, 0, 2000))
    first = next(reader)
    broker.stop()
    later = threading.Timer(1.0, broker.start)
    later.start()
    try:
        assert rows([first, *reader]) == list(enumerate(VALUES))
    finally:
        later.join()


def test_no_row_is_dropped_when_asking_ahead_fails(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send, sent = BlockingTransport.send, []

    def fail_sometimes(self: BlockingTransport, request: Any, most: int | None = None, **how: bool) -> None:
        if type(request).__name__ == "FetchRequest":
            sent.append(request)
            if len(sent) in (2, 4):
                raise self._lost("cut off")
        send(self, request, most, **how)

    monkeypatch.setattr(BlockingTransport, "send", fail_sometimes)
    assert rows(fetch.read(task(servers, topic, 0, 2000))) == list(enumerate(VALUES))
    assert len(sent) > 4


def test_a_leader_change_within_a_range(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH]
    asked: list[int] = []
    receive, ask = BlockingTransport.receive, fetch.Cluster._ask_metadata

    def refuse(self: BlockingTransport) -> Any:
        response = receive(self)
        if type(response).__name__ == "FetchResponse" and refusals:
            asked.append(0)
            if len(asked) % 2 == 0:
                answer = response.responses[0].partitions[0]
                answer.error_code, answer.records = refusals.pop(), None
        return response

    looked_up: list[Any] = []
    monkeypatch.setattr(BlockingTransport, "receive", refuse)
    monkeypatch.setattr(fetch.Cluster, "_ask_metadata", lambda *args: looked_up.append(args) or ask(*args))
    assert rows(fetch.read(task(servers, topic, 0, 2000))) == list(enumerate(VALUES))
    assert not refusals and len(looked_up) >= 3


def test_deleted_records_are_a_loss_unless_told_otherwise(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 1500)]).values():
        future.result(30)
    with pytest.raises(DataLossError, match=r"\[0, 1500\).*retention"):
        list(fetch.read(task(servers, topic, 0, 2000)))
    with caplog.at_level(logging.WARNING, "kohort.spark"):
        assert rows(fetch.read(task(servers, topic, 0, 2000, strict=False))) == list(enumerate(VALUES))[1500:]
    assert "going on at 1500" in caplog.text


def test_a_log_that_is_shorter_than_the_range(servers: str, topic: str) -> None:
    impatient = {"request.timeout.ms": 300, "fetch.max.wait.ms": 50}
    with pytest.raises(DataLossError, match="the log ends at 2000"):
        list(fetch.read(task(servers, topic, 1990, 2010, **impatient)))
    with pytest.raises(DataLossError, match="truncated or created anew"):
        list(fetch.read(task(servers, topic, 3000, 3010, **impatient)))
    assert len(rows(fetch.read(task(servers, topic, 1990, 2010, strict=False, **impatient)))) == 10


def test_a_deleted_topic(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every broker can be asked: then it may be a new topic that some do not know yet, for a while."""
    monkeypatch.setattr(fetch, "GONE_PATIENCE_MS", 300)
    monkeypatch.setattr(fetch.Cluster, "ids_everywhere", lambda *_: None)
    delete(servers, topic)
    with pytest.raises(DataLossError, match="does not exist"):
        list(fetch.read(task(servers, topic, 0, 2000)))
    assert list(fetch.read(task(servers, topic, 0, 2000, strict=False))) == []


@pytest.mark.parametrize("again", [True, False])
def test_a_batch_of_a_topic_deleted_meanwhile_is_over_soon_and_says_what_happened(
    servers: str, four: str, again: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every broker says so: nobody waits, neither once nor for every partition."""
    monkeypatch.setattr(fetch, "GONE_PATIENCE_MS", 600_000)
    monkeypatch.setattr(fetch, "GONE_EVERYWHERE_SECONDS", 0.2)
    planned = several(servers, *(Piece(four, partition, 5, 20) for partition in range(4)))
    cluster = fetch.cluster_for(planned.settings)
    cluster.refresh([four])
    planned = replace(planned, topic_ids={four: (before := cluster.topic_id(four))})
    delete(servers, four)
    happened = "was deleted after this batch was planned"
    if again:
        create(servers, four, 4)
        produce(servers, four, VALUES[:80])
        cluster.refresh([four])
        happened = f"was deleted, and created again as {cluster.topic_id(four)}"
    says = (
        rf"{four}-0 does not exist as topic {before} any more: it {happened}; offsets \[5, 20\) of this batch are gone"
    )
    with pytest.raises(DataLossError, match=says):
        list(fetch.read(planned))
    with caplog.at_level(logging.WARNING, "kohort.spark"):
        assert list(fetch.read(replace(planned, fail_on_data_loss=False))) == []
    assert [caplog.text.count(f"{four}-{number} does not exist") for number in range(4)] == [1, 1, 1, 1]


def test_a_topic_that_a_broker_knows_is_waited_for(servers: str, four: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the leader is new and has not heard of it yet."""
    monkeypatch.setattr(fetch, "GONE_EVERYWHERE_SECONDS", 0)
    planned = several(servers, Piece(four, 0, 5, 20))
    cluster = fetch.cluster_for(planned.settings)
    cluster.refresh([four])
    known, answers = cluster.topic_id(four), iter([{"", cluster.topic_id(four)}, {cluster.topic_id(four)}])
    monkeypatch.setattr(cluster, "ids_everywhere", lambda topic: next(answers))
    fetched, refused = fetch.RangeReader._fetch, iter([True, True])

    def refusing(reader: Any) -> Any:
        if next(refused, False):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return fetched(reader)

    monkeypatch.setattr(fetch.RangeReader, "_fetch", refusing)
    assert len(rows(fetch.read(replace(planned, topic_ids={four: known})))) == 15
    assert next(answers, None) is None, "both times somebody was asked"


def test_a_damaged_batch_fails_the_task(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = fetch.Account.walk

    def damage(self: fetch.Account, records: Any) -> bool:
        records[-1] ^= 1
        return walk(self, records)

    monkeypatch.setattr(fetch.Account, "walk", damage)
    with pytest.raises(RuntimeError, match="cannot be decoded"):
        list(fetch.read(task(servers, topic, 0, 2000)))


@pytest.mark.parametrize("replica_has", [500, 0, None])
def test_what_a_near_replica_lacks_is_read_from_the_leader(
    servers: str, topic: str, replica_has: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The replica is another broker with the beginning of the topic, without any of it, or without the topic."""
    with kohort.Broker(config={"auto.create.topics.enable": "false"}) as replica:
        if replica_has is not None:
            create(replica.bootstrap_servers, topic, 1)
            produce(replica.bootstrap_servers, topic, VALUES[:replica_has], partition=0)
        wanted = task(servers, topic, 0, 2000, **{"client.rack": "a", "client.id": unique("worker")})
        cluster = fetch.cluster_for(wanted.settings)
        place = KohortPartition(topic, 0)
        cluster.leader(place)
        cluster._nodes[99] = ("127.0.0.1", replica.port)
        assert cluster.prefer(place, 99) and cluster.replica(place) == ("127.0.0.1", replica.port)
        with caplog.at_level(logging.INFO, "kohort.spark"):
            assert rows(fetch.read(wanted)) == list(enumerate(VALUES))
        assert "from the leader instead of a near replica" in caplog.text
        assert cluster.replica(place) is None


def test_a_replica_that_is_not_known_is_not_looked_for(servers: str, topic: str) -> None:
    wanted = task(servers, topic, 0, 2000, **{"client.rack": "a", "client.id": unique("worker")})
    cluster = fetch.cluster_for(wanted.settings)
    cluster.leader(KohortPartition(topic, 0))
    assert not cluster.prefer(KohortPartition(topic, 0), 99)
    assert rows(fetch.read(wanted)) == list(enumerate(VALUES))
