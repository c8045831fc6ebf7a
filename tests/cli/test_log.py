"""`kohort log` through the command line: a partition of `__consumer_offsets` that is damaged, checked and repaired."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kohort
from kohort.cli.failures import Failed
from kohort.cli.log import app
from kohort.cli.record_words import told
from kohort.coordinator.modern_records import (
    CurrentAssignment,
    GroupEpoch,
    Kind,
    MemberMetadata,
    ModernChange,
    ResolvedRegex,
    TargetEpoch,
    encode_modern,
)
from kohort.coordinator.records import (
    OFFSETS_TOPIC,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetCommit,
    StoredGroup,
    StoredMember,
    encode,
)
from kohort.coordinator.transactions import records as transaction_records
from kohort.coordinator.transactions.states import TransactionState
from kohort.coordinator.transactions.transaction import Transaction
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from kohort.records.batch import Compression, Record
from kohort.records.control import ControlType, build_marker
from kohort.storage import LogConfig
from serving import environment
from storage_world import batch, open_store
from wire import WireClient

runner = CliRunner()
SEGMENT = "00000000000000000000.log"


def kohort_log(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kohort.cli", "log", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)


def commit(client: WireClient, group: str, offset: int) -> int:
    request = messages.OffsetCommitRequest
    row = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = request.OffsetCommitRequestTopic(name="orders", partitions=[row])
    return int(client.call(request(group_id=group, topics=[topic]), 9).topics[0].partitions[0].error_code)


def fetched(client: WireClient, group: str) -> Any:
    request = messages.OffsetFetchRequest
    while True:
        (row,) = client.call(request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=None)]), 9).groups
        if row.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return row.error_code or row.topics[0].partitions[0].committed_offset


def serving(path: Path) -> kohort.Broker:
    return kohort.Broker(data_dir=path, config={"offsets.topic.num.partitions": 2})


def test_check_and_repair(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        broker.create_topic("orders", 1)
        client = WireClient(broker.bootstrap_servers)
        client.call(messages.FindCoordinatorRequest(key="g"), 2)
        for offset in range(5):
            assert commit(client, "g", offset) == commit(client, "h", offset) == 0
        client.close()
        in_use = kohort_log("check", str(tmp_path))
        assert in_use.returncode == 1 and "in use by another broker" in in_use.stderr
    sound = kohort_log("check", str(tmp_path))
    assert sound.returncode == 0 and "nothing is damaged" in sound.stdout

    path = tmp_path / f"{OFFSETS_TOPIC}-1" / SEGMENT
    size = path.stat().st_size // 5
    with open(path, "r+b") as file:
        file.seek(2 * size + 70)
        file.write(b"\xff\xff")
    with serving(tmp_path) as broker:
        client = WireClient(broker.bootstrap_servers)
        assert fetched(client, "g") == ErrorCode.NOT_COORDINATOR and fetched(client, "h") == 4
        client.close()

    found = kohort_log("check", str(tmp_path))
    assert found.returncode == 1
    assert f"{OFFSETS_TOPIC}-1" in found.stdout and "checksum" in found.stdout
    assert "a repair costs 1 record;" in found.stdout
    declined = subprocess.run(
        [sys.executable, "-m", "kohort.cli", "log", "repair", str(tmp_path)],
        capture_output=True, text=True, env=environment(), timeout=120, input="n\n",
    )  # fmt: skip
    assert declined.returncode != 0 and kohort_log("check", str(tmp_path)).returncode == 1

    repaired = kohort_log("repair", str(tmp_path), "--yes")
    assert repaired.returncode == 0, repaired.stderr
    assert f"repaired {OFFSETS_TOPIC}-1" in repaired.stdout
    assert kohort_log("check", str(tmp_path)).returncode == 0
    with serving(tmp_path) as broker:
        client = WireClient(broker.bootstrap_servers)
        assert fetched(client, "g") == fetched(client, "h") == 4
        assert commit(client, "g", 9) == 0
        client.close()


def test_wrong_input(tmp_path: Path) -> None:
    nowhere = kohort_log("check", str(tmp_path / "nowhere"))
    assert nowhere.returncode == 1 and "is not a directory" in nowhere.stderr
    assert not (tmp_path / "nowhere").exists()


def test_dump_tells_batches_and_records_in_words(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create("orders", 0, b"t" * 16, LogConfig(), now_ms=0)
    log.append(batch([("k\x1b[2J", "one"), (None, "two")], compression=Compression.ZSTD), leader_epoch=3, now_ms=0)
    transactional = dict(producer_id=7, producer_epoch=1, base_sequence=0, transactional=True)
    log.append(batch([("k", None)], **transactional), leader_epoch=3, now_ms=0)
    marker = build_marker(ControlType.ABORT, timestamp=0, producer_id=7, producer_epoch=1, coordinator_epoch=0)
    log.append(marker, leader_epoch=3, now_ms=0)
    store.close()
    file = tmp_path / "orders-0" / SEGMENT
    whole = runner.invoke(app, ["dump", str(file)])
    assert whole.exit_code == 0
    lines = whole.stdout.splitlines()
    assert lines[0] == str(file) and "\x1b" not in whole.stdout
    assert "offsets 0 to 1, 2 records" in lines[1] and "zstd" in lines[1] and "leader epoch 3" in lines[1]
    assert lines[2].endswith(r'key "k\x1b[2J", value "one"') and lines[3].endswith('key null, value "two"')
    assert "producer 7 epoch 1 from sequence 0, transactional" in lines[4]
    assert lines[5].endswith('key "k", value null')
    assert "control" in lines[6] and lines[7].endswith("the transaction ends here: abort")
    assert runner.invoke(app, ["dump", str(tmp_path / "orders-0")]).stdout == whole.stdout
    assert runner.invoke(app, ["dump", str(tmp_path)]).stdout == whole.stdout
    some = runner.invoke(app, ["dump", str(file), "--from", "1", "--to", "2"]).stdout.splitlines()
    assert [line.split()[0] for line in some[1:] if not line.startswith("  byte")] == ["1", "2"]
    assert len(runner.invoke(app, ["dump", str(file), "--batches"]).stdout.splitlines()) == 4
    rows = [json.loads(line) for line in runner.invoke(app, ["dump", str(file), "--json"]).stdout.splitlines()]
    assert [row["batch"]["base_offset"] for row in rows] == [0, 2, 3]
    assert [record["offset"] for row in rows for record in row["records"]] == [0, 1, 2, 3]


def test_dump_goes_on_behind_what_is_damaged(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create("orders", 0, b"t" * 16, LogConfig(), now_ms=0)
    for number in range(3):
        log.append(batch([("k", f"v{number}")]), leader_epoch=0, now_ms=0)
    store.close()
    file = tmp_path / "orders-0" / SEGMENT
    data = bytearray(file.read_bytes())
    size = len(data) // 3
    data[size + 70] ^= 1
    file.write_bytes(data)
    found = runner.invoke(app, ["dump", str(file)])
    assert found.exit_code == 1
    assert '"v0"' in found.stdout and '"v1"' not in found.stdout and '"v2"' in found.stdout
    assert (
        f"byte {size}: DAMAGED, {size} bytes: the checksum of the batch is wrong; goes on at offset 2" in found.stdout
    )
    assert file.read_bytes() == data, "nothing is changed"


CHANGES: list[tuple[Any, str]] = [
    (OffsetCommit("g", "orders", 3, OffsetAndMetadata(42, 5, "note", 0, -1, b"")),
     'group g: orders-3 is committed up to 42, leader epoch 5, metadata "note"'),
    (OffsetCommit("g", "orders", 3, None), "group g: the offset of orders-3 is gone"),
    (GroupMetadata("g", StoredGroup("consumer", 7, "range", "m-1", 0, (
        StoredMember("m-1", "static", "c", "/h", 1, 1, b"", b""),))),
     "group g: generation 7 of consumer, range, led by m-1, 1 member: m-1 (static)"),
    (GroupMetadata("g", StoredGroup("consumer", 8, None, None, 0, ())), "group g: generation 8, without members"),
    (GroupMetadata("g\n", None), r"group g\n: the group is gone"),
    (ModernChange(Kind.GROUP, "g", "", GroupEpoch(4, 0)), "group g: group epoch 4"),
    (ModernChange(Kind.MEMBER, "g", "m", MemberMetadata(client_id="c", client_host="/h", topics=frozenset({"t"}))),
     "group g: member m (c, /h) subscribes to t"),
    (ModernChange(Kind.TARGET, "g", "", TargetEpoch(4, 0)), "group g: target of epoch 4"),
    (ModernChange(Kind.TARGET_MEMBER, "g", "m", {b"i" * 16: {1, 0}}),
     "group g: target of member m: aWlpaWlpaWlpaWlpaWlpaQ[0, 1]"),
    (ModernChange(Kind.CURRENT_MEMBER, "g", "m", CurrentAssignment(4, 3, assigned={b"i" * 16: {0: 4}})),
     "group g: member m has aWlpaWlpaWlpaWlpaWlpaQ[0] in epoch 4, STABLE"),
    (ModernChange(Kind.REGEX, "g", "t.*", ResolvedRegex(frozenset({"t1", "t2"}), 1, 0)),
     "group g: expression t.* stands for t1, t2"),
    (ModernChange(Kind.CURRENT_MEMBER, "g", "m", None), "group g: member m: gone"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_dump_tells_records_of_groups_in_words(change: Any, words: str) -> None:
    key, value = encode_modern(change) if isinstance(change, ModernChange) else encode(change)
    assert told(OFFSETS_TOPIC, Record(0, 0, key, value), False) == words


def test_dump_tells_records_of_transactions_in_words() -> None:
    ongoing = Transaction("tx", 7, 2, 60_000, TransactionState.ONGOING, (("orders", 1),), 0, 0)
    key, value = transaction_records.encode(transaction_records.Change("tx", ongoing))
    says = told(transaction_records.TRANSACTIONS_TOPIC, Record(0, 0, key, value), False)
    assert says == "transactional id tx: Ongoing, producer 7 epoch 2, with orders-1"
    assert told(transaction_records.TRANSACTIONS_TOPIC, Record(0, 0, key, None), False).endswith("tx: forgotten")


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, transaction_records.TRANSACTIONS_TOPIC])
@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x63x", b"\x00\x01\xff"])
def test_dump_of_records_that_say_nothing_shows_their_bytes(topic: str, key: bytes | None) -> None:
    assert "value" in told(topic, Record(0, 0, key, b"\x00"), False)


def test_dump_wrong_input(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no", "there is no"), (tmp_path, "has no segments")):
        result = runner.invoke(app, ["dump", str(path)])
        assert result.exit_code != 0 and isinstance(result.exception, Failed) and why in str(result.exception)
