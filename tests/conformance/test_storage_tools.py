"""Files of ours read by Kafka's own DumpLogSegments and by a broker; files of a broker read by us."""

import json
import re
import shutil

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from apache_kafka import ApacheKafka, run_java
from kohort.cli.log import app
from kohort.records.batch import Compression, iter_batches, read_records
from kohort.records.control import ControlType, build_marker
from kohort.storage import LogConfig
from storage_world import batch, open_store, records_of

NOW = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=4000, index_interval_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0
)


def write_everything(path):
    """A log with all that a log can have: segments, codecs, producers, transactions, epochs, compacted batches."""
    store = open_store(path, CONFIG, now_ms=NOW)
    log = store.create("ours", 0, b"o" * 16, CONFIG, now_ms=NOW)

    def put(i, pairs, **header):
        log.append(batch(pairs, timestamp=NOW + i, **header), leader_epoch=i // 40, now_ms=NOW + i)

    for i in range(120):
        pairs = [(f"key-{i % 17}", f"value {i}" + "x" * (i % 90)), (f"gone-{i % 5}", None if i % 3 else "y")]
        producer = dict(producer_id=100 + i % 2, producer_epoch=1, base_sequence=i // 2 * 2)
        put(i, pairs, compression=Compression(i % 5), **(producer if i % 4 else {}))
        if i % 10 == 9:
            txn = dict(producer_id=500, producer_epoch=0, base_sequence=i // 10, transactional=True)
            put(i, [(f"txn-{i}", "in a transaction")], **txn)
            kind = ControlType.ABORT if i % 20 == 9 else ControlType.COMMIT
            marker = build_marker(kind, timestamp=NOW + i, producer_id=500, producer_epoch=0, coordinator_epoch=3)
            log.append(marker, leader_epoch=i // 40, now_ms=NOW + i)
        if i == 80:
            assert log.compact(NOW + i)
    expected = records_of(log)
    aborted = log.aborted_transactions(0, log.end_offset)
    assert len(log.segments) > 3
    assert aborted
    store.close()
    return expected, aborted


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    path = tmp_path_factory.mktemp("ours")
    return path, *write_everything(path)


def dump(*args):
    return run_java("org.apache.kafka.tools.DumpLogSegments", *args).stdout


def test_dump_log_segments_reads_every_file(jdk, ours):
    path, expected, aborted = ours
    files = sorted((path / "ours-0").iterdir())
    logs, indexes, times, snapshots, txns = (
        [str(f) for f in files if f.suffix == s] for s in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    )
    assert len(logs) == len(indexes) == len(times)
    out = dump("--deep-iteration", "--print-data-log", "--files", ",".join(logs))
    assert "isvalid: false" not in out
    found = re.findall(r"\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+)", out)
    sizes = [(r.offset, r.timestamp, len(r.key), -1 if r.value is None else len(r.value)) for r in expected]
    assert [tuple(map(int, row)) for row in found] == sizes
    out = dump("--index-sanity-check", "--files", ",".join(indexes))
    assert len(re.findall(r"passed sanity check|is empty", out)) == len(indexes)
    out = dump("--verify-index-only", "--files", ",".join(indexes + times))
    assert not re.search(r"[Mm]ismatch|out of order|Non-|larger offset|corrupt", out), out
    assert "timestamp: " in dump("--files", times[0])
    assert "producerId: 500 producerEpoch: 0 coordinatorEpoch: 3" in dump("--files", ",".join(snapshots))
    out = dump("--files", ",".join(txns))
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", out)
    assert [tuple(map(int, row)) for row in found] == [tuple(txn) for txn in aborted]


def consume(kafka, topic, isolation, end):
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "no message and no end of the partition within a minute"
            if message.error():
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def committed_of(log):
    """(offset, key, value) of what read_committed returns."""
    aborted = log.aborted_transactions(0, log.end_offset)
    found = []
    for view in log.read(0, 10**9, max_offset=log.last_stable_offset):
        for pos, header in iter_batches(view):
            skipped = header.is_transactional and any(
                txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in aborted
            )
            if not skipped and not header.is_control:
                found += [(r.offset, r.key, r.value) for r in read_records(view, pos, header)]
    return found


def write_with_clients(kafka, topic):
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({**settings, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
        for i in range(40):
            producer.produce(topic, f"{codec} {i}" * 20, f"key {i}", partition=0)
        assert producer.flush(60) == 0
    transactional = Producer({**settings, "transactional.id": "t"})
    transactional.init_transactions(60)
    for i in range(6):
        transactional.begin_transaction()
        transactional.produce(topic, f"transaction {i}", f"txn {i}", partition=0)
        assert transactional.flush(60) == 0
        if i % 2:
            transactional.abort_transaction(60)
        else:
            transactional.commit_transaction(60)


def create(kafka, *topics):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(60)


def check_dump(path, theirs):
    """`kohort log dump` of Kafka's own files: every record, and what its coordinators wrote in words."""
    told = CliRunner().invoke(app, ["dump", str(path / "theirs-0"), "--json"])
    assert told.exit_code == 0, told.stdout
    rows = [row for line in told.stdout.splitlines() for row in json.loads(line)["records"]]
    keys = {row["offset"]: row["key"] for row in rows}
    assert all(keys[offset] == f'"{key.decode()}"' for offset, key in theirs)
    assert [row["says"] for row in rows if "ends here" in row["says"]].count("the transaction ends here: abort") == 3
    told = CliRunner().invoke(app, ["dump", *map(str, sorted(path.glob("__transaction_state-*")))]).stdout
    assert "transactional id t: Ongoing, producer" in told and "transactional id t: CompleteCommit" in told


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_opens_our_files_and_we_open_its(jdk, ours, tmp_path, ending):
    path, expected, _ = ours
    with ApacheKafka({"log.segment.bytes": 1024 * 1024}) as kafka:
        create(kafka, "ours", "theirs")
        kafka.stop()
        for file in (path / "ours-0").iterdir():
            if file.name != "partition.metadata":
                shutil.copy(file, kafka.data_dir / "ours-0" / file.name)
        kafka.start()
        keys = [(r.offset, r.key, r.value) for r in expected]
        with open_store(path, CONFIG, now_ms=NOW) as store:
            log = store.get("ours", 0)
            controls = {
                header.base_offset
                for view in log.read(0, 10**9)
                for _, header in iter_batches(view)
                if header.is_control
            }
            visible = committed_of(log)
        assert consume(kafka, "ours", "read_uncommitted", len(keys)) == [k for k in keys if k[0] not in controls]
        assert consume(kafka, "ours", "read_committed", len(keys)) == visible
        write_with_clients(kafka, "theirs")
        theirs = consume(kafka, "theirs", "read_committed", None)
        assert len(theirs) == 203
        getattr(kafka, ending)()
        shutil.copytree(kafka.data_dir, tmp_path / "data")
        check_dump(tmp_path / "data", [row[:2] for row in theirs])
        with open_store(tmp_path / "data", LogConfig(), now_ms=NOW) as store:
            assert store.was_clean == (ending == "stop")
            assert store.cluster_id == kafka.cluster_id
            log = store.get("theirs", 0)
            assert committed_of(log) == theirs
            assert len(log.aborted_transactions(0, log.end_offset)) == 3
            assert log.end_offset == log.last_stable_offset == 212
            assert len(list(log.producers)) == 6
