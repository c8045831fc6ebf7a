"""`kohort produce` and `kohort consume` through the command line: what goes in comes out."""

import json

import pytest


@pytest.fixture
def empty(admin, topic):
    from kohort.client.admin_types import NewTopic

    name = f"{topic}-empty"
    admin.create_topics([NewTopic(name, 2, 1)])
    return name


def read(k, topic, *options):
    result = k("consume", topic, "--from", "earliest", "--exit", *options)
    assert result.code == 0, result.err
    return result.out


def test_lines(k, empty):
    stored = k("produce", empty, stdin="one\ntwo\nthree\n")
    assert stored == (0, "", f"kohort: 3 records stored in {empty}\n")
    assert sorted(read(k, empty).split()) == ["one", "three", "two"]
    assert k("produce", empty, "--quiet", stdin="four").err == ""
    assert "four\n" in read(k, empty)


def test_keys_headers_partitions_and_tombstones(k, empty):
    options = ["--key-separator", "=", "--header", "source=test", "--partition", "1", "--null-value", "gone"]
    assert k("produce", empty, *options, stdin="a=1\nb=gone\n").code == 0
    assert read(k, empty, "--format", r"%p/%o %k=%s (%S) %h\n") == "1/0 a=1 (1) source=test\n1/1 b= (-1) source=test\n"


def test_json_lines_there_and_back(k, empty):
    lines = [
        {"key": "k", "value": "v", "headers": [{"key": "h", "value": "1"}], "partition": 0, "timestamp": 5},
        {"key": None, "value_base64": "/wA=", "headers": {"x": None}, "partition": 0, "timestamp": 6},
        {"value": {"nested": [1, "ä"]}, "partition": 0, "timestamp": 7},
        {"key": "tombstone", "value": None, "partition": 0, "timestamp": 8},
    ]
    assert k("produce", empty, "-f", "json", stdin="\n".join(map(json.dumps, lines)) + "\n\n").code == 0
    out = read(k, empty, "-f", "json")
    first, second, third, fourth = map(json.loads, out.splitlines())
    assert first == {"topic": empty, "partition": 0, "offset": 0, "timestamp": 5, "key": "k", "value": "v"} | {
        "headers": [{"key": "h", "value": "1"}]
    }
    assert (second["value_base64"], second["headers"]) == ("/wA=", [{"key": "x", "value": None}])
    assert third["value"] == '{"nested":[1,"ä"]}' and fourth["value"] is None
    assert k("produce", empty, "-f", "json", stdin=out).code == 0
    again = [json.loads(line) for line in read(k, empty, "-f", "json", "-o", "4", "-p", "0").splitlines()]
    keep = ("key", "value", "value_base64", "headers", "timestamp")
    assert [[r.get(f) for f in keep] for r in again] == [
        [r.get(f) for f in keep] for r in (first, second, third, fourth)
    ]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_acks(k, empty, codec):
    assert k("produce", empty, "-z", codec, "--acks", "1", "--linger-ms", "0", stdin="x\n" * 50).code == 0
    assert read(k, empty) == "x\n" * 50


@pytest.mark.parametrize(
    ("place", "offsets"),
    [
        ("earliest", [0, 1, 2]),
        ("7", [7, 8, 9]),
        ("-2", [8, 9]),
        ("1970-01-01T00:00:01.004", [4, 5, 6]),
        ("1970-01-01T01:00:01.009+01:00", [9]),
        ("100", []),
        ("latest", []),
    ],
)
def test_from(k, topic, place, offsets):
    result = k("consume", topic, "-p", "0", "--from", place, "--count", "3", "--exit", "-f", "%o ")
    assert [int(offset) for offset in result.out.split()] == offsets


def test_count_and_an_idle_timeout_end_it(k, topic):
    assert k("consume", topic, "--from-beginning", "-n", "5").out.count("\n") == 5
    assert k("consume", topic, "--timeout-ms", "200").out == ""
    assert k("consume", topic, "--from", "5m", "--exit").out == ""


def test_a_group_goes_on_where_it_was(k, topic):
    as_member = ["consume", topic, "--group", f"{topic}-g", "--from", "earliest", "-f", "%p-%o\\n"]
    first = k(*as_member, "--count", "25").out.split()
    rest = k(*as_member, "--exit").out.split()
    assert len(first) == 25 and len({*first, *rest}) == 60 and not set(first) & set(rest)
    (report,) = k("groups", "describe", f"{topic}-g", "--json").json()
    assert (report["state"], report["total_lag"]) == ("Empty", 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["consume"], "missing argument 'TOPIC'"),
        (["consume", "TOPIC", "--from", "yesterday"], "--from takes earliest, latest, an offset"),
        (["consume", "TOPIC", "--from", "5", "--from-beginning"], "choose one"),
        (["consume", "TOPIC", "--format", "xml"], "--format takes value, json or a template"),
        (["consume", "TOPIC", "--format", "%q"], "%q is unknown"),
        (["consume", "TOPIC", "--partition", "9"], "has partitions 0 to 2, not 9"),
        (["consume", "TOPIC", "--group", "g", "--partition", "0"], "members share the partitions"),
        (["consume", "TOPIC", "--group", "g", "--from", "5"], "reset-offsets"),
        (["consume", "TOPIC", "--isolation-level", "x"], "read_uncommitted, read_committed"),
        (["produce"], "missing argument 'TOPIC'"),
        (["produce", "TOPIC", "--format", "avro"], "--format takes lines or json"),
        (["produce", "TOPIC", "--header", "x"], "--header takes NAME=VALUE"),
        (["produce", "TOPIC", "--acks", "2"], "must be all (or -1), 1 or 0"),
        (["produce", "TOPIC", "-z", "brotli"], "none, gzip, snappy, lz4, zstd"),
        (["produce", "TOPIC", "-f", "json", "-K", ":"], "a JSON line has its key in itself"),
    ],
)
def test_wrong_input(k, topic, arguments, says):
    assert says in k.refused(*(topic if word == "TOPIC" else word for word in arguments))


@pytest.mark.parametrize(
    ("options", "line", "says"),
    [
        (["-f", "json"], "{", "line 2 of the input: not JSON: '{'"),
        (["-f", "json"], "[1]", 'give {"key": ..., "value": ...}'),
        (["-f", "json"], '{"partition": "x"}', "partition must be a whole number"),
        (["-f", "json"], '{"headers": 3}', "headers must be an object or a list"),
        (["-f", "json"], '{"value_base64": "%"}', "value_base64 is not base64"),
        (["-K", ":"], "no separator", "line 2 of the input: no key separator ':'"),
    ],
)
def test_wrong_lines(k, topic, options, line, says):
    good = '{"value": "1"}' if "json" in options else "a:b"
    assert says in k.refused("produce", topic, *options, stdin=f"{good}\n{line}\n")


def test_what_is_not_there(k, topic):
    assert "no such topic: nowhere" in k.refused("consume", "nowhere", code=1)
    assert f"{topic} has partitions 0 to 2, not 9" in k.refused("produce", topic, "-p", "9", stdin="x\n", code=1)


def test_a_topic_that_nobody_creates():
    import kohort
    from cli.conftest import CommandLine

    with kohort.Broker(config={"auto.create.topics.enable": "false"}) as strict:
        said = CommandLine(strict.bootstrap_servers).refused(
            "produce", "t", "-X", "max.block.ms=300", stdin="x\n", code=1
        )
    assert "no topic t within 0.3 s: create it" in said
