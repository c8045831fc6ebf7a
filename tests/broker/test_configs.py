"""Broker and topic configs: parsing, describing, changing, and that a change has its effect and stays."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import kohort
from kohort.broker.config import BrokerConfig, ConfigError, ConfigSource
from kohort.broker.config_keys import BROKER_KEYS, GROUP_KEYS
from kohort.broker.group_config import coordinator_config
from kohort.broker.reference import markdown
from kohort.broker.topics import DOCUMENT
from kohort.coordinator.context import CoordinatorConfig
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.storage.config import CONFIG_KEYS
from wire import World, batch

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def test_every_config_is_documented_and_its_default_is_valid():
    for key in (*BROKER_KEYS.values(), *CONFIG_KEYS.values(), *GROUP_KEYS.values()):
        assert key.doc.endswith(".") and "\n" not in key.doc
        if key.default is not None:
            assert key.parse(key.format(key.default)) == key.default
    synonyms = {name for key in (*CONFIG_KEYS.values(), *GROUP_KEYS.values()) for name in key.synonyms}
    assert synonyms <= set(BROKER_KEYS)
    assert {name: BROKER_KEYS[name].default for name in ("num.partitions", "group.max.session.timeout.ms")} == {
        "num.partitions": 1,
        "group.max.session.timeout.ms": 1800000,
    }


SOURCE = Path(kohort.__file__).parent
TABLES = {SOURCE / "broker" / "config_keys.py", SOURCE / "storage" / "config.py"}


def test_every_config_that_is_said_to_have_an_effect_is_read():
    """A broker's is read by its name, or by a topic's config that it is the default of; that by its attribute."""
    files = (path for room in ("broker", "cluster", "coordinator", "storage") for path in (SOURCE / room).rglob("*.py"))
    text = "\n".join(path.read_text() for path in files if path not in TABLES)
    own = (SOURCE / "storage" / "config.py").read_text().split("class LogConfig")[1]
    topics = {
        name
        for name, key in CONFIG_KEYS.items()
        if re.search(rf"\.{key.attribute}\b", text) or re.search(rf"self\.{key.attribute}\b", own)
    }
    defaults = {synonym for name in topics for synonym in CONFIG_KEYS[name].synonyms}
    brokers = {name for name in BROKER_KEYS if f'"{name}"' in text} | defaults
    brokers |= {name for name in BROKER_KEYS if name.startswith("group.consumer.")}  # of GROUP_KEYS, and their limits
    said_to = {name for name, key in (BROKER_KEYS | CONFIG_KEYS).items() if not key.doc.startswith("No effect")}
    assert said_to <= topics | brokers
    assert topics <= said_to


def test_the_coordinator_has_the_same_defaults():
    made, default = coordinator_config(BrokerConfig(), World().core.topics), CoordinatorConfig()
    assert made.of_groups.get("g") is default.of_groups.get("g") is None
    assert list(made.assignors) == list(default.assignors)
    assert replace(made, of_groups=default.of_groups, assignors=default.assignors) == default


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("num.partition", "1", "Did you mean num.partitions?"),
        ("num.partitions", "x", "Not a number of type INT"),
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", 2**31, "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "either true or false"),
        ("log.cleanup.policy", "shred", "one of: compact, delete"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "no more than 1"),
        ("compression.type", "brotli", "one of"),
    ],
)
def test_bad_values_are_named(name, value, says):
    with pytest.raises(ConfigError, match=name) as raised:
        BrokerConfig({name: value})
    assert says in str(raised.value)


def test_contradictions_are_named():
    with pytest.raises(ConfigError, match="is above group"):
        BrokerConfig({"group.min.session.timeout.ms": 10, "group.max.session.timeout.ms": 5})


def test_values_are_typed():
    config = BrokerConfig({"num.partitions": "3", "log.cleanup.policy": "compact, delete", "node.id": 5})
    assert (config["num.partitions"], config["log.cleanup.policy"]) == (3, ("compact", "delete"))
    assert config.source("num.partitions") == ConfigSource.STATIC_BROKER_CONFIG
    assert config.source("message.max.bytes") == ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604800000),
        ({"log.retention.hours": 1}, 3600000),
        ({"log.retention.hours": 1, "log.retention.minutes": 1}, 60000),
        ({"log.retention.minutes": 1, "log.retention.ms": 5}, 5),
        ({"log.retention.hours": -1}, -1),
    ],
)
def test_topic_defaults_follow_the_most_specific_synonym(given, retention_ms):
    assert World(given).create_topic("t").config.retention_ms == retention_ms


def describe(client, kind, name, keys=None, **options):
    request = messages.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return client.call(request(resources=[resource], **options), 4).results[0]


def alter(client, kind, name, *changes, validate_only=False):
    request = messages.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return client.call(request(resources=[resource], validate_only=validate_only), 1).responses[0]


def test_describing_a_topic_shows_values_sources_and_synonyms():
    world = World({"log.retention.hours": 2, "message.max.bytes": 5000})
    world.create_topic("t", max_message_bytes="4000")
    client = world.connect()
    result = describe(client, TOPIC, "t", include_synonyms=True, include_documentation=True)
    rows = {row.name: row for row in result.configs}
    assert set(rows) == set(CONFIG_KEYS)
    assert (rows["max.message.bytes"].value, rows["max.message.bytes"].config_source) == ("4000", 1)
    assert [(s.name, s.value, s.source) for s in rows["max.message.bytes"].synonyms] == [
        ("max.message.bytes", "4000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("message.max.bytes", "5000", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("7200000", ConfigSource.DEFAULT_CONFIG)
    assert rows["retention.ms"].synonyms == []  # log.retention.ms is not set, and as in Kafka only its own name shows
    assert (rows["segment.bytes"].config_source, rows["segment.bytes"].documentation) == (
        5,
        CONFIG_KEYS["segment.bytes"].doc,
    )
    only = describe(client, TOPIC, "t", ["retention.ms", "nonsense"])
    assert [row.name for row in only.configs] == ["retention.ms"]
    assert describe(client, TOPIC, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(client, TOPIC, "a/b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_describing_the_broker():
    client = World({"message.max.bytes": 7}).connect()
    rows = {row.name: row for row in describe(client, BROKER, "1").configs}
    assert (rows["message.max.bytes"].value, rows["message.max.bytes"].read_only) == ("7", False)
    assert rows["node.id"].read_only
    assert [row.name for row in describe(client, BROKER, "").configs] == ["min.insync.replicas"]
    assert describe(client, BROKER, "9").error_code == ErrorCode.INVALID_REQUEST
    assert describe(client, 99, "x").error_code == ErrorCode.INVALID_REQUEST


def test_a_changed_topic_config_has_its_effect_and_stays():
    world = World()
    world.create_topic("t")
    client = world.connect()
    assert alter(client, TOPIC, "t", ("max.message.bytes", SET, "200")).error_code == 0
    assert client.produce("t", batch(b"a" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert World(store=world.store).create_topic("other").config.max_message_bytes == 1048588
    assert World(store=world.store).core.topics.by_name["t"].config.max_message_bytes == 200
    assert alter(client, TOPIC, "t", ("max.message.bytes", DELETE, None)).error_code == 0
    assert client.produce("t", batch(b"a" * 300)).error_code == 0


def test_lists_are_appended_to_and_subtracted_from():
    world = World()
    topic = world.create_topic("t")
    client = world.connect()
    alter(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert topic.config.cleanup_policy == ("delete", "compact")
    alter(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert topic.config.cleanup_policy == ("compact",)
    assert alter(client, TOPIC, "t", ("retention.ms", APPEND, "1")).error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "t", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "nope", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", ("node.id", SET, "4"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("no.such", SET, "4"), ErrorCode.INVALID_CONFIG),
        (BROKER, "1", ("num.partitions", SET, "x"), ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ("message.max.bytes", SET, "4"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("min.insync.replicas", SET, "2"), ErrorCode.INVALID_CONFIG),
        (BROKER, "", ("min.insync.replicas", DELETE, None), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "44999"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "15001"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.heartbeat.interval.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (16, "x", ("a", SET, "4"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_changes(kind, name, change, code):
    world = World()
    world.create_topic("t")
    row = alter(world.connect(), kind, name, change)
    assert ErrorCode(row.error_code) == code and row.error_message
    assert world.core.topics.by_name["t"].overrides == {} and world.core.config.dynamic == {}
    assert world.core.config.cluster == {"min.insync.replicas": 1} and world.core.topics.group_overrides == {}


def test_validate_only_changes_nothing():
    world = World()
    world.create_topic("t")
    client = world.connect()
    assert alter(client, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True).error_code == 0
    assert world.core.topics.by_name["t"].overrides == {}


def test_dynamic_broker_configs_reach_topics_and_stay():
    world = World()
    world.create_topic("t")
    world.create_topic("own", max_message_bytes="9000")
    client = world.connect()
    assert alter(client, BROKER, "1", ("message.max.bytes", SET, "200")).error_code == 0
    assert client.produce("t", batch(b"a" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce("own", batch(b"a" * 300)).error_code == 0
    again = World(store=world.store)
    assert again.core.config["message.max.bytes"] == 200
    assert alter(client, BROKER, "", ("message.max.bytes", SET, "400")).error_code == 0
    again = World({"message.max.bytes": 600}, store=world.store)
    (row,) = describe(again.connect(), BROKER, "1", ["message.max.bytes"], include_synonyms=True).configs
    assert [(s.value, s.source) for s in row.synonyms] == [("200", 2), ("400", 3), ("600", 4), ("1048588", 5)]
    rows = {row.name: row.value for row in describe(again.connect(), BROKER, "").configs}
    assert rows == {"message.max.bytes": "400", "min.insync.replicas": "1"}
    assert alter(client, BROKER, "1", ("message.max.bytes", DELETE, None)).error_code == 0
    assert client.produce("t", batch(b"a" * 300)).error_code == 0


def test_a_state_document_of_before_has_its_broker_configs_still():
    world = World()
    document = json.loads(world.store.read_file(DOCUMENT))
    del document["cluster_configs"], document["group_configs"]
    document["broker_configs"] = {"num.partitions": "4", "min.insync.replicas": "2"}
    world.store.write_file(DOCUMENT, json.dumps(document).encode())
    again = World(store=world.store)
    config = again.core.config
    assert (config.dynamic, config.cluster) == ({"num.partitions": 4}, {"min.insync.replicas": 2})
    # What could be set then and cannot be changed now is in nobody's way, and can be taken back.
    assert alter(again.connect(), BROKER, "1", ("message.max.bytes", SET, "200")).error_code == 0
    assert alter(again.connect(), BROKER, "1", ("num.partitions", DELETE, None)).error_code == 0
    assert config.dynamic == {"message.max.bytes": 200}


def test_min_insync_replicas_is_set_for_the_cluster_from_the_first_start_on():
    world = World({"min.insync.replicas": 2})
    world.create_topic("t")
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (BROKER, "")):
        (row,) = describe(world.connect(), kind, name, ["min.insync.replicas"]).configs
        assert (row.value, row.config_source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    again = World({"min.insync.replicas": 3}, store=world.store)
    assert again.core.config["min.insync.replicas"] == 2


def listed(client, *types, version=1):
    request = messages.ListConfigResourcesRequest
    answer = client.call(request(resource_types=list(types)) if version else request(), version)
    return answer.error_code, [(row.resource_name, row.resource_type) for row in answer.config_resources]


def test_groups_have_configs_of_their_own_that_stay():
    world = World({"group.consumer.heartbeat.interval.ms": 6000})
    world.create_topic("t")
    client = world.connect()
    assert alter(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")).error_message is None
    result = describe(World(store=world.store).connect(), GROUP, "g", include_synonyms=True)
    rows = {row.name: row for row in result.configs}
    assert [(s.name, s.value, s.source) for s in rows["consumer.session.timeout.ms"].synonyms] == [
        ("consumer.session.timeout.ms", "50000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    (row,) = describe(client, GROUP, "other", ["consumer.heartbeat.interval.ms"]).configs
    assert (row.value, row.config_source, row.read_only) == ("6000", ConfigSource.STATIC_BROKER_CONFIG, False)
    assert describe(client, GROUP, "").error_code == ErrorCode.INVALID_REQUEST
    assert listed(client) == (0, [("g", GROUP), ("1", BROKER), ("t", TOPIC)])
    assert listed(client, GROUP) == (0, [("g", GROUP)])
    assert listed(client, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert listed(client, version=0) == (0, [])
    assert alter(client, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)).error_code == 0
    assert listed(client, GROUP) == (0, [])


def test_alter_configs_replaces_everything():
    world = World()
    topic = world.create_topic("t", retention_ms="5", segment_ms="7")
    request = messages.AlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", value="9")
    resource = request.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    assert world.connect().call(request(resources=[resource]), 2).responses[0].error_code == 0
    assert topic.overrides == {"retention.ms": "9"}


def test_the_reference_names_every_config():
    text = markdown()
    assert all(f"| `{name}` |" in text for name in (*BROKER_KEYS, *CONFIG_KEYS, *GROUP_KEYS))
