"""Access control: what entries decide, and what somebody without them sees of each api."""

import pytest

import kohort
from kohort.broker.acls import Acls, Operation, Resource, acl
from kohort.broker.config_keys import AUTHORIZER
from kohort.broker.faults import DELAY, Fault
from kohort.broker.groups import GroupService
from kohort.broker.needs import NEEDS
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from message_filler import fill
from wire import World, batch, fetch_request, produce_request

ALICE, HOST = "User:alice", "10.0.0.1"
GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def allowed(entries, operation, name="orders", resource=Resource.TOPIC, host=HOST, **options):
    acls = Acls(**options)
    for entry in entries:
        acls.add(entry)
    return acls.allows(ALICE, host, operation, resource, name)


def test_what_entries_decide():
    read = acl("alice", "READ", "TOPIC", "orders")
    assert allowed([read], Operation.READ)
    assert allowed([read], Operation.DESCRIBE), "who reads may describe"
    assert not allowed([read], Operation.WRITE)
    assert not allowed([read], Operation.READ, "orders2")
    assert allowed([acl("alice", "ALL", "TOPIC", "*")], Operation.ALTER)
    assert allowed([acl("*", "READ", "TOPIC", "ord", pattern="PREFIXED")], Operation.READ)
    assert not allowed([acl("bob", "READ", "TOPIC", "orders")], Operation.READ)
    assert not allowed([read, acl("alice", "READ", "TOPIC", "*", permission="DENY")], Operation.READ)
    assert allowed([read, acl("alice", "READ", "TOPIC", "*", permission="DENY")], Operation.DESCRIBE), (
        "denied is denied"
    )
    assert allowed([acl("alice", "ALTER_CONFIGS", "TOPIC", "orders")], Operation.DESCRIBE_CONFIGS)
    assert not allowed([acl("alice", "READ", "TOPIC", "orders", host="10.0.0.2")], Operation.READ)


def test_nobody_or_everybody_where_there_is_no_entry():
    assert not allowed([], Operation.READ)
    assert allowed([], Operation.READ, allow_if_none=True)
    assert not allowed([acl("bob", "READ", "TOPIC", "orders")], Operation.READ, allow_if_none=True)
    assert allowed([acl("alice", "ALL", "TOPIC", "*", permission="DENY")], Operation.READ, super_users=[ALICE])


def test_whether_anything_may_be_written():
    acls = Acls()
    assert not acls.allows_any(ALICE, HOST, Operation.WRITE, Resource.TOPIC)
    acls.add(acl("alice", "WRITE", "TOPIC", "a", pattern="PREFIXED"))
    assert acls.allows_any(ALICE, HOST, Operation.WRITE, Resource.TOPIC)
    acls.add(acl("alice", "ALL", "TOPIC", "a", pattern="PREFIXED", permission="DENY"))
    assert not acls.allows_any(ALICE, HOST, Operation.WRITE, Resource.TOPIC)


@pytest.mark.parametrize("given", [("alice", "EAT", "TOPIC"), ("alice", "READ", "TABLE"), ("alice", "WRITE", "GROUP")])
def test_entries_that_cannot_be(given):
    with pytest.raises(ValueError):
        acl(*given)


# The gate.


class Guarded:
    def __init__(self, **config):
        config = {"authorizer.class.name": AUTHORIZER, "offsets.topic.num.partitions": 2, **config}
        self.world = World(config, groups=GroupService)
        self.world.create_topic("orders", 2)
        self.world.create_topic("secret")

    def give(self, *entries):
        self.world.core.access.give(acl("alice", *entry) for entry in entries)

    def client(self, principal=ALICE):
        client = self.world.connect(HOST)
        client.connection.principal = principal
        return client


@pytest.fixture
def guarded():
    return Guarded()


def test_every_api_says_what_it_needs():
    table = World({"authorizer.class.name": AUTHORIZER}, groups=GroupService).core.table
    with kohort.Broker(config={"offsets.topic.num.partitions": 1}) as broker:
        served = {api.name for api in broker._running.core.table.apis.values()}
    missing = served | {api.name for api in table.apis.values()}
    assert missing - set(NEEDS) == set(), "add a row to broker/needs.py"


def test_a_stranger_gets_an_answer_or_a_closed_connection_from_every_api(guarded, caplog):
    for api in guarded.world.core.table.apis.values():
        for version in range(api.min_version, api.max_version + 1):
            client = guarded.client("User:nobody")
            client.deliver = client.connection.take_output
            for seed in range(4):
                client.send(fill(f"{api.name}Request", version, seed), version)
                guarded.world.turn()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_produce_and_fetch_are_refused_by_topic(guarded):
    guarded.give(("WRITE", "TOPIC", "orders"))
    client = guarded.client()
    assert client.produce("orders", batch(b"a")).base_offset == 0
    row = client.produce("secret", batch(b"a"))
    assert (row.error_code, row.base_offset) == (TOPIC_FAILED, -1)
    both = produce_request("orders", batch(b"b"))
    both.topic_data += produce_request("secret", batch(b"b")).topic_data
    answer = client.call(both, 9)
    codes = {row.name: row.partition_responses[0].error_code for row in answer.responses}
    assert codes == {"orders": 0, "secret": TOPIC_FAILED}
    answer = client.call(fetch_request("orders", 0), 12)
    assert answer.responses[0].partitions[0].error_code == TOPIC_FAILED
    guarded.give(("READ", "TOPIC", "orders"))
    assert client.call(fetch_request("orders", 0), 12).responses[0].partitions[0].records


def test_a_fetch_session_ends_with_the_permission(guarded):
    guarded.give(("READ", "TOPIC", "orders"))
    client = guarded.client()
    session = client.call(fetch_request("orders", 0, session_epoch=0), 12).session_id
    assert client.call(fetch_request("orders", session_id=session, session_epoch=1), 12).error_code == 0
    for entry in list(guarded.world.core.access.acls):
        guarded.world.core.access.acls.change((), [entry])
    answer = client.call(fetch_request("orders", session_id=session, session_epoch=2), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_acks_zero_without_permission_costs_the_connection(guarded):
    client = guarded.client()
    client.send(produce_request("secret", batch(b"a"), acks=0), 9)
    guarded.world.turn()
    assert client.connection.closed
    assert guarded.world.core.topics.partition("secret", 0).log.end_offset == 0


def named(*names):
    return [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]


def test_metadata_does_not_tell_what_there_is(guarded):
    guarded.give(("READ", "TOPIC", "orders"))
    client = guarded.client()
    assert [row.name for row in client.call(m.MetadataRequest(topics=None), 9).topics] == ["orders"]
    answer = client.call(m.MetadataRequest(topics=named("orders", "secret", "nowhere")), 9)
    assert {row.name: row.error_code for row in answer.topics} == {
        "orders": 0, "secret": TOPIC_FAILED, "nowhere": TOPIC_FAILED,
    }  # fmt: skip
    assert all(not row.partitions for row in answer.topics if row.error_code)


def test_a_topic_is_made_on_request_by_those_who_may(guarded):
    guarded.give(("DESCRIBE", "TOPIC", "*"))
    client = guarded.client()
    assert client.call(m.MetadataRequest(topics=named("fresh")), 9).topics[0].error_code == TOPIC_FAILED
    assert "fresh" not in guarded.world.core.topics.by_name
    guarded.give(("CREATE", "TOPIC", "fresh"))
    assert client.call(m.MetadataRequest(topics=named("fresh")), 9).topics[0].error_code == 0


def test_operations_are_told_as_they_are(guarded):
    guarded.give(("READ", "TOPIC", "orders"))
    answer = guarded.client().call(
        m.MetadataRequest(topics=named("orders"), include_topic_authorized_operations=True), 9
    )
    assert answer.topics[0].topic_authorized_operations == (1 << Operation.READ) | (1 << Operation.DESCRIBE)


def coordinate(guarded):
    client = guarded.client(None)
    client.call(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)


def test_groups(guarded):
    coordinate(guarded)
    client = guarded.client()
    found = client.call(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0]
    assert (found.key, found.error_code) == ("g", GROUP_FAILED)
    assert client.call(m.FindCoordinatorRequest(key_type=0, key="g"), 3).error_code == GROUP_FAILED
    assert client.call(m.HeartbeatRequest(group_id="g"), 4).error_code == GROUP_FAILED
    assert client.call(m.JoinGroupRequest(group_id="g", session_timeout_ms=10_000), 9).error_code == GROUP_FAILED
    assert client.call(m.DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code == GROUP_FAILED
    assert client.call(m.DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == GROUP_FAILED
    assert client.call(commit("orders"), 8).topics[0].partitions[0].error_code == GROUP_FAILED
    guarded.give(("READ", "GROUP", "g"))
    assert client.call(m.HeartbeatRequest(group_id="g"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.call(commit("orders"), 8).topics[0].partitions[0].error_code == TOPIC_FAILED
    guarded.give(("READ", "TOPIC", "orders"))
    codes = {row.name: row.partitions[0].error_code for row in client.call(commit("orders", "secret"), 8).topics}
    assert codes == {"orders": 0, "secret": TOPIC_FAILED}


def commit(*topics):
    kind = m.OffsetCommitRequest
    row = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return kind(group_id="g", topics=[kind.OffsetCommitRequestTopic(name=name, partitions=[row]) for name in topics])


def test_offsets_of_topics_that_may_not_be_described(guarded):
    coordinate(guarded)
    guarded.client(None).call(commit("orders", "secret"), 8)
    client = guarded.client()
    kind = m.OffsetFetchRequest
    everything = kind(groups=[kind.OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert client.call(everything, 8).groups[0].error_code == GROUP_FAILED
    guarded.give(("READ", "GROUP", "g"), ("READ", "TOPIC", "orders"))
    assert [row.name for row in client.call(everything, 8).groups[0].topics] == ["orders"]
    topics = [kind.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("orders", "secret")]
    by_name = client.call(kind(groups=[kind.OffsetFetchRequestGroup(group_id="g", topics=topics)]), 8).groups[0]
    assert {row.name: row.partitions[0].error_code for row in by_name.topics} == {"orders": 0, "secret": TOPIC_FAILED}


def test_groups_are_listed_for_those_who_may_describe_them(guarded):
    coordinate(guarded)
    guarded.client(None).call(commit("orders"), 8)
    client = guarded.client()
    assert client.call(m.ListGroupsRequest(), 4).groups == []
    guarded.give(("DESCRIBE", "GROUP", "g"))
    assert [row.group_id for row in client.call(m.ListGroupsRequest(), 4).groups] == ["g"]


def test_topics_are_made_and_deleted_by_those_who_may(guarded):
    client = guarded.client()
    kind = m.CreateTopicsRequest
    create = kind(topics=[kind.CreatableTopic(name="mine", num_partitions=1, replication_factor=1)])
    assert client.call(create, 7).topics[0].error_code == TOPIC_FAILED
    guarded.give(("CREATE", "TOPIC", "mine"))
    row = client.call(create, 7).topics[0]
    assert (row.error_code, row.topic_config_error_code, row.configs) == (0, TOPIC_FAILED, [])
    delete = m.DeleteTopicsRequest(topic_names=["mine", "secret"], timeout_ms=1000)
    assert {row.error_code for row in client.call(delete, 5).responses} == {TOPIC_FAILED}
    guarded.give(("DELETE", "TOPIC", "mine"))
    assert {row.name: row.error_code for row in client.call(delete, 5).responses} == {"mine": 0, "secret": TOPIC_FAILED}


def test_what_may_not_be_seen_of_one_topic_is_hidden_beside_another_that_is_refused(guarded):
    guarded.give(("CREATE", "TOPIC", "mine"))
    kind = m.CreateTopicsRequest
    topics = [kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("mine", "yours")]
    rows = {row.name: row for row in guarded.client().call(kind(topics=topics), 7).topics}
    assert (rows["mine"].error_code, rows["yours"].error_code) == (0, TOPIC_FAILED)
    assert (rows["mine"].topic_config_error_code, rows["mine"].configs) == (TOPIC_FAILED, [])


@pytest.mark.parametrize("edits", [False, True])
def test_a_request_that_a_fault_has_met_passes_the_gate_all_the_same(guarded, edits):
    def edited(request):
        return request.edit_answer(lambda answer: setattr(answer, "throttle_time_ms", 7))

    guarded.world.core.faults.add(Fault(DELAY, "Metadata", seconds=1, function=edited if edits else None))
    client = guarded.client()
    client.send(m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="orders")]), 9)
    guarded.world.turn()
    guarded.world.advance(2_000)
    (answer,) = client.answers
    assert answer.topics[0].error_code == TOPIC_FAILED
    assert answer.throttle_time_ms == (7 if edits else 0), "the fault has its say as well"


def test_configs_are_told_by_kind_of_resource(guarded):
    kind = m.DescribeConfigsRequest
    resources = [(2, "orders"), (4, "1"), (32, "g")]
    request = kind(
        resources=[
            kind.DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
            for type_, name in resources
        ]
    )
    answer = guarded.client().call(request, 4)
    codes = {row.resource_type: row.error_code for row in answer.results}
    assert codes == {2: TOPIC_FAILED, 4: CLUSTER_FAILED, 32: GROUP_FAILED}
    guarded.give(("DESCRIBE_CONFIGS", "TOPIC", "orders"))
    codes = {row.resource_type: row.error_code for row in guarded.client().call(request, 4).results}
    assert codes[2] == 0


def test_producer_ids_go_to_those_who_may_write_anything(guarded):
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    client = guarded.client()
    refused = client.call(request, 4)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (CLUSTER_FAILED, -1, -1)
    guarded.give(("WRITE", "TOPIC", "orders"))
    assert client.call(request, 4).error_code == 0


# The entries themselves.


def creation(name, operation=Operation.READ, principal="User:bob"):
    kind = m.CreateAclsRequest.AclCreation
    return kind(
        resource_type=2, resource_name=name, resource_pattern_type=3, principal=principal, host="*",
        operation=operation, permission_type=3,
    )  # fmt: skip


def everything():
    return m.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip


def test_entries_are_created_described_deleted_and_kept(guarded):
    client = guarded.client()
    create = m.CreateAclsRequest(creations=[creation("a"), creation("b")])
    assert [row.error_code for row in client.call(create, 3).results] == [CLUSTER_FAILED] * 2
    assert client.call(everything(), 3).error_code == CLUSTER_FAILED
    guarded.give(("ALTER", "CLUSTER"))
    assert [row.error_code for row in client.call(create, 3).results] == [0, 0]
    bob = guarded.client("User:bob")
    assert bob.call(m.MetadataRequest(topics=named("a"), allow_auto_topic_creation=False), 9).topics[0].error_code == 3
    again = World({"authorizer.class.name": AUTHORIZER}, store=guarded.world.store)
    assert {entry.name for entry in again.core.access.acls} == {"a", "b"}
    kind = m.DeleteAclsRequest
    wanted = kind.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter="a", pattern_type_filter=3, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    gone = client.call(kind(filters=[wanted]), 3).filter_results[0].matching_acls
    assert [(row.resource_name, row.principal) for row in gone] == [("a", "User:bob")]
    left = client.call(everything(), 3).resources
    assert {row.resource_name for row in left} == {"b", "kafka-cluster"}


@pytest.mark.parametrize(
    "wrong",
    [creation(""), creation("a", Operation.ANY), creation("a", 99), creation("a", principal="bob")],
    ids=["no name", "any operation", "no operation", "no kind of principal"],
)
def test_entries_that_are_refused(guarded, wrong):
    guarded.give(("ALTER", "CLUSTER"))
    (row,) = guarded.client().call(m.CreateAclsRequest(creations=[wrong]), 3).results
    assert row.error_code == ErrorCode.INVALID_REQUEST and row.error_message


def test_without_an_authorizer_there_are_no_entries():
    client = World().connect()
    assert client.call(everything(), 3).error_code == ErrorCode.SECURITY_DISABLED
    answer = client.call(m.CreateAclsRequest(creations=[creation("a")]), 3)
    assert answer.results[0].error_code == ErrorCode.SECURITY_DISABLED


def test_damaged_entries_stop_the_start(guarded):
    guarded.world.store.write_file("kohort.acls.json", b"{")
    with pytest.raises(kohort.KafkaError, match=r"kohort\.acls\.json"):
        World(store=guarded.world.store)


def test_one_line_is_enough_for_a_test():
    acls = [kohort.acl("alice", "ALL", "TOPIC", "orders"), kohort.acl("alice", "READ", "GROUP", "g")]
    with kohort.Broker(users={"alice": "secret", "bob": "other"}, acls=acls) as broker:
        broker.create_topic("orders")
        settings = {name.replace(".", "_"): value for name, value in broker.security.client("alice").items()}
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
            producer.send("orders", b"mine")
            producer.flush()
        settings = {name.replace(".", "_"): value for name, value in broker.security.client("bob").items()}
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers, **settings) as admin:
            assert admin.list_topics() == []
        assert [record.value for record in broker.records("orders")] == [b"mine"]
