"""The core without sockets: order of answers, turns, bad frames, who is told what."""

import struct

import pytest

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from wire import World, batch, fetch_request, produce_request


def test_answers_leave_in_the_order_of_requests_however_long_one_waits():
    world = World()
    world.create_topic("t")
    consumer, producer = world.connect(), world.connect()
    waiting = consumer.send(fetch_request("t", 0, max_wait_ms=500), 12)
    quick = consumer.send(messages.MetadataRequest(topics=[]), 9)
    world.turn()
    assert consumer.answers == []
    producer.produce("t", batch(b"a"))
    assert consumer.order == [waiting, quick]


def test_one_turn_appends_once_per_log_and_answers_everyone():
    world = World()
    topic = world.create_topic("t")
    appended = []
    append = topic.partitions[0].log.append
    topic.partitions[0].log.append = lambda data, **options: appended.append(len(data)) or append(data, **options)
    clients = [world.connect() for _ in range(3)]
    for client in clients:
        client.send(produce_request("t", batch(b"x", b"y")), 9)
    assert all(client.answers == [] for client in clients)
    world.turn()
    assert len(appended) == 1
    offsets = [client.answers[0].responses[0].partition_responses[0].base_offset for client in clients]
    assert offsets == [0, 2, 4]


def test_a_malformed_request_closes_its_connection_only(caplog):
    world = World()
    bad, good = world.connect(), world.connect()
    bad.send_raw(struct.pack(">hhih", 3, 9, 1, 0) + b"\x00\xff\xff\xff\xff\x0f")
    world.turn()
    assert bad.connection.closed
    assert "malformed request" in caplog.text
    assert good.call(messages.MetadataRequest(topics=[]), 9).brokers[0].host == "broker"


def test_a_request_that_ends_too_soon_is_malformed():
    world = World()
    client = world.connect()
    client.send_raw(struct.pack(">hhih", 0, 9, 1, 100) + b"short")
    assert client.connection.closed
    other = world.connect()
    other.send_raw(b"\x00")
    assert other.connection.closed


def test_an_unknown_api_or_version_closes_the_connection(caplog):
    world = World()
    for key, version in ((999, 0), (3, 99), (0, 2), (38, 0)):
        client = world.connect()
        client.send_raw(struct.pack(">hhih", key, version, 1, -1))
        assert client.connection.closed
        assert f"api {key} version {version} is not supported" in caplog.text


def test_api_versions_of_the_future_is_answered_with_what_there_is():
    world = World()
    client = world.connect()
    client.sent[5] = (messages.ApiVersionsResponse, 0)
    client.send_raw(struct.pack(">hhih", 18, 77, 5, -1) + b"whatever the future holds")
    world.turn()
    (answer,) = client.answers
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]


def test_api_versions_lists_the_table():
    world = World()
    answer = world.connect().call(
        messages.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4
    )
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    served = {key: (api.min_version, api.max_version) for key, api in world.core.table.apis.items()}
    assert served[0] == (3, 13) and served[1] == (4, 18)
    assert ranges == served | {0: (0, 13)}
    finalized = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features}
    assert finalized == {
        "metadata.version": (30, 30),
        "eligible.leader.replicas.version": (1, 1),
        "group.version": (1, 1),
        "transaction.version": (2, 2),
    }
    assert {row.name for row in answer.supported_features} == set(finalized) | {
        "share.version", "streams.version"
    }  # fmt: skip
    assert answer.finalized_features_epoch == 0, "-1 is for a broker that does not know: kafka-features shows nothing"


def test_features_with_a_lowest_level_of_0_are_hidden_from_older_clients():
    request = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = World().connect().call(request, 3)
    names = [row.name for row in answer.supported_features]
    assert names == ["metadata.version", "eligible.leader.replicas.version", "group.version", "transaction.version"]


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "says"),
    [
        ("metadata.version", 30, 1, None),
        ("group.version", 1, 1, None),
        ("group.version", 0, 2, "only supports versions 1-1"),
        ("metadata.version", 31, 1, "only supports versions 30-30"),
        ("metadata.version", 29, 2, "only supports versions 30-30"),
        ("no.such", 1, 1, "does not support this feature"),
        ("metadata.version", 30, 9, "upgrade type"),
    ],
)
def test_features_cannot_be_changed(feature, level, upgrade_type, says):
    kind = messages.UpdateFeaturesRequest
    update = kind.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    answer = World().connect().call(kind(feature_updates=[update]), 1)
    if says is None:
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        assert [row.feature for row in answer.results] == [feature]
    else:
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION and says in answer.error_message
        assert answer.results == []


def test_a_client_without_a_proper_software_name_is_refused():
    world = World()
    answer = world.connect().call(
        messages.ApiVersionsRequest(client_software_name="-no-", client_software_version=""), 3
    )
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_handler_that_fails_costs_one_connection(caplog, monkeypatch):
    world = World()
    client, other = world.connect(), world.connect()
    entry = world.core.table.resolve(60, 0)
    world.core.table.entries[60 << 16] = entry._replace(handler=lambda *_: 1 / 0)
    client.send(messages.DescribeClusterRequest(), 0)
    assert client.connection.closed
    assert "ZeroDivisionError" in caplog.text
    assert other.call(messages.DescribeClusterRequest(), 1).controller_id == 1


def test_a_parked_fetch_of_a_lost_connection_is_forgotten():
    world = World()
    world.create_topic("t")
    client, producer = world.connect(), world.connect()
    client.send(fetch_request("t", 0, max_wait_ms=500), 12)
    world.turn()
    assert len(world.core.purgatory) == 1
    world.core.connection_lost(client.connection)
    assert len(world.core.purgatory) == 0
    producer.produce("t", batch(b"a"))
    assert client.answers == []


def test_every_api_of_the_table_serves_its_default_request():
    """Whatever a handler answers to an empty request, it can be encoded in every version."""
    world = World()
    skip = {"Produce", "ApiVersions"}
    for api in list(world.core.table.apis.values()):
        if api.name in skip:
            continue
        for version in range(api.min_version, api.max_version + 1):
            client = world.connect()
            client.call(getattr(messages, f"{api.name}Request")(), version)
