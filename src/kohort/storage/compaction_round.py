"""A round of compaction over the segments of a log: what to clean, cleaning it aside, and the result to swap in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kohort.protocol.errors import KafkaError
from kohort.records.batch import BatchHeader, BatchTooLarge, read_header
from kohort.storage.compaction import Cleaner, LastOfProducer, LatestOffsets, Transactions
from kohort.storage.config import LogConfig
from kohort.storage.errors import StorageError
from kohort.storage.index import OFFSET_ENTRY_SIZE
from kohort.storage.log import AbortedTxn, Buffer, Compaction
from kohort.storage.segment import MAX_RELATIVE_OFFSET, Segment

CreateSegment = Callable[[Segment], Segment]
_WRITE_BYTES = 1024 * 1024


class CompactionRound(Compaction):
    """Planned from the owner's view of the log, so that `run` needs nothing but sealed segments."""

    def __init__(
        self,
        segments: Sequence[Segment],  # every sealed segment below upper_bound, clean ones too
        *,
        first_dirty_offset: int,
        upper_bound: int,
        now_ms: int,
        config: LogConfig,
        producers: dict[int, LastOfProducer],
        aborted: list[AbortedTxn],  # all that touch the segments, wherever their markers are
        create_segment: CreateSegment,
        complete_segment: Callable[[Segment], None],
        discard_segment: Callable[[Segment], None],
        max_keys: int,
    ) -> None:
        self.segments = list(segments)
        self._readers = {segment.base_offset: segment.reader() for segment in segments}
        self.upper_bound = upper_bound
        self.now_ms = now_ms
        self.config = config
        self.producers = producers
        self.aborted = aborted
        self.latest = LatestOffsets(first_dirty_offset, max_keys)
        self.results: list[tuple[list[Segment], Segment]] = []
        self._create_segment = create_segment
        self._complete_segment = complete_segment
        self._discard_segment = discard_segment

    @property
    def cleaned_to(self) -> int:
        """Where the next round begins."""
        return self.latest.end_offset

    def run(self) -> None:
        try:
            self._run()
        except (OSError, KafkaError) as error:
            for _, cleaned in self.results:
                self._discard_segment(cleaned)
            self.results.clear()
            raise StorageError(f"compaction stopped, the log is as it was: {error}") from error
        finally:
            for reader in self._readers.values():
                if reader not in self.segments:
                    reader.release()

    def _run(self) -> None:
        self._map_keys()
        cleaner = Cleaner(
            self.latest,
            upper_bound=self.upper_bound,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            producers=self.producers,
        )
        cleaner.transactions.expect(self.aborted)
        for group in self._groups([s for s in self.segments if s.base_offset < self.cleaned_to]):
            self._clean_group(cleaner, group)

    def _map_keys(self) -> None:
        start = self.latest.start_offset
        transactions = Transactions()
        dirty = [segment for segment in self.segments if segment.next_offset > start]
        transactions.expect(txn for txn in self.aborted if txn.last_offset >= start)
        for segment in dirty:
            for batch in self._readers[segment.base_offset].batches(max(start, segment.base_offset)):
                if not self.latest.add(batch, transactions):
                    if self.latest.end_offset == start:
                        raise BatchTooLarge(f"one batch at offset {start} has more than {self.latest.max_keys} keys")
                    return
            self.latest.end_offset = max(self.latest.end_offset, segment.next_offset)
        self.latest.end_offset = max(self.latest.end_offset, self.upper_bound)

    def _groups(self, segments: list[Segment]) -> list[list[Segment]]:
        """Neighbours that together still make a legal segment are cleaned into one."""
        groups: list[list[Segment]] = []
        size = 0
        max_bytes = min(
            self.config.segment_bytes,
            self.config.segment_index_bytes // OFFSET_ENTRY_SIZE * max(self.config.index_interval_bytes, 1),
        )
        for segment in segments:
            fits = groups and size + segment.size <= max_bytes
            if fits and segment.next_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET:
                groups[-1].append(segment)
                size += segment.size
            else:
                groups.append([segment])
                size = segment.size
        return groups

    def _clean_group(self, cleaner: Cleaner, group: list[Segment]) -> None:
        cleaned = self._create_segment(group[0])
        self.results.append((group, cleaned))
        output: list[Buffer] = []
        pending = 0
        for segment in group:
            for batch in self._readers[segment.base_offset].batches(segment.base_offset):
                kept = cleaner.clean(batch)
                if kept is not None:
                    output.append(kept)
                    pending += len(kept)
                if pending >= _WRITE_BYTES:
                    _write(cleaned, output, pending)
                    output, pending = [], 0
        if output:
            _write(cleaned, output, pending)
        for txn in cleaner.transactions.kept_aborted:
            cleaned.add_aborted(txn)
        cleaner.transactions.kept_aborted.clear()
        self._complete_segment(cleaned)


def _write(segment: Segment, batches: list[Buffer], size: int) -> None:
    headers: list[BatchHeader] = [read_header(batch) for batch in batches]
    segment.write(batches, size)
    for header in headers:
        if segment.first_timestamp < 0:
            segment.first_timestamp = header.max_timestamp
        segment.added(header.last_offset, header.size, header.max_timestamp)
        segment.next_offset = header.next_offset


def aborted_within(segments: Iterable[Segment], from_offset: int, to_offset: int) -> list[AbortedTxn]:
    """Aborted transactions that overlap the range; a marker may lie in a later segment than its records."""
    found: list[AbortedTxn] = []
    for segment in segments:
        if segment.next_offset <= from_offset:
            continue
        for txn in segment.aborted:
            if txn.last_offset >= from_offset and txn.first_offset < to_offset:
                found.append(txn)
            if txn.last_stable_offset >= to_offset:
                return found
    return found
