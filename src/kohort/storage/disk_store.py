"""The logs of a data directory as Kafka lays it out, with its lock and its identity. Memory is in store.py."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from pathlib import Path

from kohort.protocol.uuids import from_base64, to_base64
from kohort.storage import checkpoints, inventory
from kohort.storage.closing import close_all
from kohort.storage.committer import Committer
from kohort.storage.config import LogConfig
from kohort.storage.directory_lock import DirectoryLock
from kohort.storage.errors import StorageError, advice
from kohort.storage.handles import DEFAULT_LIMIT, Handles
from kohort.storage.inventory import Lost
from kohort.storage.local_log import LocalLog
from kohort.storage.recovery import Checkpoint, load
from kohort.storage.store import ConfigFor, Store

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_MS = 60_000
_PARTITION_DIR = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_DELETE_SUFFIX = "-delete"
_RUBBISH_S = 5.0
"""How long a stop goes on removing what was deleted."""


class LogStore(Store):
    """A data directory. Constructing it takes the lock; `load` opens the logs, quickly if the last stop was clean."""

    def __init__(
        self,
        path: str | Path,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
        max_open_files: int = DEFAULT_LIMIT,
        committer: Committer | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self.logs: dict[tuple[str, int], LocalLog] = {}  # type: ignore[assignment]
        self.topic_ids = {}
        self.lost = {}
        self.handles = Handles(max_open_files)
        self.committer = committer or Committer()
        self._next_checkpoint_ms: int | None = None
        self._loaded = False
        self._starts_followed = False
        self._doomed: dict[str, str] = {}  # folders of topics that are being deleted
        self._leave_rubbish_at: float | None = None
        self._gone: set[tuple[str, int]] = set()  # of which the checkpoint may still say how far they went
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(self.path)
        except OSError as error:
            raise StorageError(f"cannot use the data directory {self.path}: {error.strerror}") from error
        try:
            self._read_identity(node_id, cluster_id)
        except BaseException:
            self._lock.release()
            raise
        clean_marker = self.path / checkpoints.CLEAN_SHUTDOWN_FILE
        self.was_clean = clean_marker.exists()
        self.last_stop: bool | None = self.was_clean if self._was_used else None
        """Whether the last stop was clean; None where there was none."""

    # --- the directory

    def _read_identity(self, node_id: int, cluster_id: str | None) -> None:
        path = self.path / checkpoints.META_PROPERTIES
        known = checkpoints.read_properties(path)
        self._was_used = bool(known)
        if cluster_id and known.get("cluster.id", cluster_id) != cluster_id:
            raise StorageError(
                f"{self.path} belongs to cluster {known['cluster.id']}, not {cluster_id}: choose another"
            )
        if known.get("node.id", str(node_id)) != str(node_id):
            raise StorageError(
                f"{self.path} belongs to node {known['node.id']}, not {node_id}: choose another --data-dir"
            )
        self.node_id = node_id
        self.cluster_id = known.get("cluster.id") or cluster_id or _random_id()
        self.directory_id = known.get("directory.id") or _random_id()
        identity = {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(node_id),
            "directory.id": self.directory_id,
        }
        if known != identity:
            checkpoints.write_properties(path, identity)

    # --- logs

    def load(self, config_for: ConfigFor, *, now_ms: int) -> None:
        clean = self.was_clean
        (self.path / checkpoints.CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        recovery_points = checkpoints.read_offsets(self.path / checkpoints.RECOVERY_POINT_CHECKPOINT)
        starts = checkpoints.read_offsets(self.path / checkpoints.LOG_START_OFFSET_CHECKPOINT)
        dirty = checkpoints.read_offsets(self.path / checkpoints.CLEANER_OFFSET_CHECKPOINT)
        known = inventory.read(self.path)
        found = self._partition_directories()
        for key in known.keys() - set(found) if clean else ():
            if known[key].end_offset:
                self._lose(key, [Lost(0, known[key].end_offset, "the directory is missing")])
        for topic, partition in found:
            key = (topic, partition)
            checkpoint = Checkpoint(recovery_points.get(key, 0), starts.get(key, 0), dirty.get(key, 0))
            log = self._new_log(topic, partition, config_for(topic), now_ms)
            try:
                lost = load(log, checkpoint, clean=clean, now_ms=now_ms, inventory=known.get(key))
            except OSError as error:
                raise StorageError(f"cannot open {log.directory}: {error.strerror or error}") from error
            self.logs[key] = log
            if lost:
                self.lost[key] = lost
            if topic not in self.topic_ids:
                self._read_topic_id(topic, log)
        self._loaded = True
        if not clean:
            # A topic that is gone must not be mistaken for one of the same name that has lost its records.
            self.checkpoint()

    def _lose(self, key: tuple[str, int], lost: list[Lost]) -> None:
        self.lost[key] = lost
        for gap in lost:
            logger.error("%s-%d: %s", *key, gap)

    def _read_topic_id(self, topic: str, log: LocalLog) -> None:
        """A file that cannot be read costs its partition, and nothing else."""
        try:
            if topic_id := checkpoints.read_topic_id(log.directory):
                self.topic_ids[topic] = from_base64(topic_id)
        except (OSError, ValueError) as error:
            log.failure = StorageError(
                f"{log.directory}/{checkpoints.PARTITION_METADATA} cannot be read ({error}); restore it from a copy or "
                "remove it, then start again"
            )
            logger.error("%s-%d is offline: %s", topic, log.partition, log.failure.message)

    def claim(self) -> None:
        if not inventory.exists(self.path):
            inventory.write(self.path, {})

    @property
    def has_logs(self) -> bool:
        return inventory.exists(self.path) and bool(self._partition_directories())

    def _partition_directories(self) -> list[tuple[str, int]]:
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(_DELETE_SUFFIX) and entry.is_dir():
                    self._remove_tree(entry.path)
                elif (match := _PARTITION_DIR.fullmatch(entry.name)) and entry.is_dir():
                    found.append((match["topic"], int(match["partition"])))
        return sorted(found)

    def _new_log(self, topic: str, partition: int, config: LogConfig, now_ms: int) -> LocalLog:
        return LocalLog(
            f"{self.path}/{topic}-{partition}",
            topic,
            partition,
            config,
            handles=self.handles,
            committer=self.committer,
            now_ms=now_ms,
            start_moved=self._save_start_offsets,
            start_followed=self._note_starts,
            compacted=self._save_cleaner_offsets,
        )

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, now_ms: int) -> LocalLog:
        if (topic, partition) in self.logs:
            raise ValueError(f"there is a log of {topic}-{partition} already")
        if (topic, partition) in self._gone:
            self.checkpoint()
        log = self._new_log(topic, partition, config, now_ms)
        try:
            os.mkdir(log.directory)
            checkpoints.write_topic_id(Path(log.directory), to_base64(topic_id))
        except OSError as error:
            shutil.rmtree(log.directory, ignore_errors=True)
            raise StorageError(f"cannot create {log.directory}: {error.strerror}; {advice(error)}") from error
        self.logs[topic, partition] = log
        self.topic_ids[topic] = topic_id
        return log

    def delete(self, topic: str, partition: int, *, last: bool = True) -> None:
        log = self._forget(topic, partition)
        assert isinstance(log, LocalLog)
        self._gone.add((topic, partition))
        log.release()
        try:
            os.rename(log.directory, f"{self._doomed_folder(topic, partition)}/{partition}")
        except OSError as error:
            raise StorageError(f"cannot delete {log.directory}: {error.strerror}") from error
        finally:
            if last and topic in self._doomed:
                self._remove_tree(self._doomed.pop(topic))
        if last:
            self._save_start_offsets()

    def _doomed_folder(self, topic: str, partition: int) -> str:
        """Where the partitions of a deleted topic lie until they are removed: apart, since whoever makes or renames
        something in a folder waits for whoever removes something from it. No partition can have its name, so that a
        crash in between leaves rubbish, not half a partition."""
        if topic not in self._doomed:
            unique = os.urandom(16).hex()
            folder = f"{self.path}/{topic[: 249 - len(unique) - 12]}-{partition}.{unique}{_DELETE_SUFFIX}"
            os.mkdir(folder)
            self._doomed[topic] = folder
        return self._doomed[topic]

    def _remove_tree(self, path: str) -> None:
        self.committer.defer(lambda: self._clear(path))

    def _clear(self, folder: str) -> None:
        """On the committer's thread. A stop does not wait long for this: the next start goes on with it."""
        for name in os.listdir(folder):
            if self._leave_rubbish_at is not None and time.monotonic() >= self._leave_rubbish_at:
                return
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)

    # --- small files

    def write_file(self, name: str, data: bytes) -> None:
        try:
            checkpoints.write_atomically(self.path / name, data, sync=True, private=True)
        except OSError as error:
            raise StorageError(f"cannot write {self.path / name}: {error.strerror}; {advice(error)}") from error

    def read_file(self, name: str) -> bytes | None:
        return checkpoints.read_file(self.path / name)

    def maintain(self, now_ms: int) -> None:
        super().maintain(now_ms)
        if self._starts_followed:
            self._save_start_offsets()
        if self._next_checkpoint_ms is None:
            self._next_checkpoint_ms = now_ms + CHECKPOINT_INTERVAL_MS
        elif now_ms >= self._next_checkpoint_ms:
            self._next_checkpoint_ms = now_ms + CHECKPOINT_INTERVAL_MS
            self.checkpoint()

    def checkpoint(self) -> None:
        self._save(checkpoints.RECOVERY_POINT_CHECKPOINT, "durable_offset", sync=False)
        self._gone.clear()

    def _note_starts(self) -> None:
        """Saved once, after the retention of all logs."""
        self._starts_followed = True

    def _save_start_offsets(self) -> None:
        self._starts_followed = False
        self._save(checkpoints.LOG_START_OFFSET_CHECKPOINT, "start_offset", sync=False)

    def _save_cleaner_offsets(self) -> None:
        self._save(checkpoints.CLEANER_OFFSET_CHECKPOINT, "first_dirty_offset", sync=False)

    def _save(self, name: str, attribute: str, *, sync: bool) -> None:
        """Zero is what an absent entry means, so only the others are written."""
        offsets = {key: value for key, log in self.logs.items() if (value := getattr(log, attribute))}
        try:
            checkpoints.write_offsets(self.path / name, offsets, sync=sync)
        except OSError as error:
            raise StorageError(f"cannot write {self.path / name}: {error.strerror}; {advice(error)}") from error

    # --- the end

    def close(self) -> None:
        """Flush and close all logs, note that the stop was clean, give the directory free."""
        if not self._lock.is_held:
            return
        self._leave_rubbish_at = time.monotonic() + _RUBBISH_S
        try:
            failed = not close_all(list(self.logs.values()), self._lock.fd)
            if self._loaded or self.logs:
                self.checkpoint()
                self._save_start_offsets()
                self._save_cleaner_offsets()
                if not failed:
                    inventory.write(self.path, self.logs)
                    checkpoints.write_clean_shutdown(self.path)
        finally:
            self.committer.stop()
            self._lock.release()


def _random_id() -> str:
    return to_base64(os.urandom(16))
