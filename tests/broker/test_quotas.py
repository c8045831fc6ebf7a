"""Quotas: who is over them, how long they wait, and what they are told."""

import time

import pytest

import kohort
from kohort.broker.quotas import CLIENT_ID, CONNECTIONS, DOCUMENT, FETCH, MUTATIONS, PRODUCE, USER, Quotas, Rate
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.storage.store import MemoryStore
from wire import WireClient, World, batch, fetch_request, produce_request


def test_a_rate_is_kafkas():
    rate = Rate()
    rate.record(5000, 0)
    assert rate.over(500, 0) == 0, "5,000 within ten seconds are 500 a second"
    rate.record(500, 500)
    # 5,500 over 10.5 s are 523.8 a second, 4.76 % over 500: that much of 10.5 s
    assert round(rate.over(500, 500)) == 500
    assert rate.over(500, 11_500) == 0


@pytest.mark.parametrize(
    ("entity", "other"),
    [
        ({USER: "alice", CLIENT_ID: "app"}, {USER: "alice", CLIENT_ID: None}),
        ({USER: "alice", CLIENT_ID: None}, {USER: "alice"}),
        ({USER: "alice"}, {USER: None, CLIENT_ID: "app"}),
        ({USER: None, CLIENT_ID: "app"}, {USER: None, CLIENT_ID: None}),
        ({USER: None, CLIENT_ID: None}, {USER: None}),
        ({USER: None}, {CLIENT_ID: "app"}),
        ({CLIENT_ID: "app"}, {CLIENT_ID: None}),
    ],
)
def test_the_most_exact_quota_counts(entity, other):
    quotas = Quotas(MemoryStore())
    for parts, limit in ((other, 1e9), (entity, 10)):
        quotas.change({tuple(sorted(parts.items())): {PRODUCE: limit}})
    assert quotas.throttle_ms(PRODUCE, "User:alice", "app", 1000, 0) > 0
    assert quotas.throttle_ms(FETCH, "User:alice", "app", 1000, 0) == 0


def test_clients_of_a_user_share_its_quota_and_others_do_not():
    quotas = Quotas(MemoryStore())
    quotas.change({((USER, None),): {PRODUCE: 10}})
    assert quotas.throttle_ms(PRODUCE, "User:alice", "one", 1000, 0) > 0
    assert quotas.throttle_ms(PRODUCE, "User:alice", "two", 1, 0) > 0
    assert quotas.throttle_ms(PRODUCE, "User:bob", "one", 1, 0) == 0


def test_random_client_ids_take_no_memory():
    quotas = Quotas(MemoryStore())
    quotas.change({((CLIENT_ID, None),): {PRODUCE: 10}})
    for number in range(50_000):
        quotas.throttle_ms(PRODUCE, None, f"c{number}", 1, number * 10)
    assert len(quotas._rates) <= 10_000 and len(quotas._found) <= 10_000


def test_quotas_survive_a_restart_and_damage_stops_the_start():
    store = MemoryStore()
    Quotas(store).change({((USER, "alice"),): {PRODUCE: 10.0, FETCH: 20.0}})
    again = Quotas(store)
    again.load()
    assert again.active and again.limits == {((USER, "alice"),): {PRODUCE: 10.0, FETCH: 20.0}}
    again.change({((USER, "alice"),): {PRODUCE: None, FETCH: None}})
    assert not again.active
    store.write_file(DOCUMENT, b"{")
    with pytest.raises(KafkaError, match="restore it"):
        Quotas(store).load()


def alter(client, parts, *, validate_only=False, **limits):
    kind = messages.AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=kind_, entity_name=name) for kind_, name in parts.items()],
        ops=[kind.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )
    return client.call(kind(entries=[entry], validate_only=validate_only), 1).entries[0]


def describe(client, strict=False, **wanted):
    kind = messages.DescribeClientQuotasRequest
    rows = [
        kind.ComponentData(entity_type=name.replace("_", "-"), match_type=how, match=match)
        for name, (how, match) in wanted.items()
    ]
    answer = client.call(kind(components=rows, strict=strict), 1)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return [
        ({e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values})
        for entry in answer.entries
    ]


def test_quotas_are_altered_and_described():
    client = World().connect()
    assert alter(client, {USER: "alice"}, producer_byte_rate=1000.0).error_code == 0
    assert alter(client, {USER: "alice", CLIENT_ID: None}, consumer_byte_rate=5.0).error_code == 0
    assert alter(client, {USER: "bob"}, producer_byte_rate=7.0, validate_only=True).error_code == 0
    one = ({USER: "alice"}, {PRODUCE: 1000.0})
    two = ({CLIENT_ID: None, USER: "alice"}, {FETCH: 5.0})
    assert describe(client, user=(0, "alice")) == [one, two]
    assert describe(client, strict=True, user=(0, "alice")) == [one]
    assert describe(client, client_id=(1, None)) == [two]
    assert describe(client, user=(2, None), client_id=(2, None)) == [two]
    assert describe(client, user=(0, "bob")) == []
    assert describe(client, color=(0, "red")) == ErrorCode.UNSUPPORTED_VERSION
    assert alter(client, {USER: "alice"}, producer_byte_rate=None).error_code == 0
    assert describe(client, user=(0, "alice")) == [two]


@pytest.mark.parametrize(
    ("parts", "limits"),
    [
        ({}, {PRODUCE: 1.0}),
        ({"color": "red"}, {PRODUCE: 1.0}),
        ({USER: ""}, {PRODUCE: 1.0}),
        ({USER: "a", "ip": "10.0.0.1"}, {PRODUCE: 1.0}),
        ({USER: "a"}, {"no_such": 1.0}),
        ({USER: "a"}, {CONNECTIONS: 1.0}),
        ({USER: "a"}, {PRODUCE: -1.0}),
        ({USER: "a"}, {PRODUCE: 0.5}),
        ({USER: "a"}, {PRODUCE: float("nan")}),
        ({"ip": "10.0.0.1"}, {PRODUCE: 1.0}),
        ({"ip": "no address at all"}, {CONNECTIONS: 1.0}),
    ],
)
def test_what_is_no_quota_is_refused(parts, limits):
    assert alter(World().connect(), parts, **limits).error_code == ErrorCode.INVALID_REQUEST


@pytest.fixture
def world():
    made = World()
    made.create_topic("t")
    return made


def test_a_producer_over_its_quota_is_told_and_not_read_from(world):
    client = world.connect()
    alter(client, {CLIENT_ID: "test"}, producer_byte_rate=100.0)
    answer = client.call(produce_request("t", batch(b"x" * 3000)), 11)
    assert answer.responses[0].partition_responses[0].error_code == 0, "it is stored all the same"
    assert 15_000 < answer.throttle_time_ms < 30_000
    assert client.connection.muted_until_ms == world.now_ms + answer.throttle_time_ms
    other = world.connect()
    assert other.call(messages.MetadataRequest(topics=[]), 9).throttle_time_ms == 0


def test_a_producer_without_acknowledgements_is_not_read_from_either(world):
    client = world.connect()
    alter(client, {CLIENT_ID: None}, producer_byte_rate=100.0)
    client.send(produce_request("t", batch(b"x" * 3000), acks=0), 11)
    world.turn()
    assert client.connection.muted_until_ms > world.now_ms


def test_a_consumer_over_its_quota_gets_nothing_but_the_time(world):
    client = world.connect()
    client.produce("t", batch(b"x" * 3000))
    first = client.call(fetch_request("t", 0), 12)
    assert first.responses[0].partitions[0].records and not first.throttle_time_ms
    alter(client, {CLIENT_ID: "test"}, consumer_byte_rate=100.0)
    answer = client.call(fetch_request("t", 0), 12)
    assert answer.throttle_time_ms > 15_000 and answer.responses == []
    assert client.connection.muted_until_ms > world.now_ms
    alter(client, {CLIENT_ID: "test"}, consumer_byte_rate=100_000.0)
    assert client.call(fetch_request("t", 0), 12).responses, "what was not sent was not counted"


def test_a_connection_over_its_quota_waits_and_goes_on():
    with kohort.Broker() as broker:
        broker.create_topic("t")
        client, other = WireClient(broker.bootstrap_servers), WireClient(broker.bootstrap_servers)
        alter(other, {CLIENT_ID: None}, producer_byte_rate=20_000.0)
        began = time.monotonic()
        answer = client.call(produce_request("t", batch(b"x" * 210_000)), 11)
        assert 100 < answer.throttle_time_ms < 2000
        alter(other, {CLIENT_ID: None}, producer_byte_rate=None)
        assert not other.call(messages.MetadataRequest(topics=[]), 9).throttle_time_ms, "others are not kept waiting"
        client.call(messages.MetadataRequest(topics=[]), 9)
        assert time.monotonic() - began >= answer.throttle_time_ms / 1000


def test_requests_cost_time_and_new_connections_count():
    with kohort.Broker() as broker:
        client = WireClient(broker.bootstrap_servers)
        alter(client, {CLIENT_ID: None}, request_percentage=0.0001)
        client.call(messages.MetadataRequest(topics=[]), 9)
        assert 0 < client.call(messages.MetadataRequest(topics=[]), 9).throttle_time_ms <= 1000
        alter(client, {CLIENT_ID: None}, request_percentage=None)
        alter(client, {"ip": None}, connection_creation_rate=1.0)
        many = [WireClient(broker.bootstrap_servers) for _ in range(30)]
        assert any(one.closed_by_peer() for one in many[-5:])


def set_rate(world, rate, client_id="test"):
    world.core.quotas.change({((CLIENT_ID, client_id),): {MUTATIONS: rate}})


def create_topic(world, name, partitions, version=7):
    kind = messages.CreateTopicsRequest
    row = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return world.connect().call(kind(topics=[row]), version)


def test_changes_of_topics_over_the_quota_are_refused_until_the_bucket_is_filled():
    world = World()
    set_rate(world, 2.0)
    answer = create_topic(world, "a", 30)  # 22 are in the bucket, and it may be overdrawn once
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
    answer = create_topic(world, "b", 1)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.topics[0].error_message is None, "as in Kafka"
    assert answer.throttle_time_ms == 4000 and "b" not in world.core.topics.by_name
    states = [messages.DeleteTopicsRequest.DeleteTopicState(name="a")]
    delete = messages.DeleteTopicsRequest(topics=states, timeout_ms=1000)
    assert world.connect().call(delete, 6).responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    grow = messages.CreatePartitionsRequest
    more = grow(topics=[grow.CreatePartitionsTopic(name="a", count=31, assignments=None)], timeout_ms=1000)
    assert world.connect().call(more, 3).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.advance(4000)
    assert create_topic(world, "b", 1).topics[0].error_code == 0
    assert create_topic(world, "c", 1, version=5).throttle_time_ms == 1000, "an old client is made to wait"
    assert "c" in world.core.topics.by_name


def test_who_changes_too_many_topics_is_not_read_from_for_a_while():
    world = World()
    set_rate(world, 1.0)
    create_topic(world, "a", 12)
    kind = messages.CreateTopicsRequest
    client = world.connect()
    client.call(kind(topics=[kind.CreatableTopic(name="b", num_partitions=1, replication_factor=1)]), 7)
    assert client.connection.muted_until_ms == world.now_ms + 1000


def test_changes_of_topics_by_others_do_not_count():
    world = World()
    set_rate(world, 1.0, "somebody else")
    assert create_topic(world, "a", 100).topics[0].error_code == create_topic(world, "b", 100).topics[0].error_code == 0


def test_a_topic_that_cannot_be_made_takes_nothing_from_the_bucket():
    world = World()
    set_rate(world, 1.0)
    for _ in range(20):
        assert create_topic(world, "a/b", 5).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create_topic(world, "a", 11).topics[0].error_code == create_topic(world, "b", 1).topics[0].error_code == 0
