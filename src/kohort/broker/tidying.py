"""Keeping the store small: what the journal holds becomes segments and manifests, and is then deleted.

    1. segments and a manifest are written, for every partition with something in old slots of the journal
    2. the journal says below which slot it may be deleted: a write that also says that nobody else leads by now
    3. slots, segments and manifests that nothing names any more are deleted

A step that fails is taken again later; one that was taken half leaves rubbish, never a gap.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.broker.proposals import Wish
from kohort.cluster import journal as journals
from kohort.cluster import manifests, names
from kohort.cluster.engine import Engine, EngineError
from kohort.cluster.manifests import Again, Draft, Fresh, Manifest, Part, Segment
from kohort.cluster.snapshots import Damaged
from kohort.cluster.state import Change, Status
from kohort.storage.cold_segment import BlockCache, ColdSegment, block_of
from kohort.storage.journal_log import JournalLog
from kohort.storage.memory_log import MemorySegment
from kohort.storage.segment import Segment as LogSegment

if TYPE_CHECKING:
    from kohort.broker.leading import Place
    from kohort.broker.membership import Membership

logger = logging.getLogger("kohort.cluster")

AGAIN_MS = 1_000
STORED_SOON_MS = 10
OLD_LIVES = 50
PIECE = 64 * 1024


class Drafted(NamedTuple):
    log: JournalLog
    sealed: list[LogSegment]
    draft: Draft


class Tidying:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._slots: int = membership.core.config["kohort.cluster.journal.objects"]
        self._fresh_limit: int = membership.core.config["kohort.cluster.cache.bytes"] // 4
        self._fresh_bytes = 0  # that were stored in the journal since the last manifests
        self._drafted: list[Drafted] = []  # when their last records are stored they can be written
        self._handed_over: dict[tuple[str, int, int], int] = {}  # and the first slot that others may need
        self._replaced: list[str] = []  # not named any more; to be deleted after another write to the journal
        self._released: list[tuple[int, list[str]]] = []  # the slot of that write, and what goes when it is stored
        self._deleted_below = 0
        self.has_word = False  # whether the journal has to say something although there may be nothing to store
        self._emptied: set[str] = set()
        self._due_ms = 0
        self.is_running = False
        self.is_writing = False  # a manifest, perhaps: it must not come when another leads

    def begin_life(self) -> None:
        """Of another journal."""
        self._handed_over.clear()
        self._replaced.clear()
        self._released.clear()
        self._deleted_below = 0
        self.has_word = False
        self._fresh_bytes = 0
        self._drafted = []

    def stored(self, size: int, now_ms: int) -> None:
        """So much more is in the journal, and in memory."""
        self._fresh_bytes += size
        if self._fresh_bytes >= self._fresh_limit:
            self._due_ms = min(self._due_ms, now_ms)

    def said(self, seq: int) -> None:
        """The journal says in this slot what it was to say."""
        self.has_word = False
        if self._replaced:
            self._released.append((seq, self._replaced))
            self._replaced = []

    def hand_over(self, place: Place, log: JournalLog) -> None:
        if log.first_seq is not None:
            self._handed_over[*place, log.epoch] = log.first_seq

    def next_deadline(self) -> int | None:
        return None if self.is_running else self._due_ms

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self._due_ms and not self.is_running

    def on_time(self, now_ms: int, logs: list[JournalLog]) -> None:
        if not self.is_due(now_ms):
            return
        self._due_ms = now_ms + AGAIN_MS
        journal = self._membership.journal
        if not journal.is_open:
            return
        if self._drafted:
            self._write_drafted(now_ms)
            return
        stored = journal.stored_seq
        if journal.said_trimmed > self._deleted_below or any(seq <= stored for seq, _ in self._released):
            self._delete(now_ms)
        elif (stored - journal.trimmed >= self._slots or self._fresh_bytes >= self._fresh_limit) and (
            dirty := [log for log in logs if log.first_seq is not None]
        ):
            self._write(dirty, now_ms)
        elif others := [log for log in logs if _is_due(log)]:
            self._write(others, now_ms)
        else:
            self._empty_old_journals()

    # ---- segments and manifests

    def _write(self, logs: list[JournalLog], now_ms: int) -> None:
        self._drafted = [self._draft(log, now_ms) for log in logs]
        self._write_drafted(now_ms)

    def _write_drafted(self, now_ms: int) -> None:
        """Once all that the manifests would say of producers is stored: it must not say more than the journals."""
        led = [row for row in self._drafted if row.log.failure is None]
        if any(log.durable_offset < draft.after.next_offset for log, _, draft in led):
            self._due_ms = now_ms + STORED_SOON_MS
            return
        self._drafted = []
        self._fresh_bytes = 0
        self.is_running = self.is_writing = True
        membership = self._membership
        engine, nonce, journal, cache = membership.engine, membership.nonce(), membership.journal, membership.cache
        membership.ask(
            lambda: engine.together([partial(_try_to_write, engine, row.draft, nonce, cache) for row in led]),
            lambda found, error, now_ms: self._written(journal, led, found, error, now_ms),
        )

    def _draft(self, log: JournalLog, now_ms: int) -> Drafted:
        before: Manifest = log.manifest or Manifest()
        number = (before.number if before.epoch == log.epoch else -1) + 1 + log.failed_manifests
        sealed = log.sealed(now_ms)
        pieces = [_piece(segment, log.start_offset) for segment in sealed]
        manifests.join_small(pieces, sum(s.size for s in sealed if isinstance(s, MemorySegment)))
        after = Manifest(log.epoch, number, log.stored_seq, log.start_offset, log.end_offset, log.first_dirty_offset)
        after.epochs, after.producers = log.epochs.entries(), log.producer_rows()
        log.was_compacted = False
        return Drafted(log, sealed, Draft(log.topic_id, log.partition, before, after, pieces))

    def _written(
        self,
        journal: Any,
        drafted: list[Drafted],
        found: list[Exception | None] | None,
        error: Exception | None,
        now_ms: int,
    ) -> None:
        self.is_running = self.is_writing = False
        if journal is not self._membership.journal or not journal.is_open:
            return
        errors = [error] * len(drafted) if found is None else found
        settled: list[Change] = []
        for (log, sealed, draft), failed in zip(drafted, errors, strict=True):
            if log.failure is not None:
                continue
            if failed is not None:
                logger.warning("the journal of %s-%d cannot be tidied yet: %s", log.topic, log.partition, failed)
                log.was_compacted = True  # whatever is there of it, begin anew
                log.failed_manifests += 1
                continue
            log.manifest, log.failed_manifests = draft.after, 0
            if log.use_segments(sealed, draft.after.segments, draft.after.next_offset, self._membership.cache):
                self._replaced += draft.replaced()
            else:
                draft.keep_all()  # it goes on with segments that the manifest has replaced
            log.first_seq = None if log.stored_seq <= draft.after.after else draft.after.after + 1
            if not log.is_settled:
                log.is_settled = True
                settled.append(
                    {"kind": "settled", "topic": log.topic_id, "partition": log.partition, "epoch": log.epoch}
                )
        if settled:
            self._membership.propose(Wish(settled), now_ms)
        self._trim()

    # ---- what may go

    def _trim(self) -> None:
        journal, state = self._membership.journal, self._membership.state
        first = journal.stored_seq
        for log in self._membership.leading.logs():
            if log.first_seq is not None:
                first = min(first, log.first_seq)
        for (topic_id, index, epoch), seq in list(self._handed_over.items()):
            topic = state.topics.get(topic_id)
            sources = topic.partitions[index].sources if topic is not None else []
            if any(source.journal == journal.journal and source.epoch == epoch for source in sources):
                first = min(first, seq)
            else:
                del self._handed_over[topic_id, index, epoch]
        journal.trimmed = max(journal.trimmed, first)
        self.has_word = True

    def _delete(self, now_ms: int) -> None:
        membership = self._membership
        journal, below = membership.journal, membership.journal.said_trimmed
        slots = [names.slot(journal.journal, seq) for seq in range(self._deleted_below, below)]
        released = [name for seq, some in self._released if seq <= journal.stored_seq for name in some]
        self._released = [row for row in self._released if row[0] > journal.stored_seq]
        self.is_running = True
        engine = membership.engine
        membership.ask(
            lambda: engine.delete_all(slots + released),
            lambda _, error, now_ms: self._deleted(journal, below, released, error),
        )

    def _deleted(self, journal: Any, below: int, released: list[str], error: Exception | None) -> None:
        self.is_running = False
        if journal is not self._membership.journal:
            return
        if error is None:
            self._deleted_below = max(self._deleted_below, below)
        elif released:
            self._released.append((-1, released))

    # ---- journals of lives that are over

    def _empty_old_journals(self) -> None:
        membership = self._membership
        state = membership.state
        if not state.live or state.live[0] != membership.node_id:
            return
        needed = {source.journal for _, _, partition in state.partitions() for source in partition.sources}
        old = [
            journal
            for broker in state.brokers.values()
            for life in range(max(1, broker.incarnation - OLD_LIVES), broker.incarnation + 1)
            if (journal := names.journal_id(broker.node_id, life)) not in needed | self._emptied
            and (life < broker.incarnation or broker.status is not Status.LIVE)
        ]
        if old:
            self.is_running = True
            self._emptied.add(old[0])
            engine, nonce = membership.engine, membership.nonce()
            membership.ask(lambda: empty(engine, old[0], nonce), self._was_emptied)

    def _was_emptied(self, _: Any, error: Exception | None, now_ms: int) -> None:
        self.is_running = False


def _is_due(log: JournalLog) -> bool:
    """Whether others still need old journals for it, or segments hold what compaction or retention has let go."""
    if not log.is_settled or log.was_compacted:
        return True
    manifest: Manifest | None = log.manifest
    return manifest is not None and any(row.next_offset <= log.start_offset for row in manifest.segments)


def _piece(segment: LogSegment, start_offset: int) -> Segment | Fresh | Again:
    if isinstance(segment, ColdSegment):
        row = segment.row
        assert isinstance(row, Segment)
        return row
    assert isinstance(segment, MemorySegment)
    parts = (Part(*row) for row in segment.pieces(start_offset, PIECE))
    return Fresh(parts, segment.first_timestamp, [list(txn) for txn in segment.aborted])


def _try_to_write(engine: Engine, draft: Draft, nonce: str, cache: BlockCache) -> Exception | None:
    """On another thread. What is written stays in memory as long as there is room: it is what consumers read next."""

    def wrote(row: Segment, data: bytes) -> None:
        for slot, block in enumerate(row.blocks):
            part = data[block.position : block.position + block.size]
            cache.put(row, slot, block_of(part, block.base_offset))

    try:
        manifests.write(engine, draft, nonce, wrote)
    except (EngineError, Damaged) as error:
        return error
    return None


def empty(engine: Engine, journal: str, nonce: str) -> None:
    """Of a life that is over, when nobody needs what it wrote; it is sealed once more where only a late seal was found,
    and all seals stay for ever."""
    if engine.list(names.journal_prefix(journal)):
        journals.seal(engine, journal, nonce)
        journals.delete_all_but_seals(engine, journal)
