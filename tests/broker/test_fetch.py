"""Fetch: limits, waiting, isolation, epochs, and incremental sessions (KIP-227), request by request."""

import pytest

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import read_header
from wire import World, batch, fetch_request


@pytest.fixture
def world():
    return World()


def rows(answer):
    return [row for topic in answer.responses for row in topic.partitions]


def base_offsets(records):
    data, pos, found = bytes(records), 0, []
    while pos < len(data):
        header = read_header(data, pos)
        found.append(header.base_offset)
        pos += header.size
    return found


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version(world, version):
    topic = world.create_topic("t")
    client = world.connect()
    client.produce("t", batch(b"a", b"b"))
    answer = client.call(fetch_request(topic.topic_id if version >= 13 else "t", 0), version)
    (row,) = rows(answer)
    assert (row.error_code, row.high_watermark, base_offsets(row.records)) == (0, 2, [0])


# Waiting.


def test_an_empty_fetch_waits_for_data(world):
    world.create_topic("t")
    consumer, producer = world.connect(), world.connect()
    consumer.send(fetch_request("t", 0, max_wait_ms=500), 12)
    world.turn()
    world.advance(499)
    assert consumer.answers == []
    producer.produce("t", batch(b"a"))
    assert base_offsets(rows(consumer.answers[0])[0].records) == [0]


def test_an_empty_fetch_is_answered_at_its_deadline(world):
    world.create_topic("t")
    consumer = world.connect()
    consumer.send(fetch_request("t", 0, max_wait_ms=500), 12)
    world.turn()
    assert world.core.next_deadline() == world.now_ms + 500
    world.advance(500)
    (row,) = rows(consumer.answers[0])
    assert (row.error_code, bytes(row.records), row.high_watermark) == (0, b"", 0)


def test_a_fetch_waits_until_min_bytes_are_there(world):
    world.create_topic("t")
    consumer, producer = world.connect(), world.connect()
    consumer.send(fetch_request("t", 0, max_wait_ms=500, min_bytes=200), 12)
    producer.produce("t", batch(b"a"))
    producer.produce("t", batch(b"b"))
    assert consumer.answers == []
    producer.produce("t", batch(b"c" * 100))
    assert base_offsets(rows(consumer.answers[0])[0].records) == [0, 1, 2]


def test_a_fetch_of_nothing_known_is_answered_at_once(world):
    answer = world.connect().call(fetch_request("nope", 0, max_wait_ms=10_000), 12)
    assert rows(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_the_topic_ends_the_wait(world):
    world.create_topic("t")
    consumer, admin = world.connect(), world.connect()
    consumer.send(fetch_request("t", 0, max_wait_ms=10_000), 12)
    world.turn()
    admin.call(messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert rows(consumer.answers[0])[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Limits.


def test_at_least_one_batch_even_if_it_is_too_large(world):
    world.create_topic("t")
    client = world.connect()
    for _ in range(2):
        client.produce("t", batch(b"a" * 1000))
    (row,) = rows(client.call(fetch_request("t", 0, partition_max_bytes=10), 12))
    assert base_offsets(row.records) == [0]


def test_max_bytes_bounds_all_partitions_together(world):
    world.create_topic("t", 3)
    client = world.connect()
    for partition in range(3):
        for _ in range(3):
            client.produce("t", batch(b"a" * 1000), partition=partition)
    size = len(batch(b"a" * 1000))
    found = rows(client.call(fetch_request("t", 0, 0, 0, max_bytes=4 * size + 10), 12))
    assert [len(base_offsets(row.records)) for row in found] == [3, 1, 0]
    found = rows(client.call(fetch_request("t", 0, 0, 0, max_bytes=1), 12))
    assert [len(base_offsets(row.records)) for row in found] == [1, 0, 0]


def test_offsets_outside_the_log(world):
    world.create_topic("t")
    client = world.connect()
    for _ in range(3):
        client.produce("t", batch(b"a"))
    assert rows(client.call(fetch_request("t", 4), 12))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    kind = messages.DeleteRecordsRequest
    row = kind.DeleteRecordsPartition(partition_index=0, offset=2)
    client.call(kind(topics=[kind.DeleteRecordsTopic(name="t", partitions=[row])]), 2)
    row = rows(client.call(fetch_request("t", 1), 12))[0]
    assert (row.error_code, row.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert rows(client.call(fetch_request("t", 2), 12))[0].log_start_offset == 2


# Epochs.


def restarted(world):
    """The same store under a new broker: partitions have the next leader epoch."""
    return World(store=world.store)


def test_a_stale_or_unknown_leader_epoch_is_refused(world):
    world.create_topic("t")
    client = restarted(world).connect()
    for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0), (-1, 0)):
        (row,) = rows(client.call(fetch_request("t", 0, current_leader_epoch=epoch), 12))
        assert row.error_code == code


def test_a_stale_leader_epoch_comes_with_the_leader_from_version_16_on(world):
    topic = world.create_topic("t")
    answer = restarted(world).connect().call(fetch_request(topic.topic_id, 0, current_leader_epoch=0), 16)
    (row,) = rows(answer)
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 1)
    assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [(1, "broker", 9092)]


def test_a_diverging_client_is_told_where_its_epoch_ends(world):
    world.create_topic("t")
    client = world.connect()
    for _ in range(3):
        client.produce("t", batch(b"a"))
    second = restarted(world)
    client = second.connect()
    client.produce("t", batch(b"b"))
    (row,) = rows(client.call(fetch_request("t", 4, last_fetched_epoch=0), 12))
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset, bytes(row.records)) == (0, 3, b"")
    (row,) = rows(client.call(fetch_request("t", 3, last_fetched_epoch=0), 12))
    assert base_offsets(row.records) == [3]


# Topic ids.


def test_an_unknown_topic_id(world):
    answer = world.connect().call(fetch_request(b"x" * 16, 0), 13)
    assert rows(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


# Read committed.


def test_read_committed_has_an_empty_aborted_list_and_a_stable_offset(world):
    world.create_topic("t")
    client = world.connect()
    client.produce("t", batch(b"a"))
    (row,) = rows(client.call(fetch_request("t", 0, isolation_level=1), 12))
    assert (row.last_stable_offset, row.aborted_transactions) == (1, [])
    (row,) = rows(client.call(fetch_request("t", 0), 12))
    assert (row.last_stable_offset, row.aborted_transactions) == (1, None)


# Sessions.


def full(client, *offsets, **options):
    return client.call(fetch_request("t", *offsets, session_id=0, session_epoch=0, **options), 12)


def test_an_incremental_fetch_mentions_only_what_is_new(world):
    world.create_topic("t", 3)
    client = world.connect()
    client.produce("t", batch(b"a"), partition=1)
    answer = full(client, 0, 0, 0)
    session = answer.session_id
    assert session != 0 and [row.partition_index for row in rows(answer)] == [0, 1, 2]
    client.produce("t", batch(b"b"), partition=2)
    moved = fetch_request("t", session_id=session, session_epoch=1)
    kind = messages.FetchRequest
    moved.topics = [
        kind.FetchTopic(
            topic="t", partitions=[kind.FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1 << 20)]
        )
    ]
    answer = client.call(moved, 12)
    assert (answer.session_id, [row.partition_index for row in rows(answer)]) == (session, [2])
    # Nothing moved on partition 2, so its record comes again; nothing else has news.
    answer = client.call(fetch_request("t", session_id=session, session_epoch=2), 12)
    assert [(row.partition_index, base_offsets(row.records)) for row in rows(answer)] == [(2, [0])]


def test_forgotten_partitions_are_not_answered(world):
    world.create_topic("t", 2)
    client = world.connect()
    session = full(client, 0, 0).session_id
    client.produce("t", batch(b"a"), partition=0)
    client.produce("t", batch(b"a"), partition=1)
    request = fetch_request("t", session_id=session, session_epoch=1)
    request.forgotten_topics_data = [messages.FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
    assert [row.partition_index for row in rows(client.call(request, 12))] == [1]


def test_partitions_with_data_take_turns(world):
    world.create_topic("t", 2)
    client = world.connect()
    session = full(client, 0, 0).session_id
    for partition in range(2):
        client.produce("t", batch(b"a" * 500), partition=partition)
    served = []
    for epoch in (1, 2):
        request = fetch_request("t", session_id=session, session_epoch=epoch, max_bytes=10)
        served += [row.partition_index for row in rows(client.call(request, 12)) if row.records]
    assert served == [0, 1]


def test_a_session_of_nothing_new_waits(world):
    world.create_topic("t")
    client, producer = world.connect(), world.connect()
    session = full(client, 0).session_id
    client.send(fetch_request("t", session_id=session, session_epoch=1, max_wait_ms=500), 12)
    world.advance(500)
    assert rows(client.answers[-1]) == []
    client.send(fetch_request("t", session_id=session, session_epoch=2, max_wait_ms=500), 12)
    producer.produce("t", batch(b"a"))
    assert [row.partition_index for row in rows(client.answers[-1])] == [0]


def test_session_errors(world):
    world.create_topic("t")
    client = world.connect()
    session = full(client, 0).session_id
    wrong = client.call(fetch_request("t", session_id=session, session_epoch=5), 12)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    gone = client.call(fetch_request("t", session_id=12345, session_epoch=1), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_id = client.call(fetch_request(b"x" * 16, session_id=session, session_epoch=1), 13)
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_a_session(world):
    world.create_topic("t")
    client = world.connect()
    session = full(client, 0).session_id
    assert len(world.core.fetch_sessions) == 1
    answer = client.call(fetch_request("t", 0, session_id=session, session_epoch=-1), 12)
    assert (answer.session_id, len(world.core.fetch_sessions)) == (0, 0)


def test_an_error_is_repeated_until_it_is_over(world):
    world.create_topic("t")
    client = world.connect()
    answer = full(client, 0, 0)
    assert [row.error_code for row in rows(answer)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    session = answer.session_id
    answer = client.call(fetch_request("t", session_id=session, session_epoch=1), 12)
    assert [row.partition_index for row in rows(answer)] == [1]
    world.core.topics.grow(world.core.topics.by_name["t"], 2)
    answer = client.call(fetch_request("t", session_id=session, session_epoch=2), 12)
    assert [(row.partition_index, row.error_code) for row in rows(answer)] == [(1, 0)]


def test_a_full_cache_declines_new_sessions_until_an_old_one_is_idle():
    world = World({"max.incremental.fetch.session.cache.slots": 2})
    world.create_topic("t", 2)
    one, two, three = (world.connect() for _ in range(3))
    session = full(one, 0).session_id
    assert full(two, 0).session_id != 0
    assert full(three, 0).session_id == 0
    world.advance(120_001)
    assert full(three, 0).session_id != 0
    assert one.call(fetch_request("t", session_id=session, session_epoch=1), 12).error_code != 0


def test_a_larger_session_displaces_a_smaller_one_that_has_been_served():
    world = World({"max.incremental.fetch.session.cache.slots": 1})
    world.create_topic("t", 2)
    small, large = world.connect(), world.connect()
    session = full(small, 0).session_id
    assert full(large, 0, 0).session_id == 0
    for epoch in range(1, 4):
        world.advance(60_000)
        small.call(fetch_request("t", session_id=session, session_epoch=epoch), 12)
    assert full(large, 0, 0).session_id != 0


def test_no_slots_decline_sessions():
    world = World({"max.incremental.fetch.session.cache.slots": 0})
    world.create_topic("t")
    assert full(world.connect(), 0).session_id == 0


def test_cold_reads_run_elsewhere_before_the_answer(world):
    log = world.create_topic("t").partitions[0].log
    client = world.connect()
    client.produce("t", batch(b"a"))
    warmed = []
    log.warm = lambda offset, max_bytes: lambda: warmed.append(offset)
    world.run_jobs = False
    client.send(fetch_request("t", 0), 12)
    world.turn()
    assert len(client.answers) == 1 and warmed == []
    world.run_jobs = True
    world.turn()
    assert warmed == [0] and base_offsets(rows(client.answers[-1])[0].records) == [0]
