"""An embedded broker in the hands of a test: its clock, its faults, its restarts, seen through sockets and clients."""

import confluent_kafka as ck
import pytest

import kohort
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from wire import WireClient, fetch_request

SESSION_S = 45


def join_request(member_id="", session_s=SESSION_S):
    kind = messages.JoinGroupRequest
    return kind(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=session_s * 1000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[kind.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def join(client, **options):
    """A member that is known to the group, alone in it."""
    client.call(messages.FindCoordinatorRequest(key="g"), 2)
    member_id = client.call(join_request(**options), 5).member_id
    answer = client.call(join_request(member_id, **options), 5)
    assert answer.error_code == 0
    sync = messages.SyncGroupRequest(group_id="g", generation_id=answer.generation_id, member_id=member_id)
    assert client.call(sync, 3).error_code == 0
    return answer


def heartbeat(client, joined):
    request = messages.HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    return client.call(request, 3).error_code


@pytest.fixture(params=["running", "manual"])
def any_clock(request):
    with kohort.Broker(clock=request.param) as broker:
        yield broker


def test_sessions_expire_at_once(any_clock):
    member = WireClient(any_clock.bootstrap_servers)
    joined = join(member)
    any_clock.clock.advance(SESSION_S - 5)
    assert heartbeat(member, joined) == 0
    any_clock.clock.advance(SESSION_S)
    assert [event.type for event in any_clock.story("g")].count("MemberEvicted") == 1
    assert heartbeat(member, joined) == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_is_due_has_been_answered_when_advance_returns(any_clock):
    crashed, waiting = WireClient(any_clock.bootstrap_servers), WireClient(any_clock.bootstrap_servers)
    join(crashed, session_s=10)
    member_id = waiting.call(join_request(), 5).member_id
    waiting.send(join_request(member_id), 5)
    assert waiting.closes_at_once() is False  # nothing has come
    any_clock.clock.advance(10)
    waiting.socket.setblocking(False)
    assert len(waiting.socket.recv(100_000)) > 20


def test_deadlines_on_the_way_come_in_their_order():
    """One advance: a session ends, so the rebalance does; the member that never syncs then is too late with that."""
    with kohort.Broker(clock="manual", config={"group.max.session.timeout.ms": 1_800_000}) as broker:
        first, second = WireClient(broker.bootstrap_servers), WireClient(broker.bootstrap_servers)
        join(first, session_s=10)
        member_id = second.call(join_request(session_s=1_000), 5).member_id
        second.send(join_request(member_id, session_s=1_000), 5)
        while "RebalanceStarted" not in [event.type for event in broker.story("g")][-4:]:
            pass
        begin = broker.clock.now_ms()
        broker.clock.advance(500)
        happened = [(event.type, (event.at_ms - begin) / 1000) for event in broker.story("g") if event.at_ms > begin]
        assert [at for what, at in happened if what == "MemberEvicted"] == [10, 310]
        assert [at for what, at in happened if what == "GenerationStarted"] == [10]
        assert broker.clock.now_ms() == begin + 500_000


def test_a_manual_clock_stands_still_but_fetches_do_not_wait_for_it():
    with kohort.Broker(clock="manual") as broker:
        broker.create_topic("t")
        before = broker.clock.now_ms()
        client = WireClient(broker.bootstrap_servers)
        answer = client.call(fetch_request("t", 0, max_wait_ms=50), 11)
        assert answer.responses[0].partitions[0].error_code == 0
        assert broker.clock.now_ms() == before
        broker.clock.advance(0.5)
        assert broker.clock.now_ms() == before + 500
        with pytest.raises(ValueError, match="does not go back"):
            broker.clock.advance(-1)


def test_groups_are_loaded_under_a_manual_clock(tmp_path):
    with kohort.Broker(tmp_path, clock="manual") as broker:
        joined = join(WireClient(broker.bootstrap_servers))
        broker.restart()
        client = WireClient(broker.bootstrap_servers)
        while (code := heartbeat(client, joined)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert code == 0


def test_a_delay_waits_for_the_clock():
    with kohort.Broker(clock="manual") as broker:
        fault = broker.faults.delay("Metadata", seconds=5, client="test")
        client = WireClient(broker.bootstrap_servers)
        client.send(messages.MetadataRequest(topics=[]), 9)
        broker.faults.wait(fault)
        assert client.closes_at_once() is False
        broker.clock.advance(5)
        client.socket.setblocking(False)
        assert len(client.socket.recv(100_000)) > 20


def test_what_must_be_on_disk_first_has_been_answered_too(tmp_path):
    with kohort.Broker(tmp_path, clock="manual", config={"kohort.fsync": "always"}) as broker:
        broker.create_topic("t")
        client = WireClient(broker.bootstrap_servers)
        client.call(messages.FindCoordinatorRequest(key="g"), 2)
        fault = broker.faults.delay("OffsetCommit", seconds=5)
        kind = messages.OffsetCommitRequest
        row = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        client.send(kind(group_id="g", topics=[kind.OffsetCommitRequestTopic(name="t", partitions=[row])]), 8)
        broker.faults.wait(fault)
        broker.clock.advance(5)
        client.socket.setblocking(False)
        assert len(client.socket.recv(1000)) > 20


def test_rules_outlive_a_restart_and_can_be_made_before_the_start():
    broker = kohort.Broker()
    fault = broker.faults.disconnect("Metadata", times=2)
    with broker:
        assert list(broker.faults) == [fault]
        with pytest.raises((EOFError, ConnectionError)):
            WireClient(broker.bootstrap_servers).call(messages.MetadataRequest(topics=[]), 9)
        broker.restart()
        with pytest.raises((EOFError, ConnectionError)):
            WireClient(broker.bootstrap_servers).call(messages.MetadataRequest(topics=[]), 9)
        broker.faults.wait(fault, hits=2)
        assert WireClient(broker.bootstrap_servers).call(messages.MetadataRequest(topics=[]), 9).brokers
        broker.faults.remove(fault)
        assert list(broker.faults) == []
    with pytest.raises(TimeoutError, match="did not happen 3 times"):
        broker.faults.wait(fault, hits=3, timeout=0.01)


def test_topics_without_a_client():
    with kohort.Broker() as broker:
        broker.create_topic("t", 3, {"cleanup.policy": "compact"})
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert len(admin.describe_topics(["t"])["t"].partitions) == 3
        with pytest.raises(KafkaError, match="exists"):
            broker.create_topic("t")


def test_a_clock_that_does_not_exist():
    with pytest.raises(ValueError, match="running or manual"):
        kohort.Broker(clock="sundial")


def test_our_consumer_retries_a_commit():
    with kohort.Broker() as broker:
        broker.create_topic("t")
        fault = broker.faults.fail("OffsetCommit", code="COORDINATOR_NOT_AVAILABLE", times=2, group="g")
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"x")
        with kohort.Consumer(**settings, enable_auto_commit=False) as consumer:
            consumer.subscribe("t")
            assert [record.value for record in consumer.poll(60)] == [b"x"]
            consumer.commit()
        assert fault.hits == 2


def test_confluent_kafka_gets_over_a_coordinator_that_is_away_and_answers_that_are_lost():
    with kohort.Broker() as broker:
        broker.create_topic("t", 2)
        servers = {"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.max.ms": 100, "log_level": 0}
        lost = broker.faults.disconnect("Produce", before=False)
        away = broker.faults.fail("FindCoordinator", code="COORDINATOR_NOT_AVAILABLE", times=3)
        stale = broker.faults.fail("Fetch", code="NOT_LEADER_OR_FOLLOWER", topic="t", partition=1)
        producer = ck.Producer(servers | {"enable.idempotence": True})
        for number in range(10):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(60) == 0
        consumer = ck.Consumer(
            servers | {"group.id": "g", "auto.offset.reset": "earliest", "topic.metadata.refresh.fast.interval.ms": 50}
        )
        consumer.subscribe(["t"])
        values = []
        while len(values) < 10:
            (message,) = consumer.consume(1, 60)
            assert message.error() is None
            values.append(message.value())
        consumer.close()
        assert sorted(values) == [b"%d" % number for number in range(10)]
        assert (lost.hits, away.hits, stale.hits) == (1, 3, 1)
