"""Damage after a clean stop: found by what the stop left behind, said with its offsets, the rest served."""

import json
import logging
import shutil

import pytest

import kohort
from kohort.broker.boot import StartError
from kohort.protocol import messages
from kohort.records.batch import read_header
from kohort.storage import inventory
from kohort.storage.config import LogConfig
from kohort.storage.disk_store import LogStore
from wire import WireClient, batch

KEY = ("t", 0)
TOPIC_ID = b"0123456789abcdef"


def opened(path, **config):
    store = LogStore(path)
    store.load(lambda topic: LogConfig(**config), now_ms=1000)
    return store


@pytest.fixture
def segments(tmp_path):
    """A log of four segments with ten records each, closed cleanly; the paths of their files."""
    store = opened(tmp_path)
    log = store.create(*KEY, TOPIC_ID, LogConfig(), now_ms=1000)
    for number in range(40):
        if number and number % 10 == 0:
            log.roll(1000)
        log.append(batch(b"%d" % number), leader_epoch=0, now_ms=1000)
    store.close()
    found = sorted((tmp_path / "t-0").glob("*.log"))
    assert len(found) == 4
    return found


def offsets(log):
    """What a consumer reads that starts at the first offset."""
    found, position = [], log.start_offset
    while views := log.read(position, 1 << 20):
        for view in views:
            at = 0
            while at < len(view):
                header = read_header(view, at)
                found += range(header.base_offset, header.last_offset + 1)
                at += header.size
        position = found[-1] + 1
    return found


def test_a_clean_stop_and_start_finds_nothing(tmp_path, segments):
    store = opened(tmp_path)
    assert store.lost == {} and offsets(store.logs[KEY]) == list(range(40))
    store.close()


@pytest.mark.parametrize(
    ("which", "size", "gone"),
    [
        (1, None, range(10, 20)),
        (1, 0, range(10, 20)),
        (1, 0.5, range(15, 20)),
        (0, None, range(10)),
        (3, None, range(30, 40)),
        (3, 0, range(30, 40)),
        (3, 0.5, range(35, 40)),
    ],
    ids=["missing", "emptied", "torn", "first", "last", "last emptied", "last torn"],
)
def test_what_is_gone_is_said_and_the_rest_is_served(tmp_path, segments, caplog, which, size, gone):
    if size is None:
        segments[which].unlink()
    else:
        data = segments[which].read_bytes()
        segments[which].write_bytes(data[: int(len(data) * size) + (3 if size else 0)])
    with caplog.at_level(logging.ERROR):
        store = opened(tmp_path)
    log = store.logs[KEY]
    assert [(gap.start, gap.end) for gap in store.lost[KEY]] == [(gone.start, gone.stop)]
    assert f"t-0: offsets {gone.start} to {gone.stop - 1} are lost" in caplog.text
    left = [offset for offset in range(40) if offset not in gone]
    assert offsets(log) == left
    assert log.append(batch(b"new"), leader_epoch=0, now_ms=1000).base_offset == 40, "no offset is given out twice"
    assert offsets(log) == [*left, 40]
    store.close()
    again = opened(tmp_path)
    assert again.lost == {} and offsets(again.logs[KEY]) == [*left, 40]
    again.close()


def test_all_segments_are_gone(tmp_path, segments):
    for path in segments:
        path.unlink()
    store = opened(tmp_path)
    log = store.logs[KEY]
    assert store.lost[KEY] and (log.start_offset, log.end_offset) == (40, 40)
    assert log.append(batch(b"new"), leader_epoch=0, now_ms=1000).base_offset == 40
    assert offsets(log) == [40]
    store.close()


def test_a_partition_that_is_gone(tmp_path, segments):
    shutil.rmtree(tmp_path / "t-0")
    store = opened(tmp_path)
    assert [(gap.start, gap.end) for gap in store.lost[KEY]] == [(0, 40)]
    store.close()


def test_what_was_deleted_on_purpose_is_not_lost(tmp_path, segments):
    store = opened(tmp_path)
    store.logs[KEY].delete_records_before(25)
    store.logs[KEY].enforce_retention(1000)
    store.close()
    store = opened(tmp_path)
    assert store.lost == {} and store.logs[KEY].start_offset == 25
    store.delete(*KEY)
    store.close()
    assert opened(tmp_path).lost == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"t-0": 7}', b"\xff"])
def test_an_inventory_that_cannot_be_read_accuses_nobody(tmp_path, segments, content):
    (tmp_path / inventory.FILE).write_bytes(content)
    store = opened(tmp_path)
    assert store.lost == {} and len(offsets(store.logs[KEY])) == 40
    store.close()


def test_topic_metadata_that_cannot_be_read_costs_its_partition_alone(tmp_path, segments):
    store = opened(tmp_path)
    store.create("other", 0, b"f" * 16, LogConfig(), now_ms=1000)
    store.close()
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: rubbish")
    store = opened(tmp_path)
    assert "partition.metadata" in str(store.logs[KEY].failure) and store.logs["other", 0].failure is None
    store.close()


def topics(broker):
    answer = WireClient(broker.bootstrap_servers).call(messages.MetadataRequest(topics=None), 9)
    return [topic.name for topic in answer.topics]


def test_a_directory_without_its_document_is_not_started(tmp_path):
    with kohort.Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 1)
    document = tmp_path / "kohort.state.json"
    kept = document.read_bytes()
    document.unlink()
    with pytest.raises(StartError, match="restore it from a copy"):
        kohort.Broker(data_dir=tmp_path).start()
    document.write_bytes(kept)
    with kohort.Broker(data_dir=tmp_path) as broker:
        assert "t" in topics(broker)
    document.unlink()
    (tmp_path / inventory.FILE).unlink()
    with kohort.Broker(data_dir=tmp_path) as broker:
        assert "t" in topics(broker), "as that of another Kafka"
    assert json.loads(document.read_bytes())["topics"]
