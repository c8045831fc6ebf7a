"""ListOffsets and OffsetForLeaderEpoch."""

import pytest

from kohort.broker.apis import offsets
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from wire import World, batch


@pytest.fixture
def world():
    made = World()
    made.create_topic("t")
    client = made.connect()
    for timestamp in (1000, 3000, 2000):
        client.produce("t", batch(b"a", b"b", timestamp=timestamp))
    return made


def ask(client, timestamp, *, version=11, partition=0, topic="t", epoch=-1, isolation=0):
    kind = messages.ListOffsetsRequest
    row = kind.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = kind(
        replica_id=-1, isolation_level=isolation, topics=[kind.ListOffsetsTopic(name=topic, partitions=[row])]
    )
    return client.call(request, version).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (offsets.LATEST, 6, -1),
        (offsets.EARLIEST, 0, -1),
        (offsets.EARLIEST_LOCAL, 0, -1),
        (offsets.LATEST_TIERED, -1, -1),
        (offsets.EARLIEST_PENDING_UPLOAD, -1, -1),
        (offsets.MAX_TIMESTAMP, 3, 3001),
        (0, 0, 1000),
        (1001, 1, 1001),
        (1002, 2, 3000),
        (3001, 3, 3001),
        (3002, -1, -1),
    ],
)
def test_by_timestamp(world, timestamp, offset, found):
    row = ask(world.connect(), timestamp)
    assert (row.error_code, row.offset, row.timestamp) == (0, offset, found)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version(world, version):
    assert ask(world.connect(), offsets.LATEST, version=version).offset == 6


def test_special_timestamps_need_their_version(world):
    client = world.connect()
    assert ask(client, offsets.MAX_TIMESTAMP, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ask(client, offsets.EARLIEST_LOCAL, version=7).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_refusals(world):
    client = world.connect()
    assert ask(client, -1, topic="nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, -1, partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, -1, epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_read_committed(world):
    assert ask(world.connect(), offsets.LATEST, isolation=1).offset == 6


def test_epochs_of_an_empty_and_of_a_full_log(world):
    world.create_topic("empty")
    client = world.connect()
    assert ask(client, offsets.EARLIEST, topic="empty").leader_epoch == 0
    assert ask(client, offsets.LATEST).leader_epoch == 0


def epoch_end(client, epoch, current=-1):
    kind = messages.OffsetForLeaderEpochRequest
    row = kind.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = kind(replica_id=-2, topics=[kind.OffsetForLeaderTopic(topic="t", partitions=[row])])
    row = client.call(request, 4).topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.end_offset


def test_where_an_epoch_ends(world):
    again = World(store=world.store)
    client = again.connect()
    assert epoch_end(client, 0) == (0, 0, 6)
    assert epoch_end(client, 1) == (0, 1, 6)
    client.produce("t", batch(b"a"))
    assert epoch_end(client, 0) == (0, 0, 6)
    assert epoch_end(client, 1) == (0, 1, 7)
    assert epoch_end(client, 2) == (0, -1, -1)
    assert epoch_end(client, 0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
