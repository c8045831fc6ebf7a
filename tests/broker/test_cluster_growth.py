"""The topics of coordinators grow in a cluster: what a name had goes with it; where that cannot be read it waits."""

import time

import pytest

import kohort
from broker.test_cluster import consumer, produce, read
from broker.test_cluster_transactions import CONFIG, begun, damaged
from kohort.cluster.snapshots import decode_state, encode_state
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.coordinator.transactions.records import TRANSACTIONS_TOPIC
from kohort.protocol.errors import ErrorCode

BEFORE, AFTER = 4, 7
GROUPS = [f"g{n}" for n in range(12)]
LIMIT_S = 60


@pytest.fixture
def cluster():
    config = CONFIG | {"offsets.topic.num.partitions": BEFORE}
    with kohort.Cluster(3, config=config) as cluster:
        cluster.create_topic("orders", 6)
        yield cluster


def simple_consumer(cluster, group):
    return kohort.Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False)


def commit(cluster, groups, offset):
    for group in groups:
        with simple_consumer(cluster, group) as one:
            one.assign([kohort.TopicPartition("orders", 0)])
            one.commit({kohort.TopicPartition("orders", 0): offset})


def committed(cluster, group):
    with simple_consumer(cluster, group) as one:
        place = kohort.TopicPartition("orders", 0)
        found = one.committed([place])[place]
        return None if found is None else found.offset


def grow(cluster, topic=OFFSETS_TOPIC, count=AFTER):
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_partitions({topic: count})


def leaders(cluster, topic=OFFSETS_TOPIC):
    """Each broker's partitions, as all brokers know it; nothing while they do not agree."""
    views = [
        broker._call(lambda running: [p.leader_id for p in running.core.topics.by_name[topic].partitions])
        for broker in cluster._awake()
    ]
    return views[0] if all(view == views[0] for view in views) else []


def until(done):
    deadline = time.monotonic() + LIMIT_S
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def state(cluster):
    return cluster._awake()[0]._call(lambda running: running.core.membership.state)


def test_groups_keep_their_commits_and_the_partitions_are_spread_again(cluster):
    produce(cluster, 12)
    with consumer(cluster) as reader:
        read(reader, 12)
        reader.commit()
        commit(cluster, GROUPS, 5)
        assert len(set(leaders(cluster))) > 1
        grow(cluster)
        assert [committed(cluster, group) for group in GROUPS] == [5] * len(GROUPS)
        produce(cluster, 12, start=12)
        assert sorted(read(reader, 12)) == list(range(12, 24)), "its commits went with it"
    until(lambda: not state(cluster).topics[state(cluster).names[OFFSETS_TOPIC]].grown_from)
    until(lambda: len(leaders(cluster)) == AFTER and len(set(leaders(cluster))) > 1)
    commit(cluster, [*GROUPS, "new"], 6)
    assert [committed(cluster, group) for group in [*GROUPS, "new"]] == [6] * (len(GROUPS) + 1)


def test_a_group_whose_old_partition_cannot_be_read_does_not_begin_anew_after_a_restart_of_all(cluster, monkeypatch):
    commit(cluster, GROUPS, 5)
    name = next(group for group in GROUPS if partition_for(group, BEFORE) != partition_for(group, AFTER))
    damaged_place = state(cluster).names[OFFSETS_TOPIC], partition_for(name, BEFORE)
    mended = damaged(monkeypatch, damaged_place)
    holder = until(lambda: leaders(cluster))[damaged_place[1]]
    cluster.kill(holder)
    until(lambda: (found := leaders(cluster)) and holder not in found)
    grow(cluster)
    for node_id in cluster.brokers:
        if node_id != holder:
            cluster.kill(node_id)
    cluster.start()
    (heir,) = until(lambda: len(set(leaders(cluster))) == 1 and set(leaders(cluster)))
    coordinator = cluster.brokers[heir]._call(lambda running: running.groups.coordinator)
    until(lambda: {shard.life.name for shard in coordinator.runtime.shards.values()} == {"ACTIVE", "FAILED"})
    shard = cluster.brokers[heir]._call(lambda running: coordinator._shard(name))
    assert coordinator._error(shard) is ErrorCode.NOT_COORDINATOR
    names = (f"n{n}" for n in range(100))
    free = next(n for n in names if damaged_place[1] not in (partition_for(n, BEFORE), partition_for(n, AFTER)))
    commit(cluster, [free], 1)
    mended.set()
    assert committed(cluster, name) == 5


def test_transactional_ids_stay_fenced_and_one_broker_leads_them_all(cluster):
    ids = [f"id-{n}" for n in range(8)]
    before = [begun(cluster, 2, transactional_id=name) for name in ids]
    grow(cluster, TRANSACTIONS_TOPIC, 9)
    after = [begun(cluster, 2, transactional_id=name) for name in ids]
    assert [(one.id, one.epoch) for one in after] == [(one.id, one.epoch + 1) for one in before]
    (leader,) = until(lambda: set(leaders(cluster, TRANSACTIONS_TOPIC)))
    cluster.kill(leader)
    again = [begun(cluster, 2, transactional_id=name) for name in ids]
    assert [(one.id, one.epoch) for one in again] == [(one.id, one.epoch + 1) for one in after]
    assert len(until(lambda: set(leaders(cluster, TRANSACTIONS_TOPIC)) - {leader})) == 1


def test_a_snapshot_keeps_it(cluster):
    commit(cluster, GROUPS[:1], 5)
    grow(cluster)
    kept = state(cluster)
    topic = kept.topics[kept.names[OFFSETS_TOPIC]]
    topic.grown_from = [BEFORE]
    assert decode_state("snapshot", encode_state(kept)).topics[topic.topic_id].grown_from == [BEFORE]
