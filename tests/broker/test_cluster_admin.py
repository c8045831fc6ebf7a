"""What operators ask of a cluster: leaders are moved, brokers drained, users and access changed, on any broker."""

import time

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient

import kohort
from kohort.broker import inside
from kohort.broker.config_keys import AUTHORIZER
from kohort.cli import cluster_moves, cluster_status
from kohort.cli.failures import Failed, WrongInput
from kohort.cluster import placing
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.messages import AlterClientQuotasRequest

LIMIT_S = 60
ORDERS = kohort.TopicPartition("orders", 0)
CONFIG = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def cluster():
    with kohort.Cluster(3, config=CONFIG) as cluster:
        cluster.create_topic("orders", 6)
        yield cluster


@pytest.fixture
def admin(cluster):
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def other_than(cluster, node_id):
    return next(node for node in cluster.brokers if node != node_id)


def membership(cluster, node_id):
    return cluster.brokers[node_id]._call(lambda running: running.core.membership)


def test_a_leader_is_moved_and_stays(cluster, admin):
    was = cluster.leader_of("orders", 0)
    to = other_than(cluster, was)
    admin.alter_partition_reassignments({ORDERS: [to]})
    until(lambda: cluster.leader_of("orders", 0) == to, "it did not move")
    until(lambda: admin.list_partition_reassignments() == {}, "it is still on its way")
    leader = membership(cluster, to)
    assert (0, to) not in [(i, t) for _, i, t in placing.moves(leader.state, leader.journal.journal, to, 100)]
    assert not any(topic.name == "orders" and index == 0 for topic, index, _ in _moves(leader)), "it would move back"


def _moves(leader):
    return placing.moves(leader.state, leader.journal.journal, leader.node_id, 100)


@pytest.mark.parametrize(
    ("place", "replicas", "code"),
    [
        (("none", 0), [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 77), [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 0), [9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0), [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0), [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 1), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_moved_is_refused_as_kafka_refuses_it(admin, place, replicas, code):
    with pytest.raises(KafkaError) as refused:
        admin.alter_partition_reassignments({kohort.TopicPartition(*place): replicas})
    assert refused.value.code == code


def test_a_wish_for_a_broker_that_is_gone_is_a_move_that_can_be_cancelled(cluster, admin):
    was = cluster.leader_of("orders", 2)
    to = other_than(cluster, was)
    holder = membership(cluster, was)
    drain, holder.leading._drain = holder.leading._drain, lambda places, now_ms: None
    try:
        admin.alter_partition_reassignments({kohort.TopicPartition("orders", 2): [to]})
        place = kohort.TopicPartition("orders", 2)
        until(lambda: admin.list_partition_reassignments() == {place: ([to], [was])}, "it is not listed")
        admin.alter_partition_reassignments({place: None})
        until(lambda: admin.list_partition_reassignments() == {}, "it is still listed")
    finally:
        holder.leading._drain = drain
    assert cluster.leader_of("orders", 2) == was


def test_confluent_elects_leaders_and_describes_the_cluster(cluster):
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    described = client.describe_cluster().result(LIMIT_S)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    place, missing = Place("orders", 1), Place("none", 0)
    found = client.elect_leaders(ElectionType.PREFERRED, [place, missing]).result(LIMIT_S)
    assert found[place].code() == ErrorCode.ELECTION_NOT_NEEDED
    assert found[missing].code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_kafka_python_moves_a_leader(cluster):
    was = cluster.leader_of("orders", 3)
    to = other_than(cluster, was)
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        place = KafkaPythonPartition("orders", 3)
        client.alter_partition_reassignments({place: [to]})
        until(lambda: cluster.leader_of("orders", 3) == to, "it did not move")
        assert not client.list_partition_reassignments()
    finally:
        client.close()


def test_a_broker_is_drained_and_leads_again(cluster, admin):
    node = cluster.leader_of("orders", 4)
    found = cluster_moves.drain(admin, node, LIMIT_S)
    assert found == {"broker": node, "drained": True, "leads": 0}
    assert "leads nothing" in cluster_moves.said_of_drain(found)
    cluster.create_topic("later", 12)
    assert node not in {cluster.leader_of("later", index) for index in range(12)}
    others = [other for other in cluster.brokers if other != node]
    cluster_moves.drain(admin, others[0], LIMIT_S)
    with pytest.raises(Failed, match="no other broker is there"):
        cluster_moves.drain(admin, others[1], LIMIT_S)
    assert cluster_moves.end_drain(admin, others[0])["drained"] is False
    assert cluster_moves.end_drain(admin, node)["drained"] is False
    until(lambda: cluster_moves._leads(admin, node) > 0, "nothing came back to it")
    with pytest.raises(WrongInput, match="is not drained"):
        cluster_moves.end_drain(admin, node)


def test_mistyped_nodes_topics_and_partitions_get_a_sentence(admin):
    for call, said in [
        (lambda: cluster_moves.drain(admin, 9, 1), "no broker 9 is there: 1, 2, 3"),
        (lambda: cluster_moves.move(admin, "orders", 0, 9, 1), "no broker 9 is there: 1, 2, 3"),
        (lambda: cluster_moves.move(admin, "oders", 0, 1, 1), "there is no topic oders"),
        (lambda: cluster_moves.move(admin, "orders", 6, 1, 1), "orders has 0 to 5"),
    ]:
        with pytest.raises(WrongInput, match=said):
            call()


def test_a_move_by_command(cluster, admin):
    was = cluster.leader_of("orders", 5)
    to = other_than(cluster, was)
    found = cluster_moves.move(admin, "orders", 5, to, LIMIT_S)
    assert found == {"topic": "orders", "partition": 5, "from": was, "to": to, "done": True}
    assert cluster_moves.said_of_move(found) == f"orders-5 is led by broker {to}, was {was}"
    assert "already" in cluster_moves.said_of_move(cluster_moves.move(admin, "orders", 5, to, LIMIT_S))


def test_status_of_brokers(admin, capsys):
    found = cluster_status.from_brokers(admin)
    assert [row["id"] for row in found["brokers"]] == [1, 2, 3]
    assert sum(row["leads"] for row in found["brokers"]) + found["leaderless"] == len(found["partitions"])
    cluster_status.show(found, True)
    assert "LEADS" in capsys.readouterr().out


# Users and access control entries.


def entries(cluster, node_id):
    return cluster.brokers[node_id]._call(lambda running: {row.principal for row in running.core.access.acls})


def users(cluster, node_id):
    return cluster.brokers[node_id]._call(lambda running: sorted(running.core.users.scram))


def limits(cluster, node_id):
    return cluster.brokers[node_id]._call(lambda running: list(running.core.quotas.limits.values()))


def test_entries_users_and_quotas_are_known_to_every_broker_and_survive(cluster, monkeypatch):
    client = AdminClient({"bootstrap.servers": cluster.brokers[2].bootstrap_servers})
    read = AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    client.create_acls([read])[read].result(LIMIT_S)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    client.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", info, b"own")])["carol"].result(LIMIT_S)
    monkeypatch.setitem(inside._VERSIONS, "AlterClientQuotas", 1)
    alter = AlterClientQuotasRequest
    limit = alter.EntryData(
        entity=[alter.EntityData(entity_type="user", entity_name="alice")],
        ops=[alter.OpData(key="producer_byte_rate", value=1000.0, remove=False)],
    )
    answer = cluster.brokers[1]._call_async(lambda running: running.inside.ask(alter(entries=[limit])))
    assert answer.entries[0].error_code == 0
    for node_id in cluster.brokers:
        until(
            lambda node_id=node_id: limits(cluster, node_id) == [{"producer_byte_rate": 1000.0}], "a quota is missing"
        )
    for node_id in cluster.brokers:
        until(lambda node_id=node_id: entries(cluster, node_id) == {"User:alice"}, "an entry is missing")
        until(lambda node_id=node_id: users(cluster, node_id) == [("carol", "SCRAM-SHA-256")], "a user is missing")
    cluster.kill(3)
    cluster.start(3)
    assert limits(cluster, 3) == [{"producer_byte_rate": 1000.0}]
    assert entries(cluster, 3) == {"User:alice"} and users(cluster, 3) == [("carol", "SCRAM-SHA-256")]
    again = AdminClient({"bootstrap.servers": cluster.brokers[3].bootstrap_servers})
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    again.delete_acls([every])[every].result(LIMIT_S)
    for node_id in cluster.brokers:
        until(lambda node_id=node_id: entries(cluster, node_id) == set(), "an entry is still there")


def test_a_change_that_is_refused_changes_nothing(cluster):
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    before = users(cluster, 1)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 10)
    with pytest.raises(Exception, match="Too few iterations"):
        change = UserScramCredentialUpsertion("dave", info, b"own")
        client.alter_user_scram_credentials([change])["dave"].result(LIMIT_S)
    assert users(cluster, 1) == before


# Changes of topics, and groups of the consumer protocol on every broker.


def test_topic_changes_reach_groups_of_the_consumer_protocol_on_every_broker(cluster, admin):
    groups = _one_group_a_broker(cluster)
    admin.create_topics([kohort.NewTopic("changing", 2)])
    readers = []
    try:
        for group in groups.values():
            reader = kohort.Consumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=group,
                group_protocol="consumer",
                enable_auto_commit=False,
                allow_auto_create_topics=False,
                auto_offset_reset="earliest",
            )
            reader.subscribe(["changing"])
            readers.append(reader)
        _assigned(readers, 2)
        admin.create_partitions({"changing": 5})
        _assigned(readers, 5)
        admin.delete_topics(["changing"])
        _assigned(readers, 0)
        admin.create_topics([kohort.NewTopic("changing", 3)])
        _assigned(readers, 3)
    finally:
        for reader in readers:
            reader.close()


def _one_group_a_broker(cluster):
    found, number = {}, 0
    while len(found) < len(cluster.brokers):
        found.setdefault(cluster.coordinator_of(f"group-{number}"), f"group-{number}")
        number += 1
    return found


def _assigned(readers, count):
    def is_assigned():
        for reader in readers:
            reader.poll(0.05)
        return all(len(reader.assignment()) == count for reader in readers)

    until(is_assigned, f"{[len(reader.assignment()) for reader in readers]} instead of {count} partitions each")
