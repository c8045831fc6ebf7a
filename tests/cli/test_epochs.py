"""`kohort groups describe|watch|explain` on groups of the consumer protocol (KIP-848)."""

import io

import pytest

import kohort
from cli.conftest import CommandLine, Member, until

MODERN = {"group_protocol": "consumer", "session_timeout_ms": None, "heartbeat_interval_ms": None}
CONFIG = {
    "num.partitions": "2",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module", params=["events", "epochs"])
def running(request):
    """One that keeps events, and one that keeps none, as any other Kafka."""
    events = {"kohort.group.events.topic.enable": "true"} if request.param == "events" else {}
    with kohort.Broker(config={**CONFIG, **events}) as broker:
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"x")
        yield request.param, broker.bootstrap_servers


@pytest.fixture(scope="module")
def shared(running):
    """`one` has everything and does not poll, so it gives nothing up; `two` waits."""
    _, servers = running
    one = Member(servers, "shared", "orders", client_id="one", **MODERN)
    until(lambda: len(one.assigned) == 2, "the first has both")
    one.pause()
    two = Member(servers, "shared", "orders", client_id="two", **MODERN)
    k = CommandLine(servers)
    report = until(lambda: (r := k("groups", "describe", "shared", "--json").json()[0])["waits"] and r, "a wait")
    yield k, one, two, report
    for member in (one, two):
        member.close()


def test_describe_tells_who_waits_for_whom(shared):
    k, _, _, report = shared
    (wait,) = report["waits"]
    by_client = {member["client_id"]: member for member in report["members"]}
    assert (report["type"], report["protocol"], report["state"]) == ("consumer", "uniform", "Reconciling")
    assert report["assignment_epoch"] == report["generation"]
    assert wait["member_id"] == by_client["two"]["member_id"] and wait["held_by"] == by_client["one"]["member_id"]
    assert wait["reason"] == "not_revoked"
    assert by_client["one"]["assignment"] == {"orders": [0, 1]} and len(by_client["one"]["target"]["orders"]) == 1
    assert by_client["two"]["assignment"] == {} and by_client["two"]["protocol"] == "consumer"
    assert by_client["one"]["epoch"] < report["generation"]
    text = k("groups", "describe", "shared").out
    assert f"epoch        {report['generation']}, and so its target" in text
    assert "TARGET" in text and "EPOCH" in text
    (row,) = [line for line in text.splitlines() if "has not said yet that it gave it up" in line]
    assert row.split()[:3] == [f"orders-{wait['partition']}", "two", "one"]


def test_watch_tells_it_too(shared):
    k, _, _, report = shared
    line = k("groups", "watch", "shared", "--count", "1").out
    assert f"epoch={report['generation']}" in line and "waited-for=1" in line


def test_the_screen_of_watch(shared):
    from rich.console import Console

    from kohort.cli.describe import read
    from kohort.cli.target import Target
    from kohort.cli.watch import Trend, screen

    k = shared[0]
    with kohort.Admin(bootstrap_servers=k.servers) as admin:
        report = read(Target(k.servers, None, []), admin, "shared", with_generation=False)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(screen(report, Trend(), 1.0))
    text = console.export_text()
    assert f"epoch {report.generation}" in text and "->" in text
    assert "two (127.0.0.1) waits for orders-" in text


def test_explain_tells_it_and_says_what_to_do(running, shared):
    source, _ = running
    k, _, _, report = shared
    told = k("groups", "explain", "shared", "--json").json()
    assert (told["source"], told["assignment_epoch"]) == (source, report["generation"])
    kinds = [[(c["kind"], c["member"]["client_id"]) for c in r["causes"]] for r in told["rebalances"]]
    assert kinds == [[("joined", "one")], [("joined", "two")]]
    assert told["rebalances"][-1]["completed_ms"] is None
    (finding,) = [f for f in told["findings"] if f["kind"] == "handing over"]
    assert "two (127.0.0.1) waits for orders-" in finding["text"]
    text = " ".join(k("groups", "explain", "shared").out.split())
    assert f"is Reconciling in epoch {report['generation']} with 2 members (uniform)" in text
    assert f"The move to epoch {report['generation']} is still under way" in text
    assert "max.poll.interval.ms" in text
