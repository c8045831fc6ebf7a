"""The small files of a data directory in Kafka's formats: checkpoints, partition.metadata, meta.properties.

Text in, values out, written atomically (temporary file, then rename). Which offsets go in is the store's business.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

TopicPartition = tuple[str, int]


def write_atomically(path: str | Path, data: bytes, *, sync: bool = False, private: bool = False) -> None:
    """Replace the file so that a reader (or a crash) sees the old content or the new one, never a mixture. A private
    one is for its owner alone."""
    temporary = f"{path}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if private:
            os.fchmod(fd, 0o600)
        written = os.write(fd, data)
        while written < len(data):
            written += os.write(fd, data[written:])
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)


def read_file(path: str | Path) -> bytes | None:
    """The whole file; None where there is none. Plain system calls: a start reads hundreds of small files."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        data = os.read(fd, size)
        while len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def _encode_checkpoint(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()


def _decode_checkpoint(data: bytes | None, columns: int) -> list[list[str]]:
    """The rows of a checkpoint file; a damaged file counts as empty, since all of them can be rebuilt."""
    try:
        version, count, *lines = (data or b"").decode().splitlines()
        rows = [line.split() for line in lines]
        if int(version) != 0 or int(count) != len(rows) or any(len(row) != columns for row in rows):
            return []
    except ValueError:
        return []
    return rows


def write_epochs(path: str | Path, entries: Iterable[tuple[int, int]]) -> None:
    write_atomically(path, _encode_checkpoint([f"{epoch} {start}" for epoch, start in entries]))


def read_epochs(path: str | Path) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(start)) for epoch, start in _decode_checkpoint(read_file(path), 2)]
    except ValueError:
        return []


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int], *, sync: bool = False) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_atomically(path, _encode_checkpoint(lines), sync=sync)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        return {(row[0], int(row[1])): int(row[2]) for row in _decode_checkpoint(read_file(path), 3)}
    except ValueError:
        return {}


def write_topic_id(directory: Path, topic_id: str) -> None:
    write_atomically(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {topic_id}".encode())


def read_topic_id(directory: str | Path) -> str | None:
    """The topic id in Kafka's base64 form; None where the file is missing or empty, as after a power cut."""
    data = read_file(f"{directory}/{PARTITION_METADATA}")
    for line in (data or b"").decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            return value.strip() or None
    return None


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    text = "#\n" + "".join(f"{name}={value}\n" for name, value in properties.items())
    write_atomically(path, text.encode(), sync=True)


def read_properties(path: Path) -> dict[str, str]:
    lines = (read_file(path) or b"").decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def write_clean_shutdown(directory: Path, broker_epoch: int = -1) -> None:
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(directory / CLEAN_SHUTDOWN_FILE, content.encode(), sync=True)
