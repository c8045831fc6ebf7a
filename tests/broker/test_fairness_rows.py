"""Requests of many rows, api by api: others have a turn between two slices, and the answer is that of one go."""

import pytest

from kohort.broker.apis.acls import MOST_AT_ONCE
from kohort.broker.apis.produce import ADMITTED_AT_ONCE, BYTES_AT_ONCE, MANY_PARTITIONS, PARTITIONS_AT_ONCE
from kohort.broker.config_keys import AUTHORIZER
from kohort.broker.groups import GroupService
from kohort.protocol import messages as m
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Compression
from kohort.storage.store import MemoryStore
from wire import World, batch, run_job

MANY = 3 * MANY_PARTITIONS
WIDE = 20


@pytest.fixture
def world():
    made = World(
        {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 2, "super.users": "User:x"},
        groups=GroupService,
    )
    made.create_topic("t", WIDE)
    for key_type in (0, 1):
        made.connect().call(m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
    return made


def answered(world, request, version, *, client=None):
    """The answer, how many turns it took, and the most batches that one of them appended."""
    client, other, turns, most = client or world.connect(), world.connect(), 0, 0
    client.send(request, version)
    while not client.answers:
        turns += 1
        assert turns < 10_000
        other.send(m.ApiVersionsRequest(), 0)
        before = stored(world)
        for connection in world.core.flush(world.now_ms):
            connection.shell.deliver()
        most = max(most, stored(world) - before)
        assert len(other.answers) == turns, "nobody else waits for it"
        for job in world.core.take_jobs():
            run_job(world.core, job, world.now_ms)
    return client.answers.pop(), turns, most


def stored(world):
    return sum(
        partition.log.end_offset for topic in world.core.topics.by_name.values() for partition in topic.partitions
    )


def produce(topic, data_of, *, acks=-1, transactional_id=None):
    kind = m.ProduceRequest
    rows = [kind.PartitionProduceData(index=index, records=data) for index, data in data_of.items()]
    topics = [kind.TopicProduceData(name=topic, partition_data=rows)]
    return kind(acks=acks, timeout_ms=1000, transactional_id=transactional_id, topic_data=topics)


def rows_of(answer):
    return [row for topic in answer.responses for row in topic.partition_responses]


# Produce.


def test_a_produce_to_many_partitions_is_appended_in_slices(world):
    world.create_topic("broad", MANY)
    answer, turns, most = answered(world, produce("broad", {i: batch(b"v") for i in range(MANY)}), 9)
    assert turns >= MANY / PARTITIONS_AT_ONCE and most <= 2 * PARTITIONS_AT_ONCE
    assert [(row.index, row.error_code, row.base_offset) for row in rows_of(answer)] == [(i, 0, 0) for i in range(MANY)]


def test_a_produce_of_many_bytes_is_appended_in_slices(world):
    large = batch(b"x" * 1_000_000)
    answer, turns, most = answered(world, produce("t", dict.fromkeys(range(WIDE), large)), 9)
    assert turns >= WIDE * len(large) / BYTES_AT_ONCE - 1 and most <= 2 * (BYTES_AT_ONCE // len(large) + 1)
    assert {row.error_code for row in rows_of(answer)} == {0}


def test_what_follows_a_large_produce_on_its_connection_comes_after_it(world):
    """The shell holds back what comes while a connection is occupied; here the core says that it is."""
    world.create_topic("broad", MANY)
    client = world.connect()
    client.send(produce("broad", {i: batch(b"first") for i in range(MANY)}), 9)
    assert client.connection.is_occupied
    world.turn()
    assert not client.connection.is_occupied and len(client.answers) == 1
    assert client.produce("broad", batch(b"second"), partition=MANY - 1).base_offset == 1


def test_batches_of_an_idempotent_producer_stay_in_order_and_are_known_when_they_come_again(world):
    world.create_topic("broad", MANY)
    for sequence, offset in ((0, 0), (1, 1), (1, 1), (0, 0)):
        data = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        answer, turns, _ = answered(world, produce("broad", dict.fromkeys(range(MANY), data)), 9)
        assert turns > 3 and {(row.error_code, row.base_offset) for row in rows_of(answer)} == {(0, offset)}


def test_records_that_nobody_waits_for_are_stored_although_their_client_is_gone(world):
    world.create_topic("broad", MANY)
    client = world.connect()
    client.send(produce("broad", {i: batch(b"v") for i in range(MANY)}, acks=0), 9)
    world.core.connection_lost(client.connection)
    world.turn()
    assert [p.log.end_offset for p in world.core.topics.by_name["broad"].partitions] == [1] * MANY


def test_a_topic_that_is_deleted_meanwhile_takes_no_more(world):
    world.create_topic("broad", MANY)
    client, admin = world.connect(), world.connect()
    world.run_jobs = False
    client.send(produce("broad", {i: batch(b"v") for i in range(MANY)}), 9)
    kind = m.DeleteTopicsRequest
    admin.send(kind(topics=[kind.DeleteTopicState(name="broad", topic_id=bytes(16))], timeout_ms=1000), 6)
    world.run_jobs = True
    world.turn()
    codes = [row.error_code for row in rows_of(client.answers[0])]
    assert len(codes) == MANY and set(codes[PARTITIONS_AT_ONCE:]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_small_batches_behind_one_that_is_checked_elsewhere_are_taken_in_slices(world):
    world.create_topic("broad", MANY)
    heavy = batch(*[b"%d" % number for number in range(40_000)], compression=Compression.GZIP)
    data = {index: batch(b"v") for index in range(MANY)} | {0: heavy}
    answer, turns, most = answered(world, produce("broad", data), 9)
    assert turns >= MANY / PARTITIONS_AT_ONCE and most <= 40_000 + 2 * PARTITIONS_AT_ONCE
    assert {row.error_code for row in rows_of(answer)} == {0}


# Transactions.


def begin(world, transactional_id="tx"):
    request = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return world.connect().call(request, 5)


def transactional(made, count):
    data = batch(b"v", producer_id=made.producer_id, producer_epoch=made.producer_epoch, base_sequence=0,
                 transactional=True)  # fmt: skip
    return produce("broad", dict.fromkeys(range(count), data), transactional_id="tx")


def test_a_transaction_over_many_partitions_is_written_and_ended_in_slices(world):
    count = 2 * ADMITTED_AT_ONCE + 50
    world.create_topic("broad", count)
    made = begin(world)
    answer, turns, most = answered(world, transactional(made, count), 12)
    assert turns > 3 and most <= ADMITTED_AT_ONCE + 10
    assert {row.error_code for row in rows_of(answer)} == {0}
    end = m.EndTxnRequest(transactional_id="tx", producer_id=made.producer_id, producer_epoch=made.producer_epoch,
                          committed=True)  # fmt: skip
    assert answered(world, end, 5)[0].error_code == 0
    turns = 0
    while world.core.busy:
        turns += 1
        world.core.flush(world.now_ms)
    assert turns > 3, "the markers"
    world.turn()
    assert [p.log.last_stable_offset for p in world.core.topics.by_name["broad"].partitions] == [2] * count
    assert begin(world).error_code == 0


def test_markers_of_a_transaction_that_a_crash_cut_short_are_all_written_after_it(world):
    world.create_topic("broad", MANY)
    made = begin(world)
    answered(world, transactional(made, MANY), 12)
    end = m.EndTxnRequest(transactional_id="tx", producer_id=made.producer_id, producer_epoch=made.producer_epoch,
                          committed=True)  # fmt: skip
    world.connect().send(end, 5)
    world.core.flush(world.now_ms)
    assert isinstance(world.store, MemoryStore)
    ends = {p.log.last_stable_offset for p in world.core.topics.by_name["broad"].partitions}
    assert ends == {0, 2}, "some have their marker"
    again = World({"transaction.state.log.num.partitions": 2}, store=world.store, groups=GroupService)
    again.turn()
    again.advance(200)
    ends = {p.log.last_stable_offset for p in again.core.topics.by_name["broad"].partitions}
    assert ends == {2, 3}, "a marker that comes again changes nothing"


def test_markers_for_many_partitions_are_written_in_slices(world):
    world.create_topic("broad", MANY)
    kind = m.WriteTxnMarkersRequest
    topics = [kind.WritableTxnMarkerTopic(name="broad", partition_indexes=[*range(MANY)])]
    marker = kind.WritableTxnMarker(producer_id=5, producer_epoch=0, transaction_result=True, topics=topics)
    answer, turns, _ = answered(world, kind(markers=[marker]), 1)
    (row,) = answer.markers[0].topics
    assert turns > 3 and sorted(p.partition_index for p in row.partitions) == [*range(MANY)]


def test_an_expression_that_takes_for_ever_elsewhere_takes_no_time(world):
    """Transactional ids are named by clients, and so is the expression that they are held against."""
    begin(world, "a" * 200 + "!")
    pattern = "(a|a)*" * 20 + "(a+)+b"
    answer, _, _ = answered(world, m.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert answer.error_code == 0 and answer.transaction_states == []
    back = m.ListTransactionsRequest(transactional_id_pattern=r"(a)\1")
    assert answered(world, back, 2)[0].error_code == ErrorCode.INVALID_REGULAR_EXPRESSION, "as Kafka: RE2 has none"


# Rows of any kind.


def _add_partitions():
    kind = m.AddPartitionsToTxnRequest
    return kind(
        v3_and_below_transactional_id="tx",
        v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name="t", partitions=[*range(20_000)])],
    ), 3, 3, lambda a: len(a.results_by_topic_v3_and_below[0].results_by_partition) == 20_000  # fmt: skip


def _add_transactions():
    kind = m.AddPartitionsToTxnRequest
    asked = [
        kind.AddPartitionsToTxnTransaction(
            transactional_id=f"t{number}", topics=[kind.AddPartitionsToTxnTopic(name="t", partitions=[0])]
        )
        for number in range(2_000)
    ]
    return kind(transactions=asked), 5, 5, lambda a: len(a.results_by_transaction) == 2_000


def _describe_transactions():
    ids = [f"t{number}" for number in range(2_000)]
    return m.DescribeTransactionsRequest(transactional_ids=ids), 0, 5, lambda a: len(a.transaction_states) == 2_000


def _delete_records():
    kind = m.DeleteRecordsRequest
    rows = [kind.DeleteRecordsPartition(partition_index=number % WIDE, offset=0) for number in range(300)]
    request = kind(timeout_ms=1000, topics=[kind.DeleteRecordsTopic(name="t", partitions=rows)])
    return request, 2, 10, lambda a: [p.low_watermark for p in a.topics[0].partitions] == [0] * 300


def _describe_producers():
    kind = m.DescribeProducersRequest
    request = kind(topics=[kind.TopicRequest(name="t", partition_indexes=[*range(5_000)] * 2)])
    return request, 0, 3, lambda a: [p.partition_index for p in a.topics[0].partitions] == [*range(5_000)]


def _alter_configs():
    kind = m.IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="46000")
    asked = [kind.AlterConfigsResource(resource_type=32, resource_name=f"g{n}", configs=[config]) for n in range(50)]
    return kind(resources=asked), 1, 40, lambda a: [row.error_code for row in a.responses] == [0] * 50


def _alter_configs_twice():
    kind = m.IncrementalAlterConfigsRequest
    asked = [kind.AlterConfigsResource(resource_type=2, resource_name="t", configs=[])] * 20_000
    wanted = {ErrorCode.INVALID_REQUEST}
    return kind(resources=asked), 1, 20, lambda a: {row.error_code for row in a.responses} == wanted


def _alter_quotas():
    kind = m.AlterClientQuotasRequest
    ops = [kind.OpData(key="producer_byte_rate", value=1e9)]
    asked = [
        kind.EntryData(entity=[kind.EntityData(entity_type="user", entity_name=f"u{n}")], ops=ops) for n in range(50)
    ]
    return kind(entries=asked), 1, 40, lambda a: [row.error_code for row in a.entries] == [0] * 50


def _elect():
    kind = m.ElectLeadersRequest
    asked = [kind.TopicPartitions(topic="t", partitions=[*range(5_000)])]
    request = kind(election_type=0, timeout_ms=1000, topic_partitions=asked)
    return request, 2, 5, lambda a: len(a.replica_election_results[0].partition_result) == 5_000


def _reassign():
    kind = m.AlterPartitionReassignmentsRequest
    rows = [kind.ReassignablePartition(partition_index=number, replicas=[1]) for number in range(5_000)]
    request = kind(timeout_ms=1000, topics=[kind.ReassignableTopic(name="t", partitions=rows)])
    return request, 1, 5, lambda a: len(a.responses[0].partitions) == 5_000


def _list_reassignments():
    kind = m.ListPartitionReassignmentsRequest
    topics = [kind.ListPartitionReassignmentsTopics(name="t", partition_indexes=[n % WIDE for n in range(5_000)])]
    return kind(timeout_ms=1000, topics=topics), 0, 5, lambda a: a.topics == [] and a.error_code == 0


def _log_dirs():
    kind = m.DescribeLogDirsRequest
    asked = [kind.DescribableLogDirTopic(topic="t", partitions=[number % WIDE]) for number in range(5_000)]
    return kind(topics=asked), 4, 0, lambda a: [len(t.partitions) for t in a.results[0].topics] == [WIDE]


def _create_bad():
    kind = m.CreateTopicsRequest
    asked = [kind.CreatableTopic(name=f"/{n}", num_partitions=1, replication_factor=1) for n in range(5_000)]
    return kind(topics=asked, timeout_ms=1000), 7, 5, lambda a: len(a.topics) == 5_000


def _delete_unknown():
    kind = m.DeleteTopicsRequest
    asked = [kind.DeleteTopicState(name=f"n{number}", topic_id=bytes(16)) for number in range(5_000)]
    return kind(topics=asked, timeout_ms=1000), 6, 5, lambda a: len(a.responses) == 5_000


def _grow_unknown():
    kind = m.CreatePartitionsRequest
    asked = [kind.CreatePartitionsTopic(name=f"n{number}", count=3, assignments=None) for number in range(5_000)]
    return kind(topics=asked, timeout_ms=1000), 3, 5, lambda a: len(a.results) == 5_000


def _topic_partitions():
    kind = m.DescribeTopicPartitionsRequest
    asked = [kind.TopicRequest(name=f"n{number}") for number in range(5_000)]
    return kind(topics=asked, response_partition_limit=2000), 0, 3, lambda a: len(a.topics) == 5_000


def _leave():
    kind = m.LeaveGroupRequest
    members = [kind.MemberIdentity(member_id=f"m{number}") for number in range(1_000)]
    wanted = {ErrorCode.UNKNOWN_MEMBER_ID}
    request = kind(group_id="g", members=members)
    return request, 5, 5, lambda a: len(a.members) == 1_000 and {row.error_code for row in a.members} == wanted


def _txn_commit():
    kind = m.TxnOffsetCommitRequest
    rows = [kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)] * 30_000
    request = kind(
        transactional_id="tx", group_id="g", topics=[kind.TxnOffsetCommitRequestTopic(name="t", partitions=rows)]
    )
    wanted = {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    return request, 3, 5, lambda a: {row.error_code for row in a.topics[0].partitions} == wanted


def _users():
    kind = m.AlterUserScramCredentialsRequest
    row = kind.ScramCredentialUpsertion
    users = [row(name=f"u{n}", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p") for n in range(2_000)]
    return kind(upsertions=users), 0, 3, lambda a: [row.error_code for row in a.results] == [0] * 2_000


@pytest.mark.parametrize(
    "make",
    [
        _users,
        _add_partitions, _add_transactions, _describe_transactions, _delete_records, _describe_producers,
        _alter_configs, _alter_configs_twice, _alter_quotas, _elect, _reassign, _list_reassignments, _log_dirs,
        _create_bad, _delete_unknown, _grow_unknown, _topic_partitions, _leave, _txn_commit,
    ],
)  # fmt: skip
def test_many_rows_are_answered_in_slices(world, make):
    request, version, least, is_right = make()
    answer, turns, _ = answered(world, request, version)
    assert turns > least and is_right(answer)


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("topics", [1, 3, 4_000])
def test_offsets_of_many_partitions_of_a_group_are_one_answer(world, version, topics):
    commit = m.OffsetCommitRequest
    row = commit.OffsetCommitRequestPartition(partition_index=WIDE - 1, committed_offset=7)
    world.connect().call(commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=[row])]), 8)
    kind = m.OffsetFetchRequest
    names, each = ["t", *(f"n{number}" for number in range(topics - 1))], [*range(4_000 // topics)] or [0]
    if version < 8:
        asked = [kind.OffsetFetchRequestTopic(name=name, partition_indexes=each) for name in names]
        request = kind(group_id="g", topics=asked)
    else:
        asked = [kind.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name in names]
        some = [kind.OffsetFetchRequestGroup(group_id=group, topics=asked[:1]) for group in ("a", "b")]
        request = kind(groups=[some[0], kind.OffsetFetchRequestGroup(group_id="g", topics=asked), some[1]])
    answer, turns, _ = answered(world, request, version)
    assert turns > 3
    if version >= 8:
        assert [(group.group_id, len(group.topics)) for group in answer.groups] == [("a", 1), ("g", topics), ("b", 1)]
        answer = answer.groups[1]
    assert [topic.name for topic in answer.topics] == names and answer.error_code == 0
    assert all([p.partition_index for p in topic.partitions] == each for topic in answer.topics)
    found = {p.partition_index: p.committed_offset for p in answer.topics[0].partitions}
    assert found.get(WIDE - 1, 7) == 7 and sorted(set(found.values()))[0] == -1


def test_offsets_of_many_partitions_are_deleted_in_slices(world):
    commit, kind = m.OffsetCommitRequest, m.OffsetDeleteRequest
    rows = [commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=7) for number in range(WIDE)]
    world.connect().call(commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=rows)]), 8)
    asked = [kind.OffsetDeleteRequestPartition(partition_index=number) for number in range(4_000)]
    request = kind(group_id="g", topics=[kind.OffsetDeleteRequestTopic(name="t", partitions=asked)])
    answer, turns, _ = answered(world, request, 0)
    assert turns > 3 and sorted(row.partition_index for row in answer.topics[0].partitions) == [*range(4_000)]
    fetch = m.OffsetFetchRequest
    left = world.connect().call(fetch(groups=[fetch.OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
    assert left.groups[0].topics == []


def test_a_group_that_many_leave_at_once_is_empty(world):
    """Static members, who are named by their instance; the group sees one after the other, as in Kafka."""
    join = m.JoinGroupRequest
    protocols = [join.JoinGroupRequestProtocol(name="range", metadata=b"")]
    for number in range(250):
        world.connect().send(
            join(group_id="g", session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
                 group_instance_id=f"i{number}", protocols=protocols), 5,
        )  # fmt: skip
    world.turn()
    for _ in range(2):
        world.advance(4_000)
    kind = m.LeaveGroupRequest
    gone = [kind.MemberIdentity(member_id="", group_instance_id=f"i{number}") for number in range(250)]
    answer, turns, _ = answered(world, kind(group_id="g", members=gone), 5)
    assert turns > 2 and [row.error_code for row in answer.members] == [0] * 250
    world.turn()
    assert world.connect().call(m.DescribeGroupsRequest(groups=["g"]), 5).groups[0].group_state == "Empty"


# Access control entries.


@pytest.fixture
def guarded():
    return World({"authorizer.class.name": AUTHORIZER}, groups=GroupService)


def create_acls(count, pattern=4):
    kind = m.CreateAclsRequest
    return kind(
        creations=[
            kind.AclCreation(
                resource_type=2, resource_name=f"a{number}", resource_pattern_type=pattern, principal="User:x",
                host="*", operation=3, permission_type=3,
            )
            for number in range(count)
        ]
    )  # fmt: skip


def delete_acls(*names):
    kind = m.DeleteAclsRequest
    return kind(
        filters=[
            kind.DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter=name, pattern_type_filter=1, principal_filter=None,
                host_filter=None, operation=1, permission_type=1,
            )
            for name in names
        ]
    )  # fmt: skip


def test_many_entries_are_made_shown_and_removed_in_slices(guarded):
    answer, turns, _ = answered(guarded, create_acls(3_000), 3)
    assert turns > 3 and {row.error_code for row in answer.results} == {0}
    show = m.DescribeAclsRequest(
        resource_type_filter=2, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    assert len(answered(guarded, show, 3)[0].resources) == 3_000
    answer, turns, _ = answered(guarded, delete_acls(*(f"a{number}" for number in range(20_000))), 3)
    assert turns > 2 and sum(len(row.matching_acls) for row in answer.filter_results) == 3_000
    assert answered(guarded, show, 3)[0].resources == []


def test_more_entries_than_kafka_changes_at_once_are_refused_as_a_whole(guarded):
    answer, _, _ = answered(guarded, create_acls(MOST_AT_ONCE + 1), 3)
    assert {row.error_code for row in answer.results} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    answered(guarded, create_acls(MOST_AT_ONCE // 4), 3)
    answer, _, _ = answered(guarded, delete_acls(*[None] * 1_000), 3)
    assert [row.error_code for row in answer.filter_results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 1_000
    assert not any(row.matching_acls for row in answer.filter_results)
    assert sum(1 for _ in guarded.core.access.acls) == MOST_AT_ONCE // 4


# The same again and again.


def test_offsets_of_one_group_that_is_asked_for_many_times_are_not_made_in_one_go(world):
    commit, kind = m.OffsetCommitRequest, m.OffsetFetchRequest
    rows = [commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=7) for number in range(WIDE)]
    world.connect().call(commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=rows)]), 8)
    answer, turns, _ = answered(world, kind(groups=[kind.OffsetFetchRequestGroup(group_id="g", topics=None)] * 99), 8)
    assert turns > 1 and [len(group.topics[0].partitions) for group in answer.groups] == [WIDE] * 99


def test_an_answer_that_would_take_the_memory_of_all_costs_the_connection(world, monkeypatch):
    monkeypatch.setattr("kohort.broker.long_work.MOST_ANSWER_ROWS", 1_000)
    monkeypatch.setattr("kohort.broker.long_work.MOST_ANSWER_BYTES", 100_000)
    commit, fetch, configs = m.OffsetCommitRequest, m.OffsetFetchRequest, m.DescribeConfigsRequest
    rows = [commit.OffsetCommitRequestPartition(partition_index=number, committed_offset=7) for number in range(WIDE)]
    world.connect().call(commit(group_id="g", topics=[commit.OffsetCommitRequestTopic(name="t", partitions=rows)]), 8)
    everything = [configs.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)]
    for request, version in (
        (fetch(groups=[fetch.OffsetFetchRequestGroup(group_id="g", topics=None)] * 99), 8),
        (m.DescribeGroupsRequest(groups=["a name of some length"] * 5_000), 5),
        (configs(resources=everything * 1_000), 4),
    ):
        client = world.connect()
        client.send(request, version)
        world.turn()
        assert "its answer would have" in (client.connection.close_reason or ""), request
    assert world.connect().call(m.ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("names", [[f"n{number}" for number in range(20_001)], ["n" * 240] * 1_300])
def test_a_subscription_that_cannot_be_stored_does_not_have_the_groups_of_others_read_again(world, names, caplog):
    commit = m.OffsetCommitRequest
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [commit.OffsetCommitRequestTopic(name="t", partitions=[row])]
    kind = m.ConsumerGroupHeartbeatRequest
    request = kind(
        group_id="g", member_id="M" * 22, member_epoch=0, rebalance_timeout_ms=60_000, subscribed_topic_names=names,
        topic_partitions=[],
    )  # fmt: skip
    answer, _, _ = answered(world, request, 1)
    assert answer.error_code == ErrorCode.INVALID_REQUEST and "SubscribedTopicRegex" in answer.error_message
    assert world.connect().call(commit(group_id="g", topics=topics), 8).topics[0].partitions[0].error_code == 0
    assert "loaded again" not in caplog.text
