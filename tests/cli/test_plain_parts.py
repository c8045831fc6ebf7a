"""The parts of the command line that need no broker: times, durations, properties, tables."""

import pytest

from kohort.cli import output, properties, times
from kohort.cli.failures import WrongInput
from kohort.cli.group_log import windows
from kohort.cli.group_report import compact
from kohort.client import TopicPartition


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01.009", 1_009),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_times(text, milliseconds):
    assert times.parse_time_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("PT1H30M", 5_400_000), ("P1D", 86_400_000), ("90s", 90_000), ("1.5h", 5_400_000)]
)
def test_durations(text, milliseconds):
    assert times.parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (850, "850 ms"),
        (3_200, "3.2 s"),
        (45_000, "45 s"),
        (250_000, "4 min 10 s"),
        (7_500_000, "2 h 5 min"),
        (266_400_000, "3 d 2 h"),
    ],
)
def test_durations_in_words(milliseconds, text):
    assert times.human_ms(milliseconds) == text


def test_properties_as_java_reads_them():
    text = "# comment\n! another\na=1\nb : two words\nc three\nlong=x,\\\n    y\nescaped\\=key=v\\tw\nempty=\n"
    assert properties.parse(text) == {
        "a": "1",
        "b": "two words",
        "c": "three",
        "long": "x,y",
        "escaped=key": "v\tw",
        "empty": "",
    }


def test_credentials_as_java_clients_have_them():
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\"b";'
    found = properties.client_settings({"sasl.jaas.config": jaas, "ssl.endpoint.identification.algorithm": ""})
    assert found == {"sasl.username": "me", "sasl.password": 'a"b', "ssl.check.hostname": "false"}
    strategies = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor, StickyAssignor"}
    assert properties.client_settings(strategies) == {"partition.assignment.strategy": "range,sticky"}
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}
    assert properties.client_settings(pem) == {"ssl.cafile": "/ca.pem"}


def test_pairs():
    assert properties.parse_pairs(["a=b=c", " d = e "], "--config") == {"a": "b=c", "d": "e"}
    with pytest.raises(WrongInput, match="KEY=VALUE"):
        properties.parse_pairs(["=x"], "--config")


def test_text_from_the_wire_cannot_command_a_terminal():
    assert output.printable("a\x1b[2Jb\n") == r"a\x1b[2Jb\n"
    assert output.printable(None) == "-" and output.printable("größe") == "größe"


def test_a_plain_table_is_aligned():
    assert output.plain_table(("topic", "lag"), [["orders", "5"], ["a", "1000"]]) == [
        "TOPIC    LAG",
        "orders     5",
        "a       1000",
    ]


def test_assignments_are_short():
    partitions = [TopicPartition("a", p) for p in (0, 1, 2, 5)] + [TopicPartition("b", 3)]
    assert compact(partitions) == "a:0-2,5 b:3"


def test_a_log_is_read_backwards_in_growing_windows():
    assert list(windows(0, 50_000)) == [(45_000, 50_000), (5_000, 45_000), (0, 5_000)]
    assert list(windows(7, 7)) == []
