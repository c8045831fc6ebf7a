"""The control port of `kohort serve --brokers 3`: what a test in any language can do with a cluster."""

import time

import pytest

import kohort
from broker.test_control import Remote
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from serving import start
from wire import WireClient

LIMIT_S = 60


@pytest.fixture(scope="module")
def remote():
    made = Remote("--brokers", "3", "--config", "group.initial.rebalance.delay.ms=0")
    assert made("POST", "/topics", {"name": "orders", "partitions": 3})[0] == 201
    yield made
    assert made.serving.stop() == 0


def ok(answer):
    status, found = answer
    assert status in (200, 201), found
    return found


def running(remote):
    return [row["node_id"] for row in ok(remote("GET", "/cluster"))["brokers"] if row["running"]]


def coordinator(remote, group="billing"):
    return ok(remote("GET", f"/groups/{group}/coordinator"))["node_id"]


def leader(remote, partition=0):
    return ok(remote("GET", f"/topics/orders/leader?partition={partition}"))["node_id"]


def test_a_coordinator_is_killed_and_the_group_keeps_its_commits(remote):
    servers = ok(remote("GET", "/cluster"))["bootstrap_servers"]
    assert servers == remote.serving.address and servers.count(",") == 2
    with kohort.Consumer(bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.assign([kohort.client.TopicPartition("orders", 0)])
        consumer.commit({kohort.client.TopicPartition("orders", 0): 17})
        was = coordinator(remote)
        ok(remote("POST", f"/brokers/{was}/kill"))
        assert was not in running(remote)
        assert coordinator(remote) != was
        offsets = ok(remote("GET", "/groups/billing/committed"))["offsets"]
        assert offsets == [{"topic": "orders", "partition": 0, "offset": 17}]
    ok(remote("POST", f"/brokers/{was}/start"))
    assert running(remote) == [1, 2, 3]


def test_a_clean_stop_hands_over_before_it_is_answered(remote):
    was = leader(remote)
    ok(remote("POST", f"/brokers/{was}/stop"))
    assert leader(remote) != was
    ok(remote("POST", f"/brokers/{was}/start"))


def test_a_paused_broker_is_a_zombie_until_it_is_resumed(remote):
    told = ok(remote("POST", "/brokers/3/pause"))
    assert [row["paused"] for row in told["brokers"]] == [False, False, True]
    status, refused = remote("GET", "/brokers/3/faults")
    assert status == 409 and refused["error"] == "broker 3 stands still: resume it first"
    ok(remote("POST", "/brokers/3/resume"))
    assert ok(remote("GET", "/brokers/3/faults")) == {"faults": []}


def test_a_broker_is_cut_off_and_healed(remote):
    was = leader(remote, 1)
    ok(remote("POST", f"/brokers/{was}/partition", {"store": True}))
    deadline = time.monotonic() + LIMIT_S
    while leader(remote, 1) == was:  # until the others miss its signs of life
        assert time.monotonic() < deadline
    ok(remote("POST", f"/brokers/{was}/heal"))


def test_a_partition_is_moved_and_a_broker_added(remote):
    to = leader(remote) % 3 + 1
    asked = {"topic": "orders", "partition": 0, "to": to}
    assert ok(remote("POST", "/cluster/move", asked)) == asked
    assert leader(remote) == to
    made = ok(remote("POST", "/brokers"))
    assert made["node_id"] == 4 and made["bootstrap_servers"].count(",") == 3
    ok(remote("POST", "/cluster/move", asked | {"to": 4}))
    assert leader(remote) == 4
    ok(remote("POST", "/brokers/4/stop"))


def test_one_broker_has_what_a_broker_alone_has(remote):
    node = ok(remote("GET", "/cluster"))["brokers"][0]
    rule = {"action": "fail", "api": "Heartbeat", "code": "NOT_COORDINATOR", "times": 1}
    assert ok(remote("POST", "/brokers/1/faults", rule))["hits"] == 0
    request = messages.HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    assert WireClient(node["address"]).call(request, 3).error_code == ErrorCode.NOT_COORDINATOR
    assert ok(remote("GET", "/brokers/1/faults"))["faults"][0]["hits"] == 1
    assert [one["api"] for one in ok(remote("GET", "/brokers/1/requests?api=Heartbeat"))["requests"]] == ["Heartbeat"]
    ok(remote("DELETE", "/brokers/1/faults"))
    before = ok(remote("GET", "/clock"))["now_ms"]
    assert ok(remote("POST", "/clock/advance", {"seconds": 1}))["now_ms"] >= before + 1000
    assert ok(remote("GET", "/topics/orders/records")) == {"topic": "orders", "records": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "hint"),
    [
        ("POST", "/brokers/9/kill", None, 404, "there is no broker 9: 1, 2, 3"),
        ("POST", "/brokers/one/kill", None, 400, "one is no number of a broker"),
        ("POST", "/brokers/1/explode", None, 404, "there is no POST /explode"),
        ("POST", "/brokers/1/partition", {"disk": True}, 400, "a partition has no disk: it has store, clients"),
        ("POST", "/brokers/1/broker/restart", None, 400, "each is stopped and started"),
        ("POST", "/cluster/move", {"topic": "orders"}, 400, "partition is missing: a move has topic, partition, to"),
        ("POST", "/cluster/move", {"topic": "orders", "partition": 9, "to": 1}, 404, "orders has 3 partitions, no 9"),
        ("POST", "/cluster/move", {"topic": "orders", "partition": 0, "to": 8}, 404, "there is no broker 8"),
        ("GET", "/topics/none/leader", None, 404, "there is no topic none"),
        ("GET", "/topics/orders/leader?partition=x", None, 400, "partition cannot be 'x'"),
        ("POST", "/faults", {"action": "drop", "api": "Fetch"}, 404, "name the broker: /brokers/1/faults"),
        ("GET", "/nothing", None, 404, "there is no GET /nothing"),
    ],
)
def test_what_cannot_be_done_says_why(remote, method, path, body, status, hint):
    found, answer = remote(method, path, body)
    assert (found, hint in answer["error"]) == (status, True), answer


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--brokers", "0"], "--brokers takes a number from 1 to 9, not 0"),
        (["--brokers", "3", "--data-dir", "x"], "--data-dir is of one broker: leave it out with --brokers"),
        (["--brokers", "3", "--cluster", "file:///x"], "--cluster is of one broker"),
        (["--brokers", "3", "--port", "65535"], "--port 65535 leaves too few ports for 3 brokers"),
    ],
)
def test_a_wrong_command_line_gets_a_sentence(arguments, reason):
    process = start(*arguments)
    _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2 and reason in told, told
