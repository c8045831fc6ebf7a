"""Metrics through the real command line and from the counters themselves; logs of groups with their reasons."""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

import pytest

import kohort
from kohort.broker import event_log, meter
from kohort.broker.meter import GroupCounters, Meter
from kohort.broker.metrics import (
    EXPORTED,
    MOST_PARTITIONS,
    OTHER_TOPICS,
    Exposition,
    Snapshot,
    _present,
    families,
    snapshot,
)
from kohort.client.admin_types import NewTopic
from kohort.coordinator import events
from kohort.coordinator.causes import Cause, CauseKind, Who
from serving import LIMIT_S, environment, start

QUICK = ["--config", "group.initial.rebalance.delay.ms=0", "--config", "group.min.session.timeout.ms=100"]


class Exposed:
    """`kohort serve --metrics-port`, with what it prints and what a scrape gives."""

    def __init__(self, *arguments):
        self.process = start("--memory", "--port", "0", "--metrics-port", "0", *QUICK, *arguments)
        self.servers = self.process.stdout.readline().removeprefix("kohort listening on ").strip()
        self.url = self.process.stdout.readline().removeprefix("kohort metrics on ").strip()

    def scrape(self):
        text = urllib.request.urlopen(self.url, timeout=LIMIT_S).read().decode()
        return {name: float(value) for name, value in re.findall(r"^([a-z].*) ([^ ]+)$", text, re.MULTILINE)}

    def stop(self):
        self.process.terminate()
        _, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0
        return err


def read_all(servers, count, **settings):
    with kohort.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe("orders")
        seen = 0
        while seen < count:
            seen += len(consumer.poll(1))
        consumer.commit()


def test_a_scrape_tells_what_clients_did():
    exposed = Exposed("--log-format", "json")
    with kohort.Producer(bootstrap_servers=exposed.servers) as producer:
        for number in range(100):
            producer.send("orders", f"order {number}")
    read_all(exposed.servers, 100, group_id="shop", client_id="alice")
    found = exposed.scrape()
    assert found['kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}'] == 100
    assert found['kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}'] > 0
    assert found['kafka_server_brokertopicmetrics_bytesout_total{topic="orders"}'] > 0
    assert found['kafka_log_log_size{partition="0",topic="orders"}'] > 0
    assert found['kafka_log_log_logendoffset{partition="0",topic="orders"}'] == 100
    assert found['kafka_network_requestmetrics_requests_total{request="JoinGroup"}'] == 2
    latency = "kafka_network_requestmetrics_totaltimems"
    assert found[f'{latency}_bucket{{le="+Inf",request="SyncGroup"}}'] == 1
    assert found[f'{latency}_count{{request="SyncGroup"}}'] == 1
    assert found["kafka_server_group_coordinator_metrics_offset_commit_count"] >= 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsempty"] == 1
    assert found['kohort_group_rebalances_total{group="shop",reason="joined"}'] == 1
    assert found['kohort_group_rebalances_total{group="shop",reason="left"}'] == 1
    assert found['kohort_group_members{group="shop"}'] == 0
    assert found['kohort_group_lag{group="shop",topic="orders"}'] == 0
    assert found["kohort_group_rebalance_seconds_count"] == 1
    lines = [json.loads(line) for line in exposed.stop().splitlines()]
    said = {line["event"]["type"]: line for line in lines if "event" in line}
    assert said["MemberJoined"]["event"]["client_id"] == "alice"
    assert "alice" in said["MemberLeft"]["message"] and said["MemberLeft"]["event"]["cause"]["kind"] == "left"
    assert re.search(
        r"rebalance done after \d+ ms, 1 members, range, .*: new member", said["RebalanceCompleted"]["message"]
    )


def test_every_metric_has_its_name_help_and_type_before_anything_happens():
    exposed = Exposed()
    text = urllib.request.urlopen(exposed.url, timeout=LIMIT_S).read().decode()
    for name in EXPORTED:
        assert f"# HELP {name}" in text and f"# TYPE {name}" in text
    exposed.stop()


def test_a_metrics_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        process = start("--memory", "--port", "0", "--metrics-port", port)
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (1, "") and f"--metrics-port {port}" in err and len(err.splitlines()) == 1


def test_without_the_package_it_says_what_to_install():
    program = "import sys; sys.modules['prometheus_client'] = None\nfrom kohort.cli.serve import main\n"
    program += "sys.exit(main(['--memory', '--port', '0', '--metrics-port', '0']))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.returncode == 1 and "pip install 'kohort[metrics]'" in done.stderr


# -- counters -----------------------------------------------------------------------------------------------------


def member(kind, group="g", cause=None, **fields):
    return kind(at_ms=1, group_id=group, generation=1, member_id="m", cause=cause, **fields)


@pytest.mark.parametrize("kind", CauseKind)
def test_a_rebalance_is_counted_with_the_kind_of_what_set_it_off(kind):
    counters = GroupCounters()
    counters.observe(
        events.RebalanceStarted(
            at_ms=1, group_id="g", generation=1, members=1, rebalance_timeout_ms=1, cause=Cause(kind)
        )
    )
    counters.observe(member(events.MemberEvicted, cause=Cause(kind)))
    counters.observe(member(events.SyncRefused, cause=Cause(kind), error="X"))
    assert counters.by_group["g"].rebalances == {kind.value: 1}
    assert counters.by_group["g"].evictions == {kind.value: 1}
    assert counters.by_group["g"].refusals == {("X", kind.value): 1}


def test_what_members_say_is_counted_and_changes_no_kind():
    counters = GroupCounters()
    for said in ("consumer poll timeout has expired.", "no consumer poll timeout has expired", "no heartbeat for 5 ms"):
        counters.observe(member(events.MemberLeft, cause=Cause(CauseKind.LEFT, said=said)))
    counted = counters.by_group["g"]
    assert (counted.leaves, counted.poll_timeouts) == (3, 1)


def test_epochs_are_counted_until_everybody_is_there():
    counters = GroupCounters()

    def state(at_ms, to_state):
        return events.StateChanged(at_ms=at_ms, group_id="g", generation=1, from_state="Assigning", to_state=to_state)

    for at_ms in (1_000, 1_500):  # the second comes before everybody has reached the first
        cause = Cause(CauseKind.JOINED)
        counters.observe(events.EpochStarted(at_ms=at_ms, group_id="g", generation=1, members=1, cause=cause))
    counters.observe(events.TargetFailed(at_ms=1_600, group_id="g", generation=1, assignor="own"))
    counters.observe(state(1_600, "Reconciling"))
    counted = counters.by_group["g"]
    assert (counters.epochs, counted.rebalances, counted.completed) == (2, {"joined": 2}, 0)
    counters.observe(state(3_000, "Stable"))
    counters.observe(state(4_000, "Stable"))
    assert (counted.completed, counters.duration_ms, counted.standstill_ms) == (1, 2_000, 0)
    assert counted.target_failures == {"own": 1}
    assert counters.completed == 0, "Kafka counts rebalances of classic groups alone by this name"


def test_groups_of_the_consumer_protocol_have_their_own_metrics():
    from coordinator.modern.groups import Members

    members = Members()
    members.join("a")
    members.join("b")

    core = SimpleNamespace(topics=SimpleNamespace(by_name={}))
    found = Snapshot()
    _present(found, core, members.group)
    assert found.labelled["kohort_group_assignment_epoch"] == [(("g",), members.group.epoch)]
    assert found.labelled["kohort_group_waited_for_partitions"] == [(("g",), 2)]
    members.settle()
    found = Snapshot()
    _present(found, core, members.group)
    assert found.labelled["kohort_group_waited_for_partitions"] == [(("g",), 0)]


def test_groups_beyond_the_limit_are_counted_together():
    counters = GroupCounters()
    for number in range(meter.MOST_GROUPS + 50):
        counters.observe(member(events.MemberJoined, group=f"g{number}"))
    assert len(counters.by_group) == meter.MOST_GROUPS + 1
    assert counters.by_group[meter.OTHER_GROUPS].joins == 50
    counters.observe(events.GroupDeleted(at_ms=1, group_id="g1", generation=1))
    assert "g1" not in counters.by_group


def test_partitions_beyond_the_limit_are_counted_together():
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("a", 2), NewTopic("b", MOST_PARTITIONS)])
        found = broker._call(lambda running: snapshot(running.core, Meter(lambda: 0.0), 0))
    sizes = dict(found.labelled["kafka_log_log_size"])
    assert ("a", "1") in sizes and (OTHER_TOPICS, "") in sizes and ("b", "0") not in sizes
    assert found.simple["kafka_server_replicamanager_partitioncount"] == MOST_PARTITIONS + 2
    assert {family.name for family in families(found)} <= {name.removesuffix("_total") for name in EXPORTED}


def test_what_clients_call_themselves_cannot_forge_a_line_of_the_metrics():
    with kohort.Broker() as broker:
        found = broker._call(lambda running: snapshot(running.core, Meter(lambda: 0.0), 0))
    found.add("kohort_group_joins_total", ('shop"} 1\nforged{x="',), 1)
    lines = Exposition().text(found).decode().splitlines()
    assert not [line for line in lines if line.startswith("forged")]
    assert any(r'group="shop\"} 1\nforged{x=\""' in line for line in lines)


def test_latencies_fall_into_buckets_of_milliseconds():
    times = iter((0.0, 0.00001, 0.0005, 0.003, 1000.0))
    measured = Meter(lambda: next(times))

    class call:
        began = 0.0

        class entry:
            name = "Heartbeat"

    for _ in range(4):
        measured.answered(call)
        measured.end_turn()
    slots = measured.latencies["Heartbeat"]
    assert sum(slots[:-1]) == 4 and slots[9] == 1 and slots[12] == 1 and slots[-1] > 1000


# -- lines --------------------------------------------------------------------------------------------------------


def test_a_line_has_who_what_and_why_and_no_control_characters():
    event = events.MemberEvicted(
        at_ms=1, group_id="shop\n", generation=7, member_id="c-1", client_id="carol", client_host="/127.0.0.1",
        cause=Cause(CauseKind.TIMED_OUT, timeout_ms=10_000),
    )  # fmt: skip
    line = event_log.line(event)
    assert line == "group shop\\n: carol (c-1, 127.0.0.1) evicted: no heartbeat for 10000 ms [generation 7]"


def test_the_end_of_a_rebalance_has_the_reason_of_its_beginning():
    cause = Cause(CauseKind.JOINED, (Who("b"),))
    began = events.RebalanceStarted(at_ms=1, group_id="g", generation=1, members=2, rebalance_timeout_ms=1, cause=cause)
    done = events.RebalanceCompleted(
        at_ms=2, group_id="g", generation=2, protocol="range", leader_id="a", members=2, duration_ms=1, cause=cause
    )
    why = "new member b; client reason: not provided"
    assert event_log.line(began).endswith(f"rebalance of 2 members began: {why} [generation 1]")
    assert (
        event_log.line(done) == f"group g: rebalance done after 1 ms, 2 members, range, a leads: {why} [generation 2]"
    )
