"""Several brokers in one process: groups go on when their coordinator dies, stops, stands still or moves."""

import time

import pytest

import kohort
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol.errors import ErrorCode

LIMIT_S = 60


@pytest.fixture
def cluster():
    with kohort.Cluster(3) as cluster:
        cluster.create_topic("orders", 6)
        yield cluster


def produce(cluster, count, start=0):
    with kohort.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        sent = [producer.send("orders", b"%d" % n, partition=n % 6) for n in range(start, start + count)]
        for delivery in sent:
            delivery.result()


def consumer(cluster, group="billing", **settings):
    made = kohort.Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest", **settings
    )
    made.subscribe(["orders"])
    return made


def read(reader, count):
    found, deadline = [], time.monotonic() + LIMIT_S
    while len(found) < count:
        found += [int(record.value) for record in reader.poll(0.2)]
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    return found


def generation(cluster, group="billing"):
    broker = cluster.brokers[cluster.coordinator_of(group)]
    return broker._call(lambda running: running.groups.coordinator.group(group).generation)


def rebalances(cluster, group="billing"):
    return [
        event
        for broker in cluster.brokers.values()
        if broker.running
        for event in broker.story(group)
        if type(event).__name__ == "RebalanceStarted"
    ]


def test_partitions_and_groups_are_divided_over_the_brokers(cluster):
    produce(cluster, 12)
    with consumer(cluster) as reader:
        assert sorted(read(reader, 12)) == list(range(12))
    topic = cluster.brokers[1]._call(lambda running: running.core.topics.by_name[OFFSETS_TOPIC])
    leaders = {partition.leader_id for partition in topic.partitions}
    assert leaders == {1, 2, 3}
    assert cluster.coordinator_of("billing") == topic.partitions[partition_for("billing", 12)].leader_id


def test_any_broker_names_the_coordinator_and_the_others_say_not_coordinator(cluster):
    produce(cluster, 6)
    with consumer(cluster) as reader:
        read(reader, 6)
        coordinator = cluster.coordinator_of("billing")
        for node_id, broker in cluster.brokers.items():
            node = broker._call(lambda running: running.groups.coordinator_of("billing", 0))[1]
            assert node.node_id == coordinator
            if node_id != coordinator:
                assert broker.group("billing").state == "Dead", "the group is there twice"


def test_a_group_without_a_leader_has_no_coordinator():
    """The only broker has lost the store: it does not serve, and nobody else can."""
    with kohort.Cluster(1) as cluster:
        cluster.create_topic("orders", 6)
        produce(cluster, 6)
        with consumer(cluster) as reader:
            read(reader, 6)
        broker = cluster.brokers[1]
        cluster.partition(1)
        cluster.clock.advance(5)
        error, node = broker._call(lambda running: running.groups.coordinator_of("billing", 0))
        assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE and node.node_id == -1
        cluster.heal(1)
        assert cluster.coordinator_of("billing") == 1


def test_the_coordinator_is_killed_and_the_group_goes_on_in_its_generation(cluster):
    produce(cluster, 60)
    with consumer(cluster) as reader:
        assert sorted(read(reader, 60)) == list(range(60))
        reader.commit()
        before, was = generation(cluster), cluster.coordinator_of("billing")
        cluster.kill(was)
        assert cluster.coordinator_of("billing") != was
        produce(cluster, 60, 60)
        assert sorted(read(reader, 60)) == list(range(60, 120))
        reader.commit()
        assert generation(cluster) == before
    assert sum(cluster.committed("billing").values()) == 120


def test_each_broker_is_restarted_cleanly_and_no_group_rebalances(cluster):
    produce(cluster, 30)
    with consumer(cluster) as reader:
        read(reader, 30)
        reader.commit()
        before, begun = generation(cluster), 30
        for node_id in list(cluster.brokers):
            cluster.stop(node_id)
            produce(cluster, 30, begun)
            assert sorted(read(reader, 30)) == list(range(begun, begun + 30))
            reader.commit()
            begun += 30
            cluster.start(node_id)
        assert generation(cluster) == before
        assert cluster.group("billing").state == "Stable"
    assert sum(cluster.committed("billing").values()) == begun


def test_a_clean_stop_moves_the_coordinator_at_once(cluster):
    produce(cluster, 6)
    with consumer(cluster) as reader:
        read(reader, 6)
        was = cluster.coordinator_of("billing")
        cluster.stop(was)
        assert not any(news.what == "fenced" for news in _state(cluster).news)
        assert cluster.coordinator_of("billing") != was
        reader.commit()


def test_a_zombie_acknowledges_nothing(cluster):
    produce(cluster, 30)
    with consumer(cluster, request_timeout_ms=2000, session_timeout_ms=60_000) as reader:
        read(reader, 30)
        reader.commit()
        was = cluster.coordinator_of("billing")
        cluster.pause(was)
        assert cluster.coordinator_of("billing") != was
        reader.commit()
        cluster.resume(was)
        cluster._until(lambda: _is_member_again(cluster, was) or None, "the zombie did not come back")
        produce(cluster, 30, 30)
        assert sorted(read(reader, 30)) == list(range(30, 60))
        reader.commit()
    assert sum(cluster.committed("billing").values()) == 60


def _is_member_again(cluster, node_id):
    membership = cluster.brokers[node_id]._call(lambda running: running.core.membership)
    return membership.is_member and membership.incarnation == 2


def _state(cluster):
    broker = next(broker for broker in cluster.brokers.values() if broker.running)
    return broker._call(lambda running: running.core.membership.state)


def test_a_broker_without_its_store_stops_acknowledging_and_comes_back_by_itself(cluster):
    produce(cluster, 6)
    leader = cluster.leader_of("orders", 0)
    cluster.partition(leader)
    with kohort.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        delivery = producer.send("orders", b"6", partition=0)
        delivery.result()  # from whoever took over
    assert cluster.leader_of("orders", 0) != leader or not cluster.brokers[leader].engine.cut_off
    cluster.heal(leader)
    cluster._until(lambda: _is_member_again(cluster, leader) or None, "it did not come back")
    assert [record.value for record in cluster.records("orders", 0)] == [b"0", b"6"]


def test_a_broker_without_its_store_says_of_itself_that_it_leads_nothing(cluster):
    """Whoever is connected to it alone hears of the others, and goes there."""
    produce(cluster, 6)
    leader = cluster.leader_of("orders", 0)
    cut_off = cluster.brokers[leader]
    cluster.partition(leader)
    told = cluster._until(
        lambda: cut_off._call(
            lambda running: (
                None
                if running.core.membership.is_member
                else (
                    [broker.node_id for broker in running.core.brokers()],
                    [
                        running.core.leader_of(partition)
                        for partition in running.core.topics.by_name["orders"].partitions
                    ],
                )
            )
        ),
        "it did not notice",
    )
    assert leader not in told[0] and leader not in told[1] and -1 in told[1]
    with kohort.Producer(bootstrap_servers=cut_off.bootstrap_servers) as producer:
        producer.send("orders", b"6", partition=0).result()


def test_a_partition_moves_where_it_is_wanted(cluster):
    produce(cluster, 60)
    for to in (1, 2, 3, 1):
        cluster.move("orders", 0, to=to)
        assert cluster.leader_of("orders", 0) == to
    assert len(cluster.records("orders", 0)) == 10


def test_the_coordinator_is_moved_between_requests_and_the_group_does_not_notice(cluster):
    produce(cluster, 30)
    with consumer(cluster) as reader:
        read(reader, 30)
        before = generation(cluster)
        for to in (1, 2, 3):
            cluster.move(OFFSETS_TOPIC, partition_for("billing", 12), to=to)
            reader.commit()
        assert generation(cluster) == before


def test_a_broker_that_joins_gets_its_share(cluster):
    produce(cluster, 60)
    with consumer(cluster) as reader:
        read(reader, 60)
        before = generation(cluster)
        node_id = cluster.add()
        cluster._until(lambda: _led_by(cluster, node_id) or None, "the new broker leads nothing")
        reader.commit()
        assert generation(cluster) == before
    assert sum(len(cluster.records("orders", index)) for index in range(6)) == 60


def _led_by(cluster, node_id):
    return [
        (topic.name, index)
        for topic, index, partition in _state(cluster).partitions()
        if partition.leader == node_id and cluster._leader_of(topic.name, index) == node_id
    ]


def test_producers_get_ids_that_no_other_broker_gives():
    with kohort.Cluster(2) as cluster:
        ids = [
            broker._call(lambda running: [running.core.topics.new_producer_id() for _ in range(300)])
            for broker in cluster.brokers.values()
            for _ in range(4)
            if _until_ids(broker)
        ]
        flat = [number for some in ids for number in some]
        assert len(flat) == len(set(flat)) == 2400


def _until_ids(broker):
    deadline = time.monotonic() + LIMIT_S
    while broker._call(lambda running: running.core.topics.producer_ids_left) < 300:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return True


def test_topics_are_made_grown_configured_and_deleted_at_any_broker(cluster):
    with kohort.Admin(bootstrap_servers=cluster.brokers[2].bootstrap_servers) as admin:
        admin.create_topics([kohort.NewTopic("more", 2)])
        with pytest.raises(kohort.KafkaError, match="already exists"):
            admin.create_topics([kohort.NewTopic("more", 2)])
    cluster._until(lambda: _knows(cluster, 3, "more") or None, "broker 3 does not know the topic")
    with kohort.Admin(bootstrap_servers=cluster.brokers[3].bootstrap_servers) as admin:
        admin.delete_topics(["more"])
    for node_id in cluster.brokers:
        cluster._until(lambda node_id=node_id: not _knows(cluster, node_id, "more") or None, "the topic is still there")


def _knows(cluster, node_id, topic):
    return cluster.brokers[node_id]._call(lambda running: topic in running.core.topics.by_name)


def test_all_brokers_are_killed_and_nothing_acknowledged_is_lost(cluster):
    produce(cluster, 120)
    with consumer(cluster) as reader:
        read(reader, 120)
        reader.commit()
    for node_id in cluster.brokers:
        cluster.kill(node_id)
    cluster.start()
    assert sum(len(cluster.records("orders", index)) for index in range(6)) == 120
    assert sum(cluster.committed("billing").values()) == 120


def test_time_can_be_advanced_and_sessions_run_out():
    with kohort.Cluster(2, clock="manual") as cluster:
        cluster.create_topic("orders", 2)
        with consumer(cluster, session_timeout_ms=10_000, heartbeat_interval_ms=3_000) as reader:
            reader.poll(0.5)
            cluster.brokers[cluster.coordinator_of("billing")].wait_stable("billing", members=1)
            cluster.pause(1 if cluster.coordinator_of("billing") == 2 else 2)
            cluster.brokers[cluster.coordinator_of("billing")].faults.drop("Heartbeat", times=None)
            cluster.clock.advance(11)
            assert cluster.group("billing").members == []
