"""Under flush.messages=1 consumers see only what is on disk: nobody acts on a record that a power cut takes back."""

from kohort.protocol.messages import ListOffsetsRequest
from wire import World, batch, fetch_request, produce_request

LATEST = -1


def latest_offset(client) -> int:
    kind = ListOffsetsRequest
    topic = kind.ListOffsetsTopic(name="t", partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    answer = client.call(kind(replica_id=-1, topics=[topic]), 7)
    return answer.topics[0].partitions[0].offset


def a_slow_disk() -> tuple[World, object]:
    world = World()
    topic = world.create_topic("t", flush_messages="1")
    log = topic.partitions[0].log
    log.faults.hold_flushes = True
    return world, log


def test_a_parked_fetch_is_answered_when_the_records_are_on_disk():
    world, log = a_slow_disk()
    producer, consumer = world.connect(), world.connect()
    consumer.send(fetch_request("t", 0, max_wait_ms=30_000), 12)
    producer.send(produce_request("t", batch(b"a", b"b")), 11)
    world.turn()
    assert log.end_offset == 2
    assert producer.answers == [] and consumer.answers == []
    assert latest_offset(world.connect()) == 0
    log.release_flushes()
    world.turn()
    assert producer.answers[0].responses[0].partition_responses[0].base_offset == 0
    (row,) = consumer.answers[0].responses[0].partitions
    assert row.high_watermark == 2 and len(row.records) > 0
    assert latest_offset(world.connect()) == 2


def test_a_power_cut_takes_back_nothing_that_was_seen():
    world, _log = a_slow_disk()
    world.connect().send(produce_request("t", batch(b"a")), 11)
    world.turn()
    answer = world.connect().call(fetch_request("t", 0), 12)
    assert not answer.responses[0].partitions[0].records
    world.store.crash()
    again = World(store=world.store)
    answer = again.connect().call(fetch_request("t", 0), 12)
    assert answer.responses[0].partitions[0].high_watermark == 0


def test_what_survives_a_killed_process_is_seen_after_the_restart():
    world, log = a_slow_disk()
    world.connect().send(produce_request("t", batch(b"a")), 11)
    world.turn()
    world.store.crash(lose_unflushed=False)
    log.faults.hold_flushes = False
    again = World(store=world.store)
    answer = again.connect().call(fetch_request("t", 0), 12)
    assert answer.responses[0].partitions[0].high_watermark == 1
