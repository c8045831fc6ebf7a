"""A partition in a directory of segment files that Kafka's own tools can read. Opening one is in recovery.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from kohort.storage import checkpoints
from kohort.storage.committer import Committer
from kohort.storage.config import LogConfig
from kohort.storage.errors import StorageError, advice
from kohort.storage.handles import Handles
from kohort.storage.local_segment import LocalSegment
from kohort.storage.log import FlushCallback
from kohort.storage.page_cache import read_through
from kohort.storage.producers import encode_snapshot
from kohort.storage.segment import Segment
from kohort.storage.segment_files import CLEANED, DELETED, LOG, SUFFIXES, SWAP, file_name
from kohort.storage.segmented_log import SegmentedLog

SNAPSHOT = ".snapshot"


class LocalLog(SegmentedLog):
    """Files are created with the first record and opened when used, so that an idle partition costs a directory."""

    segments: list[LocalSegment]  # type: ignore[assignment]

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        handles: Handles,
        committer: Committer,
        now_ms: int,
        start_moved: Callable[[], None] = lambda: None,
        start_followed: Callable[[], None] = lambda: None,
        compacted: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(topic, partition, config, now_ms=now_ms)
        self.directory = directory
        self.handles = handles
        self.committer = committer
        self.snapshots: list[int] = []  # offsets of the producer snapshot files, increasing
        self._on_start_moved = start_moved
        self._on_start_followed = start_followed
        self._on_compacted = compacted
        self.closed = False
        self._new_files = False  # the directory has entries that a power cut may still take

    # --- durability

    def flush(self) -> None:
        if self.failure is not None:
            raise self.failure
        offset, segments = self.end_offset, self._unsynced()
        try:
            for segment in segments:
                segment.save_indexes()
                # The index of the active segment may lag behind: what it does not cover is scanned.
                segment.sync(SUFFIXES if segment.sealed else (LOG,))
            if self._new_files:
                _sync_directory(self.directory)
                self._new_files = False
        except OSError as error:
            self.failure = StorageError(f"cannot sync {self.directory}: {error.strerror}; the log is offline")
            raise self.failure from error
        self._unflushed_records = 0
        self.synced(offset, None)

    def flush_async(self, callback: FlushCallback | None = None) -> None:
        self._unflushed_records = 0
        if self.failure is None and self.durable_offset < self.end_offset:
            self.committer.submit(self, self._unsynced_files(), self.end_offset, callback)
        elif callback is not None:
            callback(self.failure)

    def synced(self, offset: int, error: StorageError | None) -> None:
        """Called by the committer, on its thread. After a failed sync nobody knows what is on disk: the log stops."""
        if error is not None:
            self.failure = error
        elif offset > self.durable_offset:
            self.durable_offset = offset

    def write_out(self) -> int:
        """Hand over to the operating system what a sync of the whole file system is to find; up to which offset."""
        for segment in self._unsynced():
            segment.save_indexes()
        return self.end_offset

    def synced_with_others(self, offset: int) -> None:
        """The file system was synced after `write_out`."""
        self._new_files = False
        self._unflushed_records = 0
        self.synced(offset, None)

    def _unsynced(self) -> list[LocalSegment]:
        return [segment for segment in self.segments if segment.next_offset > self.durable_offset]

    def _unsynced_files(self) -> list[str]:
        files = [self.directory] if self._new_files else []
        self._new_files = False
        for segment in self._unsynced():
            files += [segment.path(kind) for kind in (SUFFIXES if segment.sealed else (LOG,))]
        return files

    def warm(self, offset: int, max_bytes: int) -> Callable[[], None] | None:
        if not self.segments or not self.start_offset <= offset < self.end_offset:
            return None
        segment = self.segments[self._segment_slot(offset)]
        cold = segment.cold_range(offset, max_bytes)
        return None if cold is None else partial(read_through, segment.path(LOG), *cold)

    # --- segments

    def _create_segment(self, base_offset: int, now_ms: int) -> LocalSegment:
        segment = LocalSegment(
            self.directory,
            base_offset,
            handles=self.handles,
            config=self.config,
            created_ms=now_ms,
        )
        segment.create()
        self._new_files = True
        return segment

    def _seal(self, segment: Segment) -> None:
        assert isinstance(segment, LocalSegment)
        segment.seal()
        self.take_snapshot()
        self.committer.submit(self, self._unsynced_files(), segment.next_offset, None)

    def _remove(self, segment: Segment) -> None:
        assert isinstance(segment, LocalSegment)
        self.handles.forget(segment)
        segment.release()
        segment.rename(DELETED)
        self.committer.defer(segment.delete)
        self._remove_snapshot(segment.base_offset)

    # --- compaction

    def _create_cleaned(self, first: Segment) -> LocalSegment:
        segment = LocalSegment(
            self.directory,
            first.base_offset,
            handles=Handles(),
            config=self.config,
            created_ms=first.created_ms,
            suffix=CLEANED,
        )
        segment.delete()
        segment.create()
        return segment

    def _swap(self, group: list[Segment], cleaned: Segment) -> None:
        """Crash-safe: while .cleaned files exist the old segments count; once all are .swap the new one does."""
        assert isinstance(cleaned, LocalSegment)
        modified_ms = group[-1].last_modified_ms()
        os.utime(cleaned.path(LOG), (modified_ms / 1000, modified_ms / 1000))
        cleaned.rename(SWAP)
        for segment in group:
            assert isinstance(segment, LocalSegment)
            self.handles.forget(segment)
            segment.release()
            segment.rename(DELETED)
            self.committer.defer(segment.delete)
            if segment.base_offset != cleaned.base_offset:
                self._remove_snapshot(segment.base_offset)
        cleaned.rename("")
        cleaned.handles = self.handles
        self.committer.defer(partial(_sync_directory, self.directory))

    def _complete_cleaned(self, cleaned: Segment) -> None:
        assert isinstance(cleaned, LocalSegment)
        cleaned.seal()
        cleaned.sync()
        cleaned.release()

    def _discard_cleaned(self, cleaned: Segment) -> None:
        assert isinstance(cleaned, LocalSegment)
        cleaned.delete()

    def _compacted(self) -> None:
        self._on_compacted()

    # --- small files

    def take_snapshot(self, offset: int | None = None) -> None:
        """Keep the producers' state as of `offset`, or else of the end of the log. Where that fails it will be rebuilt
        from the records."""
        offset = self.end_offset if offset is None else offset
        if self.snapshots and self.snapshots[-1] >= offset:
            return
        try:
            path = f"{self.directory}/{file_name(offset)}{SNAPSHOT}"
            checkpoints.write_atomically(path, encode_snapshot(self.producers))
        except OSError:
            return
        self.snapshots.append(offset)

    def _remove_snapshot(self, offset: int) -> None:
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            try:
                os.unlink(f"{self.directory}/{file_name(offset)}{SNAPSHOT}")
            except OSError:
                pass

    def _save_epochs(self) -> None:
        path = f"{self.directory}/{checkpoints.LEADER_EPOCH_CHECKPOINT}"
        try:
            checkpoints.write_epochs(path, self.epochs.entries())
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}; {advice(error)}") from error

    def _start_moved(self) -> None:
        self._on_start_moved()

    def _start_followed(self) -> None:
        self._on_start_followed()

    # --- the end

    def close(self) -> None:
        """Bring everything to the disk and let go of it. A failed log is only let go of: recovery will look at it."""
        if self.closed:
            return
        self.closed = True
        try:
            if self.failure is None:
                if self.durable_offset < self.end_offset:
                    self.flush()
                elif self.segments:
                    self.active.save_indexes()
                if self.end_offset > self.start_offset or len(self.producers):
                    self.take_snapshot()
        finally:
            self.release()

    def release(self) -> None:
        """Close all files; whoever drops a log without `close` leaves it as a crash would."""
        for segment in self.segments:
            self.handles.forget(segment)
            segment.release()

    @property
    def active(self) -> LocalSegment:
        return self.segments[-1]


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
