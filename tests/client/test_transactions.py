"""kohort.Producer in transactions: what consumers read of them, and what each failure says to do."""

import asyncio
from unittest import mock

import pytest

import kohort
from kohort.broker.apis import features
from kohort.client import AsyncProducer, ConfigError, KafkaError, TopicPartition
from kohort.client.errors import ProducerFencedError, TransactionAbortableError
from kohort.client.transactions import MOVES, Step, Transaction
from kohort.protocol.errors import ErrorCode

LIMIT_S = 60


@pytest.fixture(scope="module", params=[1, 2], ids=["TV1", "TV2"])
def broker(request):
    """Whose transaction.version says how producers speak to it."""
    with (
        mock.patch.dict(features.LEVELS, {"transaction.version": request.param}),
        kohort.Broker(config={"num.partitions": 2, "offsets.topic.num.partitions": 2}) as running,
    ):
        yield running


def is_tv2(broker):
    return features.LEVELS["transaction.version"] == 2


def producer(broker, transactional_id, **settings):
    return kohort.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id, **settings)


def read(broker, topic, count, isolation="read_committed"):
    """The first `count` values, and that no more come before the end of what is stable."""
    settings = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        partitions = [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found = []
        while len(found) < count or any(consumer.position(tp) < ends[tp] for tp in partitions):
            found += [record.value for record in consumer.poll(1)]
        return sorted(found)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_handed_over_is_ended_by_somebody_else(broker, commit):
    topic = f"handed-{commit}"
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with producer(broker, topic) as p:
            p.begin()
            p.send(topic, b"a", partition=0)
            handed = p.hand_over()
            with pytest.raises(KafkaError, match="handed over"):
                p.send(topic, b"late", partition=0)
        assert read(broker, topic, 0) == []  # its producer is closed, and nothing is ended by that
        assert admin.describe_transactions([topic])[topic].state == "Ongoing"
        admin.end_transaction(handed, commit)
        admin.end_transaction(handed, commit)  # whoever does not know whether it was done does it again
        with pytest.raises(ProducerFencedError):
            admin.end_transaction(handed, not commit)
    assert read(broker, topic, int(commit)) == [b"a"] * commit


def test_after_a_hand_over_the_next_transaction_is_another(broker):
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin, producer(broker, "next") as p:
        p.begin()
        assert p.hand_over() is None  # nobody knows of it, there is nothing to end
        p.begin()
        p.send("next", b"a", partition=0)
        first = p.hand_over()
        admin.end_transaction(first)
        p.begin()
        p.send("next", b"b", partition=0)
        second = p.hand_over()
        with pytest.raises(ProducerFencedError):
            admin.end_transaction(first, commit=False)
        p.begin()  # nobody has ended it: it is aborted
        with pytest.raises(ProducerFencedError):
            admin.end_transaction(second)
        p.send("next", b"c", partition=0)
        p.commit()
    assert read(broker, "next", 2) == [b"a", b"c"]


def test_committed_is_read_and_aborted_is_not(broker):
    with producer(broker, "plain") as p:
        p.begin()
        p.send("plain", b"a", partition=0)
        p.send("plain", b"b", partition=1)
        p.commit()
        p.begin()
        p.send("plain", b"never", partition=0).result(LIMIT_S)
        p.abort()
        with p.transaction():
            p.send("plain", b"c", partition=0)
    assert read(broker, "plain", 3) == [b"a", b"b", b"c"]
    assert b"never" in read(broker, "plain", 4, "read_uncommitted")


def test_a_block_that_raises_is_aborted(broker):
    with producer(broker, "raises") as p:
        with pytest.raises(ZeroDivisionError), p.transaction():
            p.send("raises", b"never")
            raise ZeroDivisionError
        with p.transaction():
            p.send("raises", b"a")
    assert read(broker, "raises", 1) == [b"a"]


def test_tv2_raises_the_epoch_with_every_end_and_enlists_by_writing(broker):
    """KIP-890: a record of an ended transaction that comes late is of a lower epoch; two round trips fall away."""
    with producer(broker, "wire", client_id="wire") as p:
        for end in (p.commit, p.abort, p.commit):
            p.begin()
            p.send("wire", b"a", partition=0).result(LIMIT_S)
            p.send_offsets({TopicPartition("wire", 0): 1}, "wire-group")
            end()
    sent = broker.requests(client="wire")
    ends = [request for request in sent if request.api == "EndTxn"]
    enlisting = {request.api for request in sent} & {"AddPartitionsToTxn", "AddOffsetsToTxn"}
    versions = {request.api: request.version for request in sent}
    found = (versions["EndTxn"], versions["Produce"], versions["TxnOffsetCommit"], [end.producer_epoch for end in ends])
    if is_tv2(broker):
        assert found == (5, 12, 5, [0, 1, 2]) and not enlisting
    else:
        assert found == (4, 11, 3, [0, 0, 0]) and enlisting == {"AddPartitionsToTxn", "AddOffsetsToTxn"}
    assert broker.committed("wire-group") == {("wire", 0): 1}


def test_the_answer_to_a_commit_is_lost(broker):
    """The same commit again, by the epoch it had, is known for what it is."""
    with producer(broker, "again", client_id="again", request_timeout_ms=1_000) as p:
        p.begin()
        p.send("again", b"a")
        broker.faults.disconnect("EndTxn", client="again", before=False, times=1)
        p.commit()
        with p.transaction():
            p.send("again", b"b")
    assert read(broker, "again", 2) == [b"a", b"b"]


def test_many_transactions_of_many_records(broker):
    with producer(broker, "many", linger_ms=0, batch_size=200) as p:
        for i in range(30):
            p.begin()
            for j in range(20):
                p.send("many", f"{i}-{j}")
            p.abort() if i % 3 == 0 else p.commit()
    assert read(broker, "many", 400) == sorted(f"{i}-{j}".encode() for i in range(30) if i % 3 for j in range(20))


def test_offsets_and_output_move_together(broker):
    broker.create_topic("in", 1)
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as source:
        for i in range(10):
            source.send("in", b"%d" % i)
    settings = {"group_id": "eos", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer,
        producer(broker, "eos") as p,
    ):
        consumer.subscribe("in")
        records = []
        while len(records) < 10:
            records += consumer.poll(1)
        p.begin()
        p.send("out", b"lost")
        p.send_offsets({TopicPartition("in", 0): 4}, consumer.group_metadata())
        p.abort()
        assert broker.committed("eos") == {}
        with p.transaction():
            for record in records:
                p.send("out", record.value)
            p.send_offsets({TopicPartition("in", 0): 10}, consumer.group_metadata())
        assert broker.committed("eos") == {("in", 0): 10}
        assert read(broker, "out", 10) == sorted(b"%d" % i for i in range(10))
        broker.evict("eos", client=consumer.config["client.id"])
        p.begin()
        p.send("out", b"of a consumer that is out")
        with pytest.raises(TransactionAbortableError, match="lost its place"):
            p.send_offsets({TopicPartition("in", 0): 11}, consumer.group_metadata())
        with pytest.raises(TransactionAbortableError, match=r"abort\(\)"):
            p.commit()
        p.abort()
    assert len(read(broker, "out", 10)) == 10


def test_whoever_comes_later_has_the_id(broker):
    with producer(broker, "fence") as first, producer(broker, "fence") as second:
        first.begin()
        first.send("fence", b"of the first").result(LIMIT_S)
        second.begin()
        with pytest.raises(ProducerFencedError, match="taken over"):
            first.commit()
        with pytest.raises(ProducerFencedError):
            first.begin()
        second.send("fence", b"of the second")
        second.commit()
    assert read(broker, "fence", 1) == [b"of the second"]


def test_a_transaction_that_takes_too_long_is_told():
    with kohort.Broker(clock="manual") as broker, producer(broker, "slow", transaction_timeout_ms=10_000) as p:
        broker.create_topic("slow", 1)
        p.begin()
        p.send("slow", b"never").result(LIMIT_S)
        broker.clock.advance(30)
        with pytest.raises(ProducerFencedError, match=r"transaction\.timeout\.ms"):
            p.commit()


def test_a_restart_of_the_broker_in_between(broker):
    with producer(broker, "restart") as p:
        p.begin()
        p.send("restart", b"a").result(LIMIT_S)
        broker.restart()
        p.send("restart", b"b")
        p.commit()
    assert read(broker, "restart", 2) == [b"a", b"b"]


def test_a_record_that_is_refused_breaks_the_transaction(broker):
    broker.create_topic("small", 1, {"max.message.bytes": "200"})
    with producer(broker, "small") as p:
        p.begin()
        p.send("small", b"x" * 1000)
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
            p.commit()
        p.abort()
        with p.transaction():
            p.send("small", b"a")
    assert read(broker, "small", 1) == [b"a"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda p: p.send("t", b"a"), "begin"),
        (lambda p: p.commit(), "begin"),
        (lambda p: p.abort(), "begin"),
        (lambda p: p.send_offsets({}, "g"), "begin"),
        (lambda p: (p.begin(), p.begin()), "commit"),
    ],
)
def test_what_cannot_be_done_now_says_what_can(broker, call, says):
    with producer(broker, "order") as p:
        with pytest.raises(KafkaError, match=says) as raised:
            call(p)
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE


def test_settings_that_do_not_go_together(broker):
    with pytest.raises(ConfigError, match="acks=all"):
        producer(broker, "x", acks=1)
    with (
        kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as p,
        pytest.raises(ConfigError, match="transactional"),
    ):
        p.begin()
    long = producer(broker, "timeout", transaction_timeout_ms=10_000_000)
    with long as p, pytest.raises(KafkaError, match="INVALID_TRANSACTION_TIMEOUT"):
        p.begin()


def test_asyncio(broker):
    async def run():
        settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "async"}
        async with AsyncProducer(**settings) as p:
            async with p.transaction():
                await p.send("async", b"a")
            with pytest.raises(ZeroDivisionError):
                async with p.transaction():
                    await p.send("async", b"never")
                    raise ZeroDivisionError

    asyncio.run(run())
    assert read(broker, "async", 1) == [b"a"]


def test_arrow_leaves_out_what_was_aborted(broker):
    pytest.importorskip("pyarrow")
    with producer(broker, "arrow") as p:
        p.begin()
        p.send("arrow", b"never", partition=0).result(LIMIT_S)
        p.abort()
        with p.transaction():
            p.send("arrow", b"a", partition=0)
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([TopicPartition("arrow", 0)])
        rows = []
        while not rows:
            rows += [value for batch in consumer.poll_arrow(1) for value in batch.column("value").to_pylist()]
    assert rows == [b"a"]


def test_the_steps_are_a_table():
    assert set(MOVES) == set(Step)
    with pytest.raises(AssertionError):
        Transaction("t").become(Step.COMMITTING)
