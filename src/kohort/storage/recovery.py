"""Opening the log of a directory: leftovers of a crash are resolved, a torn tail is cut, producers are rebuilt.

After a clean shutdown nothing is scanned. Otherwise every segment from the recovery point on is read: batches that are
whole, in order and have the right CRC stay, and so do those behind one that is not; of the segments before, each is
asked where it ends. What is not there any more is said with its offsets, and no offset is given to two records.
"""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from pathlib import Path
from struct import error as struct_error
from typing import NamedTuple

from kohort.records.batch import RecordsError
from kohort.storage import checkpoints
from kohort.storage.epochs import LeaderEpochs
from kohort.storage.inventory import Inventory, Lost
from kohort.storage.local_log import SNAPSHOT, LocalLog
from kohort.storage.local_segment import LocalSegment
from kohort.storage.mending import goes_on, good_header, keep_copy
from kohort.storage.producers import AppendedBatch, ProducerStates, decode_snapshot
from kohort.storage.segment import MAX_RELATIVE_OFFSET
from kohort.storage.segment_files import CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, file_name

logger = logging.getLogger(__name__)

_DEEPEN_BYTES = 1024 * 1024
_COORDINATORS = "__"
"""The topics of coordinators keep their holes: half of what a group has committed is not to be taken for all of it."""


class Checkpoint(NamedTuple):
    """What the store remembers of a log outside its directory."""

    recovery_point: int = 0
    start_offset: int = 0
    first_dirty_offset: int = 0


def load(
    log: LocalLog, checkpoint: Checkpoint, *, clean: bool, now_ms: int, inventory: Inventory | None = None
) -> list[Lost]:
    """Fill a new LocalLog from its directory. Returns what was there once and is not there now: after a clean stop by
    its `inventory`, after a crash (then the inventory is an older one) by the checkpoints and what segments hold."""
    names, deleted = _list_files(log.directory)
    _finish_swaps(log, names)
    log.segments = _open_segments(log, names)
    log.snapshots = sorted(_offset_of(name) for name in names if name.endswith(SNAPSHOT))
    log.epochs = LeaderEpochs(checkpoints.read_epochs(f"{log.directory}/{checkpoints.LEADER_EPOCH_CHECKPOINT}"))
    before = log.epochs.entries()
    lost: list[Lost] = []
    if not clean:
        had_to = checkpoint.recovery_point
        lost += [] if deleted else _missing_first(log, checkpoint, inventory)
    else:
        had_to = 0 if inventory is None else inventory.end_offset
        lost += [] if inventory is None else _compare(log, inventory)
    is_sound = clean and _tail_is_sound(log)
    recovered_from = None if is_sound else _recover_segments(log, checkpoint, lost, after_crash=not clean)
    _set_offsets(log, checkpoint, is_sound)
    lost += _go_on_at(log, had_to)
    log.epochs.truncate_from_end(log.end_offset + 1)  # an epoch may have begun without a record
    log.epochs.truncate_from_start(log.start_offset)
    if log.epochs.entries() != before:
        log._save_epochs()
    _load_producers(log, recovered_from, is_sound)
    log.producers.expire(now_ms, log.producer_expiration_ms)
    log.release()
    return _said(log, lost)


def _missing_first(log: LocalLog, checkpoint: Checkpoint, inventory: Inventory | None) -> list[Lost]:
    """What retention takes moves the start of the log, which is noted; an older inventory may know better."""
    start = max(checkpoint.start_offset, min(inventory.sizes, default=0) if inventory is not None else 0)
    first = log.segments[0].base_offset if log.segments else start
    return [Lost(start, first, f"nothing is there before {file_name(first)}{LOG}")] if first > start else []


def _compare(log: LocalLog, inventory: Inventory) -> list[Lost]:
    """Segments that have gone or changed since the log was closed. Of one that changed the whole batches stay."""
    lost: list[Lost] = []
    there = {segment.base_offset: segment for segment in log.segments}
    ends = [*sorted(inventory.sizes), inventory.end_offset]
    for base, end in pairwise(ends):
        segment = there.get(base)
        if segment is None:
            lost.append(Lost(base, end, f"{file_name(base)}{LOG} is missing"))
        elif segment.size != inventory.sizes[base]:
            had = segment.size
            holes = _recover_segment(log, segment, end)
            reason = f"{file_name(base)}{LOG} has {had} bytes and had {inventory.sizes[base]}"
            lost += holes
            if segment.next_offset < end:
                lost.append(Lost(segment.next_offset, end, reason))
            elif not holes:
                logger.warning("%s-%d: nothing is lost, but %s", log.topic, log.partition, reason)
    for segment, following in pairwise(log.segments):
        segment.next_offset = following.base_offset
    return [gap for gap in lost if gap.end > gap.start]


def _go_on_at(log: LocalLog, end_offset: int) -> list[Lost]:
    """A log that ends before it did goes on where it ended: no offset is given to two records."""
    before = log.end_offset
    if before >= end_offset:
        return []
    log.end_offset = log.durable_offset = end_offset
    if log.segments:
        log.active.next_offset = end_offset
        log.active.full = True
    else:
        log.start_offset = end_offset
    return [Lost(before, end_offset, "the end of the log is missing")]


def _said(log: LocalLog, lost: list[Lost]) -> list[Lost]:
    """Each gap once, in the log."""
    gaps: list[Lost] = []
    for gap in sorted(lost):
        if not gaps or gap.end > gaps[-1].end:
            gaps.append(gap if not gaps or gap.start >= gaps[-1].end else gap._replace(start=gaps[-1].end))
    for gap in gaps:
        logger.error("%s-%d: %s; what is before and behind them is served", log.topic, log.partition, gap)
    return gaps


def _tail_is_sound(log: LocalLog) -> bool:
    """Where the log ends; False where somebody has changed it since it was closed."""
    try:
        if log.segments:
            log.active.scan_tail()
    except (RecordsError, struct_error) as error:
        logger.warning("%s-%d: was closed cleanly but is damaged: %s", log.topic, log.partition, error)
        return False
    return True


def _offset_of(name: str) -> int:
    return int(name[:20])


def _list_files(directory: str) -> tuple[dict[str, int], bool]:
    """File names and sizes; temporary files of a crash are removed. And whether there were segments among these, which
    were to be deleted."""
    names: dict[str, int] = {}
    deleted = False
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((DELETED, ".tmp")):
                deleted = deleted or entry.name.endswith(LOG + DELETED)
                os.unlink(entry.path)
            elif entry.name[:20].isdigit():
                names[entry.name] = entry.stat().st_size if LOG in entry.name else 0
    return names, deleted


def _finish_swaps(log: LocalLog, names: dict[str, int]) -> None:
    """A compaction was cut short: undo it while .cleaned files are left, complete it once all are .swap."""
    cleaned = [name for name in names if name.endswith(CLEANED)]
    swaps = [name for name in names if name.endswith(SWAP)]
    if not cleaned and not swaps:
        return
    undone_from = min(map(_offset_of, cleaned), default=None)
    for name in cleaned + [name for name in swaps if undone_from is not None and _offset_of(name) >= undone_from]:
        os.unlink(f"{log.directory}/{name}")
        del names[name]
    for name in sorted(name for name in names if name.endswith(LOG + SWAP)):
        _replace_by_swap(log, names, _offset_of(name))
    for name in [name for name in names if name.endswith(SWAP)]:
        final = name.removesuffix(SWAP)
        os.rename(f"{log.directory}/{name}", f"{log.directory}/{final}")
        names[final] = names.pop(name)


def _replace_by_swap(log: LocalLog, names: dict[str, int], base_offset: int) -> None:
    swap = LocalSegment.existing(
        log.directory,
        base_offset,
        names[file_name(base_offset) + LOG + SWAP],
        handles=log.handles,
        config=log.config,
        suffix=SWAP,
    )
    swap.scan_tail()
    log.handles.forget(swap)
    swap.release()
    end = max(swap.next_offset, base_offset + 1)
    for name in list(names):
        if name.endswith((LOG, INDEX, TIME_INDEX, TXN_INDEX)) and base_offset <= _offset_of(name) < end:
            os.unlink(f"{log.directory}/{name}")
            del names[name]


def _open_segments(log: LocalLog, names: dict[str, int]) -> list[LocalSegment]:
    segments = [
        LocalSegment.existing(
            log.directory,
            _offset_of(name),
            names[name],
            handles=log.handles,
            config=log.config,
        )
        for name in sorted(names)
        if name.endswith(LOG)
    ]
    bases = {segment.base_offset for segment in segments}
    for name in names:
        if name.endswith((INDEX, TIME_INDEX, TXN_INDEX)) and _offset_of(name) not in bases:
            os.unlink(f"{log.directory}/{name}")
    for segment, following in pairwise(segments):
        segment.next_offset = following.base_offset
        segment.sealed = True
    return segments


def _recover_segments(log: LocalLog, checkpoint: Checkpoint, lost: list[Lost], *, after_crash: bool) -> int | None:
    """Check everything that may not have reached the disk, and after a crash where the segments before it end; the base
    offset of the first segment whose every batch was looked at."""
    segments = log.segments
    point = checkpoint.recovery_point
    first = next((i for i, s in enumerate(segments) if i + 1 == len(segments) or s.next_offset > point), None)
    if first is None:
        return None
    for i in range(0 if after_crash else first, len(segments)):
        segment, is_last = segments[i], i + 1 == len(segments)
        end = segment.base_offset + MAX_RELATIVE_OFFSET if is_last else segments[i + 1].base_offset
        had = segment.size
        is_whole = i < first and _ends_with_a_batch(segment)
        if not is_whole:
            lost += _recover_segment(log, segment, end)
        if is_last:
            break
        may_be_compacted = log.config.compact or end <= checkpoint.first_dirty_offset
        if segment.next_offset < end and after_crash and (segment.size < had or not may_be_compacted):
            lost.append(
                Lost(segment.next_offset, end, f"nothing follows them in {file_name(segment.base_offset)}{LOG}")
            )
        segment.next_offset = end
        if not is_whole:
            segment.save_indexes()
    return segments[first].base_offset


def _ends_with_a_batch(segment: LocalSegment) -> bool:
    try:
        segment.scan_tail()
    except (RecordsError, struct_error):
        return False
    return True


def _recover_segment(log: LocalLog, segment: LocalSegment, limit: int) -> list[Lost]:
    """Keep the good batches with offsets below `limit`. What good ones follow is a hole, the last one a torn end."""
    size = segment.size
    view = segment.view(0, size) if size else memoryview(b"")
    segment.reset_indexes()
    segment.reset_aborted()
    segment.size = 0
    data_directory = Path(log.directory).parent
    holes: list[Lost] = []
    kept: list[memoryview] = []
    position = begin = 0
    next_offset = segment.base_offset
    while position < size:
        header, reason = good_header(view, position, next_offset, limit)
        if header is None or reason:
            end, following = goes_on(view, position, next_offset, limit, header)
            if following is None:
                break
            name = f"{file_name(segment.base_offset)}{LOG}"
            holes.append(Lost(next_offset, following.base_offset, f"{reason} (byte {position} of {name})"))
            if log.topic.startswith(_COORDINATORS):
                segment.size += end - position
            else:
                keep_copy(data_directory, Path(log.directory).name, segment.base_offset, position, view[position:end])
                kept.append(view[begin:position])
                begin = end
            position, header = end, following
        if segment.first_timestamp < 0:
            segment.first_timestamp = header.max_timestamp
        if header.partition_leader_epoch > log.epochs.latest:
            log.epochs.assign(header.partition_leader_epoch, header.base_offset)
        segment.added(header.last_offset, header.size, header.max_timestamp)
        position += header.size
        next_offset = header.next_offset
    segment.next_offset = next_offset
    if kept:
        segment.keep_only([*kept, view[begin:position]])
    elif position < size:
        segment.truncate(position, next_offset)
    if position < size:
        logger.warning(
            "%s-%d: cut %d bytes after offset %d that a crash left incomplete",
            log.topic, log.partition, size - position, next_offset,
        )  # fmt: skip
    return [hole for hole in holes if hole.end > hole.start]


def _set_offsets(log: LocalLog, checkpoint: Checkpoint, clean: bool) -> None:
    log.end_offset = log.segments[-1].next_offset if log.segments else checkpoint.start_offset
    first = log.segments[0].base_offset if log.segments else log.end_offset
    log.start_offset = max(checkpoint.start_offset, first)
    if log.start_offset > log.end_offset:
        logger.warning(
            "%s-%d: the log ends before its start %d: starting over there", log.topic, log.partition, log.start_offset
        )
        for segment in log.segments:
            segment.delete()
        log.segments.clear()
        log.end_offset = log.start_offset
    log.durable_offset = log.end_offset if clean else min(checkpoint.recovery_point, log.end_offset)
    log.first_dirty_offset = max(checkpoint.first_dirty_offset, log.start_offset)


def _load_producers(log: LocalLog, recovered_from: int | None, clean: bool) -> None:
    """From the newest snapshot that can be trusted, then from the records after it."""
    limit = log.end_offset if recovered_from is None else recovered_from
    for offset in [offset for offset in log.snapshots if offset > limit]:
        log._remove_snapshot(offset)
    position = log.segments[0].base_offset if log.segments else log.start_offset
    for offset in reversed(list(log.snapshots)):
        data = checkpoints.read_file(f"{log.directory}/{file_name(offset)}{SNAPSHOT}")
        try:
            log.producers = decode_snapshot(data or b"")
            position = offset
            break
        except ValueError:
            logger.warning("%s-%d: ignoring the damaged producer snapshot at %d", log.topic, log.partition, offset)
            log._remove_snapshot(offset)
    else:
        if clean:
            return  # as Kafka: a clean log without a snapshot has no producers
    _replay(log, position)
    if clean and len(log.producers):
        _deepen(log)
    _remove_stray_snapshots(log)


def _replay(log: LocalLog, position: int) -> None:
    """Rebuild from `position` on; a segment needs its snapshot for the day when those before it are deleted."""
    for segment in log.segments:
        if segment.base_offset > position:
            log.take_snapshot(segment.base_offset)
        if segment.next_offset > position and segment.size:
            try:
                for buf, pos, header in segment.batches(max(position, segment.base_offset)):
                    if header.producer_id >= 0:
                        log._track(segment, header, header.base_offset, buf, pos)
            except (RecordsError, struct_error) as error:
                logger.error("%s-%d: producers behind a hole are not known: %s", log.topic, log.partition, error)


def _deepen(log: LocalLog) -> None:
    """A snapshot holds one batch a producer, but a client may retry any of its last five: look at the tail for them."""
    segment = log.active
    tail = segment.index.floor_position(max(segment.size - _DEEPEN_BYTES, 0))
    seen = ProducerStates()
    for _, _, header in segment._batches_within(tail, segment.size):
        if header.producer_id >= 0 and not header.is_control:
            seen.appended(header, header.base_offset)
    for state in log.producers:
        recent = seen.get(state.producer_id)
        if recent is not None and state.batches and recent.epoch == state.epoch:
            batches: list[AppendedBatch] = list(recent.batches)
            if batches[-1].last_offset == state.batches[-1].last_offset:
                state.batches.clear()
                state.batches.extend(batches)


def _remove_stray_snapshots(log: LocalLog) -> None:
    """Snapshots belong to the start of a segment; of the others only the newest is of use."""
    bases = {segment.base_offset for segment in log.segments}
    for offset in log.snapshots[:-1]:
        if offset not in bases:
            log._remove_snapshot(offset)
