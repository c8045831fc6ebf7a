"""`kohort groups explain`: real groups, real rebalances, each source in turn."""

import pytest

import kohort
from cli.conftest import CommandLine, Member, until


def test_from_the_events_of_the_broker(k, topic, join):
    group = f"{topic}-told"
    one = join(group, topic, client_id="one")
    until(lambda: one.assigned, "one has partitions")
    two = join(group, topic, client_id="two")
    until(lambda: one.assigned and two.assigned, "both have partitions")
    two.close()
    until(lambda: len(one.assigned) == 3, "one has everything again")
    told = k("groups", "explain", group, "--json").json()
    assert (told["source"], told["state"], told["members"]) == ("events", "Stable", 1)
    causes = [[(c["kind"], c["member"]["client_id"]) for c in r["causes"]] for r in told["rebalances"]]
    assert causes == [[("joined", "one")], [("joined", "two")], [("left", "two")]]
    assert all(r["standstill_ms"] is not None for r in told["rebalances"])
    text = k("groups", "explain", group).out
    assert "What follows comes from the broker's own group events" in text
    assert "two (127.0.0.1) left: the consumer is being closed." in " ".join(text.split())
    assert "Nothing harmful was found (3 rebalances in" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_crash_is_explained_with_its_timeout(k, topic, join):
    group = f"{topic}-crashed"
    one, two = join(group, topic, client_id="one"), join(group, topic, client_id="two", session_timeout_ms=1000)
    until(lambda: one.assigned and two.assigned, "both have partitions")
    two.crash()
    until(lambda: len(one.assigned) == 3, "one takes over")
    told = k("groups", "explain", group, "--json").json()
    (cause,) = told["rebalances"][-1]["causes"]
    assert (cause["kind"], cause["member"]["client_id"], cause["after_ms"]) == ("timed_out", "two", 1000)
    (finding,) = told["findings"]
    assert finding["kind"] == "session timeout" and "the group noticed after 1 s" in finding["text"]
    text = " ".join(k("groups", "explain", group, "--last", "1").out.split())
    assert "two (127.0.0.1) timed out: no heartbeat for 1 s." in text and "-> Close consumers on shutdown" in text


def test_an_application_that_does_not_poll(k, topic, join):
    group = f"{topic}-slow"
    slow = join(group, topic, client_id="slow", max_poll_interval_ms=1000)
    until(lambda: slow.assigned, "it has partitions")
    slow.pause()
    until(lambda: k("groups", "describe", group, "--json").json()[0]["members"] == [], "it is out")
    told = k("groups", "explain", group, "--json").json()
    assert "poll interval too short" in [finding["kind"] for finding in told["findings"]]


@pytest.fixture(scope="module")
def plain():
    """A broker that keeps no events, as any other Kafka."""
    with kohort.Broker(config={"group.initial.rebalance.delay.ms": "0", "num.partitions": "2"}) as running:
        with kohort.Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            producer.send("orders", b"x")
        yield running


def test_from_the_generations_of_any_kafka(plain):
    k = CommandLine(plain.bootstrap_servers)
    one = Member(k.servers, "g", "orders", client_id="one")
    until(lambda: one.assigned, "one has partitions")
    two = Member(k.servers, "g", "orders", client_id="two")
    until(lambda: one.assigned and two.assigned, "both have partitions")
    two.close()
    until(lambda: len(one.assigned) == 2, "one has everything again")
    told = k("groups", "explain", "g", "--json").json()
    assert told["source"] == "generations" and told["generation"] == one.consumer.group_metadata().generation_id
    kinds = [[(c["kind"], c["member"] and c["member"]["client_id"]) for c in r["causes"]] for r in told["rebalances"]]
    assert kinds[-2:] == [[("joined", "two")], [("gone", "two")]]
    text = " ".join(k("groups", "explain", "g").out.split())
    assert "comes from the generations stored in __consumer_offsets. They do not say how somebody left" in text
    one.close()


def test_by_looking_where_no_past_can_be_read(plain):
    k = CommandLine(plain.bootstrap_servers)
    assert k("groups", "reset-offsets", "simple", "--topic", "orders", "--to-earliest", "--execute").code == 0
    told = k("groups", "explain", "simple", "--sample", "0.3")
    assert told.code == 0
    text = " ".join(told.out.split())
    assert "comes from looks at the group with DescribeGroups. Its past could not be read." in text
    assert "Nobody reads: the group has no members and 1 records of lag" in text


def test_a_group_that_does_not_exist(k):
    assert "group nobody does not exist" in k.refused("groups", "explain", "nobody", code=1)
