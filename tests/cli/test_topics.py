"""`kohort topics` through the command line."""

import pytest


def test_create_list_describe_alter_delete(k):
    made = k("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=3600000")
    assert made == (0, "created topic life\n", "")
    assert ["life", "2", "1"] in k("topics", "list").rows()
    (report,) = k("topics", "describe", "life", "--json").json()
    assert (
        report["configs"] == {"min.insync.replicas": "1", "retention.ms": "3600000"} and len(report["topic_id"]) == 22
    )
    assert [p["end_offset"] for p in report["partitions"]] == [0, 0]
    altered = k(
        "topics", "alter", "life", "--partitions", "3", "--config", "retention.ms=5", "--config", "segment.ms=9"
    )
    assert altered.out == "life: retention.ms = 5\nlife: segment.ms = 9\nlife: 2 -> 3 partitions\n"
    assert "back to its default" in k("topics", "alter", "life", "--delete-config", "retention.ms").out
    (report,) = k("topics", "describe", "life", "--json").json()
    assert (report["configs"], len(report["partitions"])) == ({"min.insync.replicas": "1", "segment.ms": "9"}, 3)
    assert k("topics", "delete", "life") == (0, "deleted topic life\n", "")
    assert "life" not in k("topics", "list").out


def test_describe_shows_offsets(k, topic):
    table = k("topics", "describe", topic).out
    assert table.splitlines()[0].startswith(f"topic {topic}: 3 partitions, id ")
    rows = [line.split() for line in table.splitlines()[-3:]]
    assert [(row[0], row[4], row[5], row[6]) for row in rows] == [
        ("0", "0", "10", "10"),
        ("1", "0", "20", "20"),
        ("2", "0", "30", "30"),
    ]
    assert max(map(len, table.splitlines())) <= 80


def test_internal_topics_are_shown_when_asked_for(k):
    k("groups", "describe", "nobody")
    assert "__consumer_offsets" not in k("topics", "list").out
    shown = k("topics", "list", "--internal", "--json").json()
    assert {"topic": "__consumer_offsets", "partitions": 50, "replication_factor": 1, "internal": True} in shown


def test_what_exists_and_what_does_not(k):
    k("topics", "create", "twice")
    assert "already exists" in k.refused("topics", "create", "twice", code=1)
    assert k("topics", "create", "twice", "--if-not-exists").out == "topic twice exists\n"
    assert k("topics", "delete", "twice", "never-was", "--if-exists").out == "deleted topic twice\n"
    assert k.refused("topics", "delete", "never-was", code=1).endswith("kohort topics list shows those that exist")
    assert "no such topic: never-was" in k.refused("topics", "describe", "never-was", code=1)
    assert "no such topic: never-was" in k.refused("topics", "alter", "never-was", "--partitions", "4", code=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create"], "missing argument 'TOPIC'"),
        (["create", "t", "--partitions", "0"], "--partitions takes a number from 1, not 0"),
        (["create", "t", "--partitions", "many"], "'--partitions'"),
        (["create", "t", "--config", "nothing"], "--config takes KEY=VALUE, not 'nothing'"),
        (["alter", "t"], "give --partitions, --config or --delete-config"),
        (["lst"], "no such command 'lst'"),
    ],
)
def test_wrong_input(k, arguments, says):
    assert says in k.refused("topics", *arguments)


def test_refusals_of_the_broker_are_a_sentence(k, topic):
    assert "can only grow" in k.refused("topics", "alter", topic, "--partitions", "2", code=1)
    assert "retention.ms" in k.refused("topics", "create", "bad", "--config", "retention.ms=soon", code=1)
    assert k.refused("topics", "create", "no/slash", code=1)
