"""Transactions through the broker, request by request: what is answered, what a consumer sees, what a crash leaves."""

import errno

import pytest

from kohort.broker.groups import GroupService
from kohort.coordinator.records import partition_for
from kohort.coordinator.shard import Life
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from transactional import TxnProducer, describe, fetch_offset, make_world, read, state_of

NONE = ErrorCode.NONE
BOTH = pytest.mark.parametrize("tv", [0, 2])


@pytest.fixture
def world():
    made = make_world()
    made.create_topic("t", 2)
    made.create_topic("u", 1)
    return made


def begun(world, tv=2, **options):
    producer = TxnProducer(world, tv=tv, **options)
    assert producer.init() is NONE
    return producer


@BOTH
def test_a_committed_transaction_is_seen_whole(world, tv):
    producer = begun(world, tv)
    assert (producer.send(b"a"), producer.send(b"b", "u"), producer.send(b"c")) == (NONE, NONE, NONE)
    assert read(world) == [] and read(world, committed=False) == [b"a", b"c"]
    assert state_of(world) == "Ongoing"
    assert producer.end() is NONE
    assert (read(world), read(world, "u")) == ([b"a", b"c"], [b"b"])
    assert state_of(world) == "CompleteCommit"


@BOTH
def test_an_aborted_transaction_is_never_seen(world, tv):
    producer = begun(world, tv)
    producer.send(b"a")
    assert producer.end(commit=False) is NONE
    producer.send(b"b")
    assert producer.end() is NONE
    assert read(world) == [b"b"] and read(world, committed=False) == [b"a", b"b"]


@BOTH
def test_an_open_transaction_holds_back_what_comes_after_it(world, tv):
    first, second = begun(world, tv, transactional_id="one"), begun(world, tv, transactional_id="two")
    first.send(b"a")
    second.send(b"b")
    second.end()
    assert read(world) == []
    first.end(commit=False)
    assert read(world) == [b"b"]


def test_tv2_raises_the_epoch_with_every_end(world):
    producer = begun(world)
    epochs = []
    for _ in range(3):
        producer.send(b"a")
        producer.end()
        epochs.append(producer.epoch)
    assert epochs == [1, 2, 3]


def test_tv1_keeps_the_epoch(world):
    producer = begun(world, 0)
    producer.send(b"a")
    producer.end()
    producer.send(b"b")
    assert (producer.end(), producer.epoch, read(world)) == (NONE, 0, [b"a", b"b"])


def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(world):
    old = begun(world)
    old.send(b"a")
    new = TxnProducer(world)
    assert new.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert new.init() is NONE
    assert (new.id, new.epoch) == (old.id, 2)
    assert old.send(b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.end() is ErrorCode.PRODUCER_FENCED
    new.send(b"c")
    new.end()
    assert read(world) == [b"c"]


@pytest.mark.parametrize(("version", "error"), [(4, "PRODUCER_FENCED"), (3, "INVALID_PRODUCER_EPOCH")])
def test_a_fenced_producer_cannot_come_back(world, version, error):
    old, new = begun(world), TxnProducer(world)
    new.init()
    new.init()
    assert old.init(keep=True, version=version) is ErrorCode[error]


def test_a_producer_that_says_who_it_is_gets_the_next_epoch_once(world):
    producer = begun(world)
    twin = TxnProducer(world)
    twin.id, twin.epoch = producer.id, producer.epoch
    assert producer.init(keep=True) is NONE and producer.epoch == 1
    assert twin.init(keep=True) is NONE and twin.epoch == 1  # the answer got lost: the same again


def test_epochs_that_are_used_up_rotate_the_producer_id(world):
    producer = begun(world)
    first = producer.id
    transactions = world.core.service("transactions").coordinator
    shard = transactions.runtime.shards[transactions.partition_for("tx")]
    value = shard.state.transactions["tx"]
    shard.state.transactions["tx"] = value._replace(producer_epoch=32765)
    producer.epoch = 32765
    producer.send(b"a")
    assert producer.end() is NONE and (producer.id, producer.epoch) == (first, 32766)
    producer.send(b"b")
    again = TxnProducer(world)
    again.id, again.epoch = producer.id, producer.epoch
    assert producer.end() is NONE and producer.id != first and producer.epoch == 0
    assert again.end() is NONE and (again.id, again.epoch) == (producer.id, 0)  # a repetition
    producer.send(b"c")
    assert producer.end() is NONE
    assert read(world) == [b"a", b"b", b"c"]


def test_init_rotates_the_producer_id_too(world):
    producer = begun(world)
    transactions = world.core.service("transactions").coordinator
    shard = transactions.runtime.shards[transactions.partition_for("tx")]
    shard.state.transactions["tx"] = shard.state.transactions["tx"]._replace(producer_epoch=32766)
    first = producer.id
    assert producer.init() is NONE
    assert producer.id != first and producer.epoch == 0


# ---- EndTxn


@pytest.mark.parametrize(
    ("before", "again", "commit", "error", "rises"),
    [
        ("Empty", True, False, "PRODUCER_FENCED", 0),
        ("Empty", False, False, "NONE", 1),
        ("Empty", True, True, "PRODUCER_FENCED", 0),
        ("Empty", False, True, "INVALID_TXN_STATE", 0),
        ("CompleteAbort", True, False, "NONE", 0),
        ("CompleteAbort", False, False, "NONE", 1),
        ("CompleteAbort", True, True, "INVALID_TXN_STATE", 0),
        ("CompleteAbort", False, True, "INVALID_TXN_STATE", 0),
        ("CompleteCommit", True, False, "INVALID_TXN_STATE", 0),
        ("CompleteCommit", False, False, "NONE", 1),
        ("CompleteCommit", True, True, "NONE", 0),
        ("CompleteCommit", False, True, "INVALID_TXN_STATE", 0),
    ],
)
def test_an_end_by_tv2(world, before, again, commit, error, rises):
    producer = begun(world)
    if before != "Empty":
        producer.send(b"a")
        producer.end(commit=before == "CompleteCommit")
    assert state_of(world) == before
    stored = describe(world).producer_epoch
    producer.epoch = stored - again
    assert producer.end(commit) is ErrorCode[error]
    assert describe(world).producer_epoch == stored + rises


@pytest.mark.parametrize(
    ("before", "commit", "error"),
    [
        ("Empty", False, "INVALID_TXN_STATE"),
        ("Empty", True, "INVALID_TXN_STATE"),
        ("CompleteAbort", False, "NONE"),
        ("CompleteAbort", True, "INVALID_TXN_STATE"),
        ("CompleteCommit", False, "INVALID_TXN_STATE"),
        ("CompleteCommit", True, "NONE"),
    ],
)
def test_an_end_by_tv1(world, before, commit, error):
    producer = begun(world, 0)
    if before != "Empty":
        producer.send(b"a")
        producer.end(commit=before == "CompleteCommit")
    assert producer.end(commit) is ErrorCode[error]


def test_while_markers_are_missing_everybody_waits(world):
    producer = begun(world)
    producer.send(b"a")
    log = world.core.topics.partition("t", 0).log
    log.faults.append_errors.append(errno.ENOSPC)
    assert producer.end() is NONE
    assert state_of(world) == "PrepareCommit" and read(world) == []
    assert producer.send(b"b") is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.end() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert TxnProducer(world).init() is ErrorCode.CONCURRENT_TRANSACTIONS
    world.advance(200)
    assert state_of(world) == "CompleteCommit" and read(world) == [b"a"]
    assert producer.send(b"b") is NONE


def write_marker(world, producer, epoch, coordinator_epoch, topic="t"):
    kind = messages.WriteTxnMarkersRequest
    marker = kind.WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
    )
    answer = world.connect().call(kind(markers=[marker]), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("step", ["send", "commit_offset"])
def test_a_marker_that_comes_while_the_next_transaction_is_asked_about(world, step):
    """As another broker may see it: its question is under way, the marker, or one that comes again, overtakes it."""
    producer = begun(world)
    what = {"send": lambda: producer.send(b"a"), "commit_offset": lambda: producer.commit_offset("g", 5)}[step]
    topic = {"send": "t", "commit_offset": "__consumer_offsets"}[step]
    assert what() is NONE and producer.end() is NONE
    enlist = world.core.enlist

    def late(ask, asker, now_ms):
        world.core.enlist = enlist
        assert write_marker(world, producer, producer.epoch, 0, topic) is NONE
        enlist(ask, asker, world.now_ms)

    world.core.enlist = late
    assert what() is NONE
    assert producer.end() is NONE and state_of(world) == "CompleteCommit"


@pytest.mark.parametrize("tv", [1, 2])
def test_offsets_whose_partition_was_led_elsewhere_while_their_transaction_was_asked_about(world, tv):
    """The other leader may have ended the transaction: pending offsets would stay for ever."""
    producer = begun(world, tv=tv)
    enlist, groups = world.core.enlist, world.core.service("groups")

    def late(ask, asker, now_ms):
        world.core.enlist = enlist
        groups.coordinator.runtime.resign(0, world.now_ms)
        groups.topic_created(world.core.topics.by_name["__consumer_offsets"], world.now_ms)
        for _ in range(100):
            world.advance(0)
        assert groups.coordinator.is_loaded(0)
        enlist(ask, asker, world.now_ms)

    world.core.enlist = late
    assert producer.commit_offset("g", 5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not groups.coordinator.has_pending(0, producer.id)
    assert producer.commit_offset("g", 5) is NONE
    assert producer.end() is NONE and state_of(world) == "CompleteCommit"


# ---- which partitions


def test_an_older_client_must_enlist_a_partition_first(world):
    producer = begun(world, 0)
    assert producer.send(b"a", enlist=False) is ErrorCode.TRANSACTION_ABORTABLE
    assert producer.send(b"a") is NONE
    assert producer.send(b"b", enlist=False) is NONE


def test_records_after_the_end_of_the_transaction_are_refused(world):
    """The one way to a transaction that hangs: a record that comes when nobody will end it any more."""
    producer = begun(world, 0)
    producer.send(b"a")
    producer.end()
    assert producer.send(b"late", enlist=False) is ErrorCode.TRANSACTION_ABORTABLE
    assert read(world) == [b"a"]


def test_transactional_records_without_an_id(world):
    producer = begun(world)
    producer.transactional_id = None
    assert producer.send(b"a") is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_of_partitions_that_are_not_there_none_is_added(world):
    kind = messages.AddPartitionsToTxnRequest
    producer = begun(world, 0)
    topics = [
        kind.AddPartitionsToTxnTopic(name="t", partitions=[0, 9]),
        kind.AddPartitionsToTxnTopic(name="nope", partitions=[0]),
    ]
    request = kind(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics,
    )
    rows = producer.client.call(request, 3).results_by_topic_v3_and_below
    codes = {
        (t.name, r.partition_index): ErrorCode(r.partition_error_code) for t in rows for r in t.results_by_partition
    }
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED, ("t", 9): missing, ("nope", 0): missing}
    assert state_of(world) == "Empty"


def test_brokers_ask_about_several_transactions_at_once(world):
    one, two = begun(world, 0, transactional_id="one"), begun(world, 0, transactional_id="two")
    one.add(("t", 0))
    kind = messages.AddPartitionsToTxnRequest

    def of(producer, verify_only):
        topics = [kind.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
        return kind.AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=topics,
        )

    answer = one.client.call(kind(transactions=[of(one, True), of(two, False)]), 5)
    codes = {
        (result.transactional_id, row.partition_index): ErrorCode(row.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for row in topic.results_by_partition
    }
    aborts = ErrorCode.TRANSACTION_ABORTABLE
    assert codes == {("one", 0): NONE, ("one", 1): aborts, ("two", 0): NONE, ("two", 1): NONE}
    assert state_of(world, "two") == "Ongoing"


def test_a_deleted_topic_does_not_hold_up_the_end(world):
    producer = begun(world)
    producer.send(b"a")
    producer.send(b"b", "u")
    producer.client.call(messages.DeleteTopicsRequest(topic_names=["u"], timeout_ms=1000), 5)
    assert producer.end() is NONE
    assert state_of(world) == "CompleteCommit" and read(world) == [b"a"]


# ---- offsets of groups


@BOTH
def test_offsets_count_when_the_transaction_is_committed(world, tv):
    producer = begun(world, tv)
    assert producer.commit_offset("g", 5) is NONE
    assert fetch_offset(world, "g").error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetch_offset(world, "g", stable=False).committed_offset == -1
    assert producer.end() is NONE
    assert fetch_offset(world, "g").committed_offset == 5
    producer.commit_offset("g", 9)
    producer.end(commit=False)
    assert fetch_offset(world, "g").committed_offset == 5
    assert state_of(world) == "CompleteAbort"


def test_offsets_of_a_member_that_is_no_member_are_refused(world):
    producer = begun(world)
    assert producer.commit_offset("g", 5, generation_id=3, member_id="m") is ErrorCode.ILLEGAL_GENERATION


def test_offsets_in_a_transaction_that_does_not_hold_the_group(world):
    producer = begun(world, 0)
    producer.send(b"a")
    kind = messages.TxnOffsetCommitRequest
    row = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = kind(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[kind.TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    assert producer.client.call(request, 3).topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.client.call(request, 4).topics[0].partitions[0].error_code == ErrorCode.TRANSACTION_ABORTABLE


# ---- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(world):
    producer = begun(world, timeout_ms=5_000)
    producer.send(b"a")
    world.advance(4_000)
    world.advance(7_000)
    assert state_of(world) == "CompleteAbort" and read(world) == []
    assert producer.send(b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end() is ErrorCode.INVALID_TXN_STATE  # it was aborted, and cannot be committed
    assert producer.end(commit=False) is NONE
    assert producer.init(keep=True) is NONE  # KIP-360 does not fence who only came late
    assert producer.send(b"c") is NONE


def test_many_that_take_too_long(world):
    producers = [begun(world, transactional_id=f"tx-{i}", timeout_ms=1_000) for i in range(20)]
    for producer in producers:
        producer.send(b"a")
    world.advance(11_000)
    world.advance(0)
    assert {state_of(world, f"tx-{i}") for i in range(20)} == {"CompleteAbort"}


def test_an_id_that_nobody_uses_is_forgotten(world):
    producer = begun(world)
    producer.send(b"a")
    producer.end()
    world.advance(604_800_000 + 3_600_000)
    assert describe(world).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert producer.send(b"b") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_allowed(world, timeout_ms):
    assert TxnProducer(world, timeout_ms=timeout_ms).init() is ErrorCode.INVALID_TRANSACTION_TIMEOUT


# ---- crashes


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_goes_on_after_a_restart(world, tv, commit):
    producer = begun(world, tv)
    producer.send(b"a")
    producer.commit_offset("g", 3)
    again = make_world(world.store)
    producer.world, producer.client = again, again.connect()
    assert fetch_offset(again, "g").error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.send(b"b") is NONE
    assert producer.end(commit) is NONE
    assert read(again) == ([b"a", b"b"] if commit else [])
    assert fetch_offset(again, "g").committed_offset == (3 if commit else -1)


@pytest.mark.parametrize("tv", [0, 2])
def test_what_was_prepared_is_brought_to_its_end_after_a_restart(world, tv):
    producer = begun(world, tv)
    producer.send(b"a")
    producer.send(b"b", "u")
    producer.commit_offset("g", 3)
    world.core.topics.partition("t", 0).log.faults.append_errors.append(errno.ENOSPC)
    producer.end()
    assert state_of(world) == "PrepareCommit"
    again = make_world(world.store)
    assert (state_of(again), read(again), read(again, "u")) == ("CompleteCommit", [b"a"], [b"b"])
    assert fetch_offset(again, "g").committed_offset == 3


def test_an_end_that_cannot_be_stored_is_no_end(world):
    producer = begun(world)
    producer.send(b"a")
    coordinator = world.core.service("transactions").coordinator
    log = world.core.topics.partition("__transaction_state", coordinator.partition_for("tx")).log
    log.faults.append_errors.append(errno.EIO)
    assert producer.end() is ErrorCode.NOT_COORDINATOR
    world.advance(0)
    assert state_of(world) == "Ongoing" and read(world) == []
    assert producer.end() is NONE and read(world) == [b"a"]


def test_an_id_stays_where_it_is_when_the_topic_grows(world):
    producers = [begun(world, transactional_id=f"tx-{i}") for i in range(10)]
    kind = messages.CreatePartitionsRequest
    grown = kind.CreatePartitionsTopic(name="__transaction_state", count=7, assignments=None)
    request = kind(topics=[grown], timeout_ms=1000)
    assert world.connect().call(request, 3).results[0].error_code == 0
    world.advance(0)
    for producer in producers:
        producer.send(b"a")
        assert producer.end() is NONE
    again = make_world(world.store)
    assert [describe(again, p.transactional_id).producer_epoch for p in producers] == [1] * 10


def transaction_log(world, partition):
    return world.core.topics.by_name["__transaction_state"].partitions[partition].log


def ids_in(partition, *, not_in=None):
    """Names that belong to a partition of two; of five, not to that other one."""
    names = (f"tx-{i}" for i in range(100))
    return [name for name in names if partition_for(name, 2) == partition and partition_for(name, 5) != not_in]


def test_a_damaged_partition_is_not_served_and_the_others_are(world, caplog):
    lost, kept = ids_in(1), ids_in(0)
    for name in (*lost[:3], *kept[:3]):
        begun(world, transactional_id=name)
    transaction_log(world, 1).damage(1, 17)
    again = make_world(world.store)
    coordinator = again.core.service("transactions").coordinator
    shards = coordinator.runtime.shards
    assert [shards[0].life, shards[1].life] == [Life.ACTIVE, Life.FAILED]
    assert shards[1].failure.startswith("at offset 1:")
    assert len([r for r in caplog.records if "cannot be read whole" in r.getMessage()]) == 1
    assert {TxnProducer(again, name).init() for name in (*lost[:3], lost[9])} == {ErrorCode.NOT_COORDINATOR}
    assert {TxnProducer(again, name).init() for name in (*kept[:3], kept[9])} == {NONE}
    again.advance(700_000)
    listed = again.connect().call(messages.ListTransactionsRequest(), 2)
    assert listed.error_code == NONE
    assert {row.transactional_id for row in listed.transaction_states} == {*kept[:3], kept[9]}


def test_an_id_whose_partition_cannot_be_read_does_not_begin_anew_when_the_topic_has_grown(world):
    lost, kept = ids_in(1, not_in=1), ids_in(0, not_in=1)
    producer = begun(world, transactional_id=lost[0])
    transaction_log(world, 1).damage(0, 17)
    world.core.topics.grow(world.core.topics.by_name["__transaction_state"], 5)
    again = make_world(world.store)
    assert TxnProducer(again, lost[0]).init() is ErrorCode.NOT_COORDINATOR
    assert TxnProducer(again, kept[0]).init() is NONE
    transaction_log(again, 1).damage(0, 17)  # mended
    healed = TxnProducer(make_world(world.store), lost[0])
    assert healed.init() is NONE and (healed.id, healed.epoch) == (producer.id, 1)


# ---- tools


def test_list_and_its_filters(world):
    for name in ("one", "two", "three"):
        begun(world, transactional_id=name).send(b"a")
    begun(world, transactional_id="idle")

    def listed(version=2, **filters):
        answer = world.connect().call(messages.ListTransactionsRequest(**filters), version)
        return sorted(row.transactional_id for row in answer.transaction_states)

    assert listed() == ["idle", "one", "three", "two"]
    assert listed(state_filters=["Ongoing"]) == ["one", "three", "two"]
    assert listed(transactional_id_pattern="t.*") == ["three", "two"]
    assert listed(state_filters=["Ongoing"], duration_filter=1_000) == []
    world.advance(2_000)
    assert listed(state_filters=["Ongoing"], duration_filter=1_000) == ["one", "three", "two"]
    bad = world.connect().call(messages.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    unknown = world.connect().call(messages.ListTransactionsRequest(state_filters=["Odd"]), 0)
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Odd"], [])


def test_describe(world):
    producer = begun(world)
    producer.send(b"a", partition=1)
    row = describe(world)
    assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", producer.id, 0)
    assert (row.transaction_timeout_ms, row.transaction_start_time_ms) == (60_000, world.now_ms)
    assert [(t.topic, t.partitions) for t in row.topics] == [("t", [1])]
    assert describe(world, "nope").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe(world, "").error_code == ErrorCode.INVALID_REQUEST


def test_an_operator_ends_a_transaction_that_hangs(world):
    producer = begun(world)
    producer.send(b"a")
    kind = messages.WriteTxnMarkersRequest
    topics = [kind.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7])]
    marker = kind.WritableTxnMarker(
        producer_id=producer.id, producer_epoch=producer.epoch, transaction_result=False, topics=topics,
        coordinator_epoch=0,
    )  # fmt: skip
    (row,) = world.connect().call(kind(markers=[marker]), 1).markers
    codes = {p.partition_index: ErrorCode(p.error_code) for t in row.topics for p in t.partitions}
    assert codes == {0: NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert read(world) == [] and world.core.topics.partition("t", 0).log.last_stable_offset == 2


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused(world):
    producer = begun(world)
    producer.send(b"a")
    producer.end()
    assert write_marker(world, producer, 0, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write_marker(world, producer, 1, -1) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_the_topic_is_made_on_first_need(world):
    fresh = make_world()
    assert "__transaction_state" not in fresh.core.topics.by_name
    TxnProducer(fresh).find()
    topic = fresh.core.topics.by_name["__transaction_state"]
    assert topic.internal and len(topic.partitions) == 2 and topic.overrides["cleanup.policy"] == "compact"
    assert isinstance(fresh.core.service("groups"), GroupService)
