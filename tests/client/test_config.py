"""Names, types, defaults and what is said about mistakes."""

from __future__ import annotations

import pytest

from kohort.client.config import SETTINGS, Config, known_name, parse_duration_ms
from kohort.client.errors import ConfigError


def config(**settings: object) -> Config:
    return Config({"bootstrap.servers": "a:1", **settings})


def test_dotted_and_underscored_names_are_the_same() -> None:
    assert config(session_timeout_ms=7_000).session_timeout_ms == 7_000
    assert config(**{"session.timeout.ms": "7000"})["session.timeout.ms"] == 7_000
    with pytest.raises(ConfigError, match="twice"):
        Config({"bootstrap.servers": "a:1", "client.id": "x", "client_id": "y"})


def test_defaults_are_kafkas() -> None:
    defaults = config()
    expected = {
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 3_000,
        "max.poll.interval.ms": 300_000,
        "max.poll.records": 500,
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5_000,
        "partition.assignment.strategy": ["range", "cooperative-sticky"],
        "isolation.level": "read_uncommitted",
        "fetch.max.wait.ms": 500,
        "request.timeout.ms": 30_000,
    }
    assert {name: defaults[name] for name in expected} == expected


def test_every_setting_is_documented() -> None:
    assert all(setting.doc.endswith(".") and setting.kind for setting in SETTINGS.values())


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("sesion.timeout", "session.timeout.ms"), ("group_idd", "group.id"), ("auto_offset_rest", "auto.offset.reset")],
)
def test_an_unknown_name_suggests_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{nearest}'"):
        known_name(given)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"session_timeout_ms": "soon"}, "must be a whole number"),
        ({"session_timeout_ms": -1}, "must be between"),
        ({"enable_auto_commit": "perhaps"}, "must be true or false"),
        ({"auto_offset_reset": "middle"}, "earliest, latest, none or by_duration"),
        ({"auto_offset_reset": "by_duration:soon"}, "not an ISO 8601 duration"),
        ({"isolation_level": "dirty"}, "must be one of"),
        ({"bootstrap_servers": "nowhere"}, "not host:port"),
        ({"heartbeat_interval_ms": 50_000}, "must be lower than session.timeout.ms"),
        ({"group_id": ""}, "must not be empty"),
        ({"max_poll_records": 0}, "at least 1"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl.username"),
    ],
)
def test_wrong_values_say_what_is_right(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Config({"bootstrap_servers": "a:1", **settings})


def test_bootstrap_servers() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        Config({})
    assert Config({"bootstrap_servers": "a:1, [::1]:2"}).bootstrap_servers == [("a", 1), ("::1", 2)]
    assert Config({"bootstrap_servers": ["a:1", "b:2"]}).bootstrap_servers == [("a", 1), ("b", 2)]


def test_durations() -> None:
    assert [parse_duration_ms(text) for text in ("PT1H", "P1D", "PT1M30S", "P1DT2H", "PT0.5S")] == [
        3_600_000,
        86_400_000,
        90_000,
        93_600_000,
        500,
    ]


# -- the group's protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("partition_assignment_strategy", "range"), ("session_timeout_ms", 10_000), ("heartbeat_interval_ms", 100)],
)
def test_what_the_broker_decides_is_refused_with_the_consumer_protocol(name: str, value: object) -> None:
    with pytest.raises(
        ConfigError, match=f"{name.replace('_', '.')} cannot be given with group.protocol=consumer.*leave"
    ):
        Config({"bootstrap.servers": "h:1", "group_id": "g", "group_protocol": "consumer", name: value})


def test_an_assignor_of_the_broker_is_refused_with_the_classic_protocol() -> None:
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor cannot be given with group\.protocol=classic"):
        Config({"bootstrap.servers": "h:1", "group_id": "g", "group_remote_assignor": "uniform"})
    config = Config({"bootstrap.servers": "h:1", "group.protocol": "CONSUMER", "group.remote.assignor": "range"})
    assert (config.group_protocol, config.group_remote_assignor) == ("consumer", "range")


def test_a_protocol_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="must be one of classic, consumer"):
        Config({"bootstrap.servers": "h:1", "group_protocol": "streams"})
