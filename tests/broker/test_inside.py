"""What a test asks of an embedded broker without a client: records, commits, groups, requests; and puts members out."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka as ck
import pytest

import kohort
from kohort.broker.client_requests import RequestLog
from kohort.broker.controls import FaultError
from kohort.coordinator.causes import CauseKind
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from wire import WireClient, fetch_request


@pytest.fixture
def broker():
    with kohort.Broker() as made:
        yield made


def consumer(broker, client="reader", **settings):
    made = kohort.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        client_id=client,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=50,
        **settings,
    )
    made.subscribe("t")
    return made


def produce(broker, *values, topic="t"):
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"k", headers={"n": str(number)}, partition=number % 2)


def test_records_without_a_client(broker):
    broker.create_topic("t", 2)
    assert broker.records("t") == []
    produce(broker, b"a", b"b", b"c")
    found = broker.records("t")
    assert [(r.partition, r.offset, r.value) for r in found] == [(0, 0, b"a"), (0, 1, b"c"), (1, 0, b"b")]
    assert found[0].key == b"k" and found[0].headers == (("n", b"0"),) and found[0].timestamp > 0
    assert [r.value for r in broker.records("t", partition=1)] == [b"b"]
    with pytest.raises(KafkaError, match="no topic nothing"):
        broker.records("nothing")
    with pytest.raises(KafkaError, match="partitions 0 to 1"):
        broker.records("t", partition=2)


def test_records_of_a_log_that_no_longer_begins_at_zero(broker):
    broker.create_topic("t", 2)
    produce(broker, b"a", b"b", b"c", b"d")
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({("t", 0): 1})
    assert [r.value for r in broker.records("t", partition=0)] == [b"c"]


def test_a_group_from_nothing_to_stable_to_empty(broker):
    broker.create_topic("t", 4)
    produce(broker, b"a")
    assert broker.committed("g") == {} and broker.group("g").state == "Dead"
    assert broker.wait_stable("g", members=0).members == []
    with consumer(broker) as reader:
        while not reader.poll(0.1):
            pass
        reader.commit()
        group = broker.wait_stable("g", members=1, partitions=4)
        assert (group.state, group.protocol) == ("Stable", "range")
        (member,) = group.members
        assert member.client_id == "reader" and member.assignment == {"t": [0, 1, 2, 3]}
        assert broker.committed("g")["t", 0] == 1
    assert broker.wait_stable("g", members=0).state == "Empty"
    with pytest.raises(TimeoutError, match=r"not stable with 2 members .* it is Empty, its members: nobody"):
        broker.wait_stable("g", members=2, timeout=0.05)


def test_a_group_of_the_consumer_protocol(broker):
    broker.create_topic("t", 4)
    settings = {"group_id": "g", "client_id": "reader", "group_protocol": "consumer", "group_instance_id": "one"}
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as reader:
        reader.subscribe("t")
        reader.poll(0.1)
        group = broker.wait_stable("g", members=1, partitions=4)
        assert (group.state, group.protocol) == ("Stable", "uniform")
        (member,) = group.members
        assert (member.client_id, member.group_instance_id) == ("reader", "one")
        assert member.assignment == {"t": [0, 1, 2, 3]}
        assert broker.evict("g", client="reader") == [member.member_id]
        assert broker.wait_stable("g", members=0).state == "Empty"


def test_a_member_that_is_put_out_joins_again(broker):
    broker.create_topic("t")
    with consumer(broker) as reader:
        reader.poll(0.1)
        (member,) = broker.wait_stable("g", members=1).members
        assert broker.evict("g", client="reader") == [member.member_id]
        left = [event for event in broker.story("g") if event.type == "MemberLeft"]
        assert left[-1].cause.kind is CauseKind.REMOVED and "evicted by the test" in left[-1].cause.said
        while broker.group("g").state != "Stable":
            reader.poll(0.05)
        (again,) = broker.group("g").members
        assert again.member_id != member.member_id
        assert broker.evict("g", again.member_id) == [again.member_id]


def test_a_static_member_is_put_out_by_its_instance_id(broker):
    broker.create_topic("t")
    with consumer(broker, group_instance_id="one") as reader:
        reader.poll(0.1)
        broker.wait_stable("g", members=1)
        assert len(broker.evict("g", group_instance_id="one")) == 1


def test_whom_to_put_out(broker):
    with pytest.raises(ValueError, match="whom"):
        broker.evict("g")
    with pytest.raises(LookupError, match="no member with client_id nobody; its members: none"):
        broker.evict("g", client="nobody")


def test_what_an_application_really_sent(broker):
    broker.create_topic("t")
    produce(broker, b"a")
    with consumer(broker) as reader:
        while not reader.poll(0.1):
            pass
        reader.commit()
    (commit,) = broker.requests("OffsetCommit", client="reader")
    assert commit.group_id == "g" and commit.topics[0].partitions[0].committed_offset == 1
    assert commit.to_dict()["body"]["topics"][0]["partitions"][0]["committed_offset"] == 1
    order = [request.api for request in broker.requests(client="reader")]
    assert order.index("FindCoordinator") < order.index("JoinGroup") < order.index("SyncGroup")
    times = [request.at_ms for request in broker.requests()]
    assert times == sorted(times)
    (produced,) = broker.requests("Produce")
    assert b"a" in bytes(produced.topic_data[0].partition_data[0].records)
    broker.restart()
    assert broker.requests("JoinGroup")
    broker.forget_requests()
    assert broker.requests() == []
    with pytest.raises(ValueError, match="did you mean Produce"):
        broker.requests("Prodduce")


def test_the_log_of_requests_is_bounded():
    log = RequestLog(max_requests=3, max_bytes=100)

    class Call:
        client_id = "c"
        entry = None

        class connection:
            host = "h"

    for size in (10, 20, 30, 40):
        log.add(Call, b"x" * size, 0, 0)
    assert len(log._kept) == 3 and log.forgotten == 1
    log.add(Call, b"x" * 90, 0, 0)
    assert [len(kept.frame) for kept in log._kept] == [90]
    log.add(Call, b"x" * 1000, 0, 0)
    assert len(log._kept) == 0


def metadata(broker, topic="t"):
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return WireClient(broker.bootstrap_servers).call(request, 9)


def test_a_function_decides_on_each_request(broker):
    broker.create_topic("t")
    seen = []

    def decide(request):
        seen.append((request.api, request.version, request.client, request.topics[0].name))
        return request.fail("LEADER_NOT_AVAILABLE") if len(seen) == 2 else None

    fault = broker.fault("Metadata", decide)
    codes = [metadata(broker).topics[0].error_code for _ in range(3)]
    assert codes == [0, ErrorCode.LEADER_NOT_AVAILABLE, 0]
    assert fault.hits == 1 and seen[0] == ("Metadata", 9, "test", "t")
    assert "decide" in fault.to_dict()["function"]


def test_a_function_answers_mutates_and_edits(broker):
    broker.create_topic("t")
    answer = broker.fault("Metadata", lambda request: request.answer(cluster_id="mine"), times=1)
    assert metadata(broker).cluster_id == "mine" and answer.spent

    def other_topic(request):
        request.body.topics[0].name = "other"
        return request.serve()

    mutate = broker.fault("Metadata", other_topic, times=1)
    assert metadata(broker).topics[0].name == "other" and mutate.hits == 1

    def moved(response):
        response.brokers[0].port = 1

    broker.fault("Metadata", lambda request: request.edit_answer(moved), times=1)
    assert metadata(broker).brokers[0].port == 1
    broker.fault("Metadata", lambda r: r.edit_answer(lambda _: messages.MetadataResponse(cluster_id="c")), times=1)
    assert metadata(broker).cluster_id == "c"
    broker.fault("Metadata", lambda request: request.disconnect(), times=1)
    with pytest.raises((EOFError, ConnectionError)):
        metadata(broker)
    assert metadata(broker).topics[0].name == "t"


def test_a_function_delays_and_drops():
    with kohort.Broker(clock="manual") as broker:
        broker.create_topic("t")
        slow = broker.fault("Fetch", lambda request: request.delay(5) if request.max_wait_ms == 7 else None)
        client = WireClient(broker.bootstrap_servers)
        client.call(fetch_request("t", 0, max_wait_ms=0), 11)
        client.send(fetch_request("t", 0, max_wait_ms=7), 11)
        broker.faults.wait(slow)
        assert client.closes_at_once() is False
        broker.clock.advance(5)
        client.socket.setblocking(True)
        assert client.receive_frame()
        lost = broker.fault("Fetch", lambda request: request.drop())
        client.send(fetch_request("t", 0), 11)
        broker.faults.wait(lost)
        assert client.closes_at_once() is False


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda request: 1 / 0, ZeroDivisionError),
        (lambda request: "NOT_COORDINATOR", TypeError),
        (lambda request: request.answer(messages.FetchResponse()), TypeError),
        (lambda request: request.edit_answer(lambda response: response.nothing), AttributeError),
        (lambda request: request.fail("NOPE"), ValueError),
    ],
)
def test_a_function_that_fails_is_not_silent(function, why, caplog):
    """The request is served, the rule ends, and the end of the broker says so."""
    caplog.set_level(logging.CRITICAL, "kohort.faults")
    broker = kohort.Broker().start()
    broker.create_topic("t")
    fault = broker.fault("Metadata", function)
    assert metadata(broker).topics[0].error_code == 0
    assert metadata(broker).topics[0].error_code == 0
    assert isinstance(fault.error, why) and fault.spent
    with pytest.raises(FaultError) as raised:
        broker.close()
    assert raised.value.__cause__ is fault.error
    broker.close()


def test_the_error_of_the_test_itself_comes_first():
    with pytest.raises(AssertionError, match="mine"), kohort.Broker() as broker:
        broker.create_topic("t")
        broker.fault("Metadata", lambda request: 1 / 0)
        metadata(broker)
        raise AssertionError("mine")


def test_waiting_does_not_stop_an_event_loop(broker):
    async def wrong():
        broker.wait_stable("g", members=0)

    async def right():
        return await asyncio.to_thread(broker.wait_stable, "g", members=0)

    with pytest.raises(RuntimeError, match=r"await asyncio.to_thread\(broker.wait_stable"):
        asyncio.run(wrong())
    assert asyncio.run(right()).state == "Dead"


def test_a_broker_that_is_stopped_ends_the_wait():
    broker = kohort.Broker().start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.wait_stable, "g", members=1)
        while not waiting.running():
            pass
        broker.group("g")
        broker.close()
        with pytest.raises(RuntimeError, match=r"was stopped|not running"):
            waiting.result(10)


def test_a_group_is_asked_for_while_it_is_loaded(tmp_path):
    with kohort.Broker(tmp_path) as broker:
        broker.create_topic("t")
        reader = ck.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        reader.commit(offsets=[ck.TopicPartition("t", 0, 7)], asynchronous=False)
        reader.close()
        broker.restart()
        assert broker.committed("g") == {("t", 0): 7}


def test_questions_pass_faults_and_leave_no_trace(broker):
    broker.create_topic("t")
    broker.faults.disconnect("*", times=None)
    assert broker.records("t") == [] and broker.committed("g") == {} and broker.requests() == []
