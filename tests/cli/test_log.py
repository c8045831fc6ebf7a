"""`kohort log` through the command line: a partition of `__consumer_offsets` that is damaged, checked and repaired."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import kohort
from kohort.coordinator.records import OFFSETS_TOPIC
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from serving import environment
from wire import WireClient

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
