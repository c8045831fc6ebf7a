"""KIP-848 groups of a cluster: what was decided stands wherever the group is coordinated, and topics reach all of them.

Members are raw requests, so that each step happens when the test says so; they look for the coordinator as clients do.
"""

import time

import pytest

import kohort
from kafka_socket import KafkaSocket
from kohort.client.admin_types import Resource
from kohort.coordinator.records import OFFSETS_TOPIC, partition_for
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode

LIMIT_S = 60
LATER = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
CONFIG = {
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
}
_Beat = messages.ConsumerGroupHeartbeatRequest


@pytest.fixture(scope="module")
def cluster():
    with kohort.Cluster(3, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    name = request.node.name.partition("[")[0][5:60]
    cluster.create_topic(name, 4)
    return name


@pytest.fixture(autouse=True)
def all_are_back(request):
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").start()


class Member:
    def __init__(self, cluster, group, name, **said):
        self.cluster, self.group, self.name, self.said = cluster, group, name, said
        self.epoch, self.owned = 0, {}

    def call(self, message, version, error=lambda answer: answer.error_code):
        deadline = time.monotonic() + LIMIT_S
        while True:
            assert time.monotonic() < deadline
            broker = self.cluster.brokers[self.cluster.coordinator_of(self.group)]
            try:
                with KafkaSocket(broker.bootstrap_servers, client_id=self.name) as connection:
                    answer = connection.call(message, version)
            except OSError:
                continue
            if error(answer) not in LATER:
                return answer
            time.sleep(0.02)

    def beat(self, *, told=True, **fields):
        """Told: it says what it has."""
        if self.epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} | self.said | fields
        elif told:
            rows = [_Beat.TopicPartitions(topic_id=one, partitions=list(some)) for one, some in self.owned.items()]
            fields["topic_partitions"] = rows
        message = _Beat(group_id=self.group, member_id=self.name, member_epoch=self.epoch, **fields)
        answer = self.call(message, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {row.topic_id: tuple(row.partitions) for row in answer.assignment.topic_partitions}
        return answer

    @property
    def partitions(self):
        return sorted(number for some in self.owned.values() for number in some)

    def until(self, count):
        deadline = time.monotonic() + LIMIT_S
        while len(self.partitions) != count:
            assert time.monotonic() < deadline, f"{self.partitions} instead of {count} partitions"
            assert not self.beat().error_code
            time.sleep(0.01)


def coordinated_at_each(cluster, prefix):
    """A group at each broker."""
    cluster.coordinator_of(prefix)
    found = {}
    for index, node_id in enumerate(cluster.brokers):
        cluster.move(OFFSETS_TOPIC, index, to=node_id)
        found[node_id] = next(name for n in range(1000) if partition_for(name := f"{prefix}-{n}", 3) == index)
        assert cluster.coordinator_of(found[node_id]) == node_id
    return list(found.values())


def move(cluster, group, how):
    """The group has another coordinator."""
    was = cluster.coordinator_of(group)
    if how == "move":
        other = next(node_id for node_id in cluster.brokers if node_id != was)
        cluster.move(OFFSETS_TOPIC, partition_for(group, 3), to=other)
    else:
        (cluster.kill if how == "kill" else cluster.stop)(was)
    assert cluster.coordinator_of(group) != was


@pytest.mark.parametrize("how", ["kill", "stop", "move"])
def test_a_hand_over_goes_on_at_another_coordinator(cluster, how):
    topic, group = f"handed-over-{how}", f"handed-over-{how}"
    cluster.create_topic(topic, 4)
    one = Member(cluster, group, "one", subscribed_topic_names=[topic])
    two = Member(cluster, group, "two", subscribed_topic_names=[topic])
    one.until(4)
    two.beat()
    asked = one.beat(told=False)
    assert (len(one.partitions), asked.member_epoch, two.epoch) == (2, 2, 3), "one is to give up two of four"
    move(cluster, group, how)
    two.beat()
    assert two.partitions == [], "one has not said that it gave them up"
    one.beat()
    two.beat()
    assert sorted(one.partitions + two.partitions) == [0, 1, 2, 3]
    assert one.epoch == two.epoch == 3
    assert not two.beat(told=False).error_code, "and nobody begins an epoch because of the move"
    assert (one.beat().member_epoch, two.beat().member_epoch) == (3, 3)


def test_a_topic_that_grows_while_nobody_coordinates_the_group(cluster, topic):
    one = Member(cluster, topic, "one", subscribed_topic_names=[topic])
    one.until(4)
    was = cluster.coordinator_of(topic)
    cluster.kill(was)
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_partitions({topic: 6})
    one.until(6)
    assert one.partitions == [0, 1, 2, 3, 4, 5]


def test_expressions_are_resolved_by_every_coordinator_and_what_they_stand_for_is_kept(cluster):
    groups = coordinated_at_each(cluster, "by-expression")
    cluster.create_topic("expressed-a", 2)
    members = [Member(cluster, group, "one", subscribed_topic_regex="expressed-.*") for group in groups]
    for member in members:
        member.until(2)
    epochs = [member.epoch for member in members]
    move(cluster, groups[0], "stop")
    for member in members:
        assert not member.beat().error_code
    assert [member.epoch for member in members] == epochs, "nothing is resolved anew because of it"


def test_a_topic_that_comes_is_found_by_expressions_on_every_broker():
    with kohort.Cluster(2, config=CONFIG, clock="manual") as cluster:
        cluster.create_topic("expressed-a", 2)
        groups = coordinated_at_each(cluster, "by-expression")
        members = [Member(cluster, group, "one", subscribed_topic_regex="expressed-.*") for group in groups]
        for member in members:
            member.until(2)
        cluster.create_topic("expressed-b", 3)
        cluster.clock.advance(11)  # expressions are not resolved more often than every ten seconds
        for member in members:
            member.until(5)


def test_a_group_of_both_protocols_goes_on_at_another_coordinator_and_moves_back(cluster, topic):
    group = topic
    with kohort.Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
    ) as classic:
        classic.subscribe([topic])
        polled(classic, 4)
        new = Member(cluster, group, "new", subscribed_topic_names=[topic])
        new.beat()
        move(cluster, group, "stop")
        polled(classic, 2, new)
        new.until(2)
        move(cluster, group, "move")
        message = _Beat(group_id=group, member_id="new", member_epoch=-1)
        assert not new.call(message, 1).error_code
        polled(classic, 4)
        assert cluster.group(group).state == "Stable"


def polled(consumer, count, *others):
    deadline = time.monotonic() + LIMIT_S
    while len(consumer.assignment()) != count:
        assert time.monotonic() < deadline, consumer.assignment()
        consumer.poll(0.05)
        for other in others:
            other.beat()


def test_a_coordinator_that_stood_still_decides_nothing_any_more(cluster, topic):
    one = Member(cluster, topic, "one", subscribed_topic_names=[topic])
    one.until(4)
    was = cluster.coordinator_of(topic)
    cluster.pause(was)
    two = Member(cluster, topic, "two", subscribed_topic_names=[topic])
    two.beat()
    cluster.resume(was)
    message = _Beat(group_id=topic, member_id="three", member_epoch=0, **two.said)
    message.rebalance_timeout_ms, message.topic_partitions = 60_000, []
    with KafkaSocket(cluster.brokers[was].bootstrap_servers) as connection:
        assert connection.call(message, 1).error_code in LATER
    one.beat()
    one.beat()
    two.until(2)
    assert sorted(one.partitions + two.partitions) == [0, 1, 2, 3]
    group = cluster.group(topic)
    assert (group.state, {member.member_id for member in group.members}) == ("Stable", {"one", "two"})


def test_what_a_group_is_configured_to_be_is_known_to_every_coordinator(cluster, topic):
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_configs({Resource.group(topic): {"consumer.heartbeat.interval.ms": "7000"}})
    one = Member(cluster, topic, "one", subscribed_topic_names=[topic])
    deadline = time.monotonic() + LIMIT_S
    while one.beat().heartbeat_interval_ms != 7_000:
        assert time.monotonic() < deadline
    move(cluster, topic, "move")
    assert one.beat().heartbeat_interval_ms == 7_000


def test_brokers_in_several_racks_agree_on_what_a_group_reads():
    """Else every move of a coordinator would begin an epoch."""
    cluster = kohort.Cluster(2, config=CONFIG)
    for node_id, broker in cluster.brokers.items():
        broker.config["broker.rack"] = f"rack-{node_id}"
    with cluster:
        cluster.create_topic("racked", 2)
        one = Member(cluster, "racked", "one", subscribed_topic_names=["racked"])
        one.until(2)
        epoch = one.epoch
        move(cluster, "racked", "move")
        assert one.beat().member_epoch == epoch


def test_a_group_keeps_its_epoch_when_the_offsets_topic_grows():
    with kohort.Cluster(2, config=CONFIG) as cluster:
        cluster.create_topic("orders", 2)
        group = next(name for n in range(100) if partition_for(name := f"g-{n}", 3) != partition_for(name, 5))
        one = Member(cluster, group, "one", subscribed_topic_names=["orders"])
        one.until(2)
        epoch = one.epoch
        with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_partitions({OFFSETS_TOPIC: 5})
        answer = one.beat()
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
        two = Member(cluster, group, "two", subscribed_topic_names=["orders"])
        two.beat()
        one.beat()
        one.beat()
        two.until(1)
        assert sorted(one.partitions + two.partitions) == [0, 1]
