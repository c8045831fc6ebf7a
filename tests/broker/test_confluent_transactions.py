"""Transactions of confluent-kafka on this broker: the flow of TV1, as librdkafka has no KIP-890 part 2 yet."""

import confluent_kafka as ck
import pytest

import kohort

LIMIT_S = 30


def producer_of(broker, transactional_id="tx", **settings):
    given = {name.replace("_", "."): value for name, value in settings.items()}
    made = ck.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id} | given)
    made.init_transactions(LIMIT_S)
    return made


def consumer_of(broker, group="g", isolation="read_committed", **settings):
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
        | given
    )


def values(broker, topic, count, **settings):
    """The first `count` values that a consumer reads, and whatever comes with them."""
    consumer = consumer_of(broker, group=f"reader-{topic}", **settings)
    consumer.subscribe([topic])
    found = []
    try:
        while len(found) < count:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"{found} and no more"
            assert message.error() is None, message.error()
            found.append(message.value())
        return found
    finally:
        consumer.close()


def test_committed_is_read_and_aborted_is_not(broker):
    broker.create_topic("t", 1)
    producer = producer_of(broker)
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.commit_transaction(LIMIT_S)
    producer.begin_transaction()
    producer.produce("t", b"never")
    producer.flush(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    producer.begin_transaction()
    producer.produce("t", b"b")
    producer.commit_transaction(LIMIT_S)
    assert values(broker, "t", 2) == [b"a", b"b"]


def test_a_second_producer_of_the_same_id_fences_the_first(broker):
    broker.create_topic("t", 1)
    first = producer_of(broker)
    first.begin_transaction()
    first.produce("t", b"of the first")
    first.flush(LIMIT_S)
    second = producer_of(broker)
    with pytest.raises(ck.KafkaException) as raised:
        first.commit_transaction(LIMIT_S)
    assert raised.value.args[0].fatal() and raised.value.args[0].code() == ck.KafkaError._FENCED
    second.begin_transaction()
    second.produce("t", b"of the second")
    second.commit_transaction(LIMIT_S)
    assert values(broker, "t", 1) == [b"of the second"]


def test_read_process_write(broker):
    """Offsets and output move together: what is aborted is processed again, and comes out once."""
    broker.create_topic("in", 2)
    broker.create_topic("out", 1)
    source = ck.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for i in range(20):
        source.produce("in", b"%d" % i, partition=i % 2)
    source.flush(LIMIT_S)
    consumer, producer = consumer_of(broker), producer_of(broker)
    consumer.subscribe(["in"])
    done, attempts = 0, 0
    while done < 20:
        message = consumer.poll(LIMIT_S)
        assert message is not None and message.error() is None
        producer.begin_transaction()
        producer.produce("out", message.value())
        producer.send_offsets_to_transaction(
            [ck.TopicPartition("in", message.partition(), message.offset() + 1)],
            consumer.consumer_group_metadata(),
            LIMIT_S,
        )
        attempts += 1
        if attempts % 3 == 0:
            producer.abort_transaction(LIMIT_S)
            consumer.seek(ck.TopicPartition("in", message.partition(), message.offset()))
        else:
            producer.commit_transaction(LIMIT_S)
            done += 1
    consumer.close()
    assert sorted(values(broker, "out", 20)) == sorted(b"%d" % i for i in range(20))
    assert broker.committed("g") == {("in", 0): 10, ("in", 1): 10}


def test_a_member_that_is_out_cannot_commit_its_offsets(broker):
    broker.create_topic("t", 1)
    first = ck.Producer({"bootstrap.servers": broker.bootstrap_servers})
    first.produce("t", b"a")
    assert first.flush(LIMIT_S) == 0
    consumer, producer = consumer_of(broker), producer_of(broker)
    consumer.subscribe(["t"])
    broker.wait_stable("g", 1) if consumer.poll(LIMIT_S) else None
    metadata = consumer.consumer_group_metadata()
    broker.evict("g", client="rdkafka")
    producer.begin_transaction()
    producer.produce("t", b"b")
    with pytest.raises(ck.KafkaException) as raised:
        producer.send_offsets_to_transaction([ck.TopicPartition("t", 0, 1)], metadata, LIMIT_S)
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction(LIMIT_S)
    assert broker.committed("g") == {}
    consumer.close()


def test_a_transaction_that_takes_too_long():
    with kohort.Broker(clock="manual") as broker:
        broker.create_topic("t", 1)
        producer = producer_of(broker, transaction_timeout_ms=10_000)
        producer.begin_transaction()
        producer.produce("t", b"never")
        producer.flush(LIMIT_S)
        broker.clock.advance(30)
        with pytest.raises(ck.KafkaException) as raised:
            producer.commit_transaction(LIMIT_S)
        assert raised.value.args[0].fatal() or raised.value.args[0].txn_requires_abort()


def test_a_timeout_above_the_maximum_is_refused(broker):
    with pytest.raises(ck.KafkaException) as raised:
        producer_of(broker, transaction_timeout_ms=1_000_000)
    assert raised.value.args[0].code() == ck.KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_a_restart_in_the_middle_of_a_transaction(broker):
    broker.create_topic("t", 1)
    producer = producer_of(broker)
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.flush(LIMIT_S)
    broker.restart()
    producer.produce("t", b"b")
    producer.commit_transaction(LIMIT_S)
    assert values(broker, "t", 2) == [b"a", b"b"]
