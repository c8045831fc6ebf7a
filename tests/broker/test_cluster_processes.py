"""Brokers of a cluster as processes over one directory: kill -9, a clean stop, wrong command lines."""

import time

import pytest

import kohort
from serving import Serving, start

LIMIT_S = 60
QUICK = ("--config", "broker.session.timeout.ms=3000", "--config", "broker.heartbeat.interval.ms=500")


def serve(store, node_id):
    return Serving("--cluster", f"file://{store}", "--node-id", str(node_id), *QUICK)


def produce(servers, numbers):
    """In one transaction: its markers go from process to process."""
    with kohort.Producer(bootstrap_servers=servers, transactional_id="tx") as producer, producer.transaction():
        for number in numbers:
            producer.send("orders", b"%d" % number, partition=number % 4)


def read(reader, numbers):
    found, deadline = set(), time.monotonic() + LIMIT_S
    while not set(numbers) <= found:
        found |= {int(record.value) for record in reader.poll(0.2)}
        assert time.monotonic() < deadline, f"missing: {sorted(set(numbers) - found)[:10]}"


def test_brokers_are_killed_and_stopped_and_nothing_acknowledged_is_lost(tmp_path):
    brokers = {node_id: serve(tmp_path, node_id) for node_id in (1, 2, 3)}
    try:
        servers = ",".join(broker.address for broker in brokers.values())
        with kohort.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([kohort.NewTopic("orders", 4)])
        produce(servers, range(100))
        reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with kohort.Consumer(bootstrap_servers=servers, group_id="g", **reading) as reader:
            reader.subscribe(["orders"])
            read(reader, range(100))
            reader.commit()
            brokers.pop(1).kill()
            produce(servers, range(100, 200))
            read(reader, range(100, 200))
            reader.commit()
            brokers[1] = serve(tmp_path, 1)
            assert brokers.pop(2).stop() == 0
            produce(brokers[1].address, range(200, 300))
            read(reader, range(200, 300))
            reader.commit()
        assert [broker.stop() for broker in brokers.values()] == [0, 0]
        brokers.clear()
        brokers[3] = serve(tmp_path, 3)  # alone, after all were gone
        with kohort.Consumer(bootstrap_servers=brokers[3].address, group_id="other", **reading) as again:
            again.subscribe(["orders"])
            read(again, range(300))
    finally:
        for broker in brokers.values():
            broker.kill()


def test_the_older_of_two_brokers_with_one_node_id_gives_way(tmp_path):
    first = serve(tmp_path, 1)
    second = serve(tmp_path, 1)
    try:
        _, told = first.process.communicate(timeout=LIMIT_S)
        assert first.process.returncode == 1
        assert "another broker has registered with node.id 1" in told
    finally:
        first.process.kill()
        second.kill()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--cluster", "file:///tmp/x"], 2, "--cluster needs --node-id"),
        (["--cluster", "file:///tmp/x", "--node-id", "1", "--memory"], 2, "give no --memory"),
        (["--cluster", "ftp://x", "--node-id", "1"], 1, "no store for a cluster"),
        (["--cluster", "file:///proc/kohort", "--node-id", "1"], 1, "make it writable"),
    ],
)
def test_a_wrong_command_line_gets_a_sentence(arguments, code, reason):
    process = start("--port", "0", *arguments)
    _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code
    assert reason in told
    assert "Traceback" not in told


def test_a_store_of_another_format_is_refused(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "000000000000").write_text('{"format": 99, "changes": []}')
    process = start("--port", "0", "--cluster", f"file://{tmp_path}", "--node-id", "1")
    _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "has format 99" in told and "Traceback" not in told
