"""What a partition has outside of journals: segments of its batches, and the manifest that names them.

A manifest of epoch e covers all that was written in earlier epochs, and of the journal of epoch e the slots up to
`after`. The last one counts: of the highest epoch, and of that the highest number. Whatever a manifest no longer names
is deleted by its leader after a write to its own journal, which says that nobody else leads by then.

A manifest says all that a leader must know to serve: where in which segment what begins, the epochs, the producers. So
segments are read when somebody asks for their records, in blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from zlib import crc32

from kohort.cluster import names
from kohort.cluster.engine import Engine, EngineError, Missing, claim
from kohort.cluster.snapshots import Damaged

FORMAT = 2
LARGE_SEGMENT = 8 * 1024 * 1024
"""A segment of that size is written once; smaller ones are joined with what follows."""
BLOCK = 512 * 1024
"""What is read at once, or a batch where that is larger."""


class Block(NamedTuple):
    """Whole batches, of offsets not below `base_offset`."""

    base_offset: int
    position: int
    size: int
    max_timestamp: int
    checksum: int


class Segment(NamedTuple):
    name: str
    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    blocks: Sequence[Block]
    aborted: Sequence[Sequence[int]]
    """Of transactions that were aborted: producer id, first offset, offset of the marker, last stable offset."""


@dataclass(slots=True)
class Manifest:
    epoch: int = -1
    number: int = -1
    after: int = -1
    start_offset: int = 0
    next_offset: int = 0
    first_dirty_offset: int = 0
    segments: list[Segment] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    producers: list[Any] = field(default_factory=list)
    """As they are at `next_offset`; what a row means is the log's business."""


class Part(NamedTuple):
    """Bytes of whole batches that are to be in a segment."""

    views: Sequence[Any]
    base_offset: int
    next_offset: int
    max_timestamp: int


class Fresh(NamedTuple):
    """Records that no segment has."""

    parts: Iterable[Part]
    first_timestamp: int
    aborted: Sequence[Sequence[int]]


class Again(NamedTuple):
    """A small segment, whose records go into a larger one."""

    segment: Segment


@dataclass(slots=True)
class Draft:
    """A manifest on its way: `pieces` are the segments that stay and what is to be written, by offset."""

    topic_id: str
    partition: int
    before: Manifest
    after: Manifest
    pieces: list[Segment | Fresh | Again]

    def replaced(self) -> list[str]:
        """What is not needed any more once the new manifest is known to be the last."""
        names_now = {row.name for row in self.after.segments}
        gone = [row.name for row in self.before.segments if row.name not in names_now]
        if self.before.number >= 0:
            gone.append(names.manifest(self.topic_id, self.partition, self.before.epoch, self.before.number))
        return gone

    def keep_all(self) -> None:
        """Nothing is deleted yet: for whoever writes the next manifest that one replaces it all."""
        names_now = {row.name for row in self.after.segments}
        self.after.segments = self.after.segments + [row for row in self.before.segments if row.name not in names_now]


def join_small(pieces: list[Segment | Fresh | Again], fresh_bytes: int) -> None:
    """Small segments before what is new are written again with it, where they are not much larger: so there are few of
    them, and no record is written often."""
    size = fresh_bytes
    for at in range(len(pieces) - 1, -1, -1):
        piece = pieces[at]
        if isinstance(piece, Segment):
            if piece.size >= LARGE_SEGMENT or piece.size > 2 * size:
                return
            pieces[at] = Again(piece)
            size += piece.size


Wrote = Callable[[Segment, bytes], None]


class _Writer:
    """Cuts what comes into segments, and these into blocks."""

    def __init__(self, engine: Engine, draft: Draft, nonce: str, wrote: Wrote | None) -> None:
        self._engine = engine
        self._draft = draft
        self._nonce = nonce
        self._wrote = wrote
        self.rows: list[Segment] = []
        self._parts: list[bytes] = []
        self._blocks: list[Block] = []
        self._block: list[Any] = []
        self._block_size = 0
        self._block_of = (0, -1)  # base offset, newest timestamp
        self._size = 0
        self._next_offset = 0
        self._first_timestamp = -1
        self._aborted: list[Sequence[int]] = []
        self._written = 0

    def keep(self, row: Segment) -> None:
        self.cut()
        self.rows.append(row)

    def add(self, part: Part) -> None:
        if self._size + self._block_size >= LARGE_SEGMENT:
            self.cut()
        base_offset, newest = self._block_of if self._block else (part.base_offset, -1)
        self._block_of = (base_offset, max(newest, part.max_timestamp))
        self._block += part.views
        self._block_size += sum(map(len, part.views))
        self._next_offset = part.next_offset
        if self._block_size >= BLOCK:
            self._cut_block()

    def describe(self, first_timestamp: int, aborted: Sequence[Sequence[int]]) -> None:
        """Of what comes next."""
        if not self._size and not self._block:
            self._first_timestamp = first_timestamp
        self._aborted += aborted

    def _cut_block(self) -> None:
        data = b"".join(self._block)
        base_offset, newest = self._block_of
        self._blocks.append(Block(base_offset, self._size, len(data), newest, crc32(data)))
        self._parts.append(data)
        self._size += len(data)
        self._block, self._block_size = [], 0

    def cut(self) -> None:
        if self._block:
            self._cut_block()
        if not self._blocks:
            return
        draft, before = self._draft, self.rows[-1].next_offset if self.rows else self._draft.after.start_offset
        base_offset = min(before, self._blocks[0].base_offset)
        nonce = f"{self._nonce}-{self._written}"
        name = names.segment(draft.topic_id, draft.partition, base_offset, draft.after.epoch, nonce)
        data = b"".join(self._parts)
        aborted = [txn for txn in self._aborted if txn[2] < self._next_offset]
        row = Segment(name, base_offset, self._next_offset, self._size, self._first_timestamp, self._blocks, aborted)
        claim(self._engine, name, data)
        if self._wrote is not None:
            self._wrote(row, data)
        self.rows.append(row)
        self._written += 1
        self._aborted = [txn for txn in self._aborted if txn[2] >= self._next_offset]
        self._first_timestamp = max((block.max_timestamp for block in self._blocks), default=-1)
        self._parts, self._blocks, self._size = [], [], 0


def write(engine: Engine, draft: Draft, nonce: str, wrote: Wrote | None = None) -> Draft:
    """First the segments, then the manifest that names them. `wrote` is told of each new segment."""
    writer = _Writer(engine, draft, nonce, wrote)
    for piece in draft.pieces:
        if isinstance(piece, Again):
            piece = _read_again(engine, piece.segment)
        if isinstance(piece, Segment):
            writer.keep(piece)
            continue
        writer.describe(piece.first_timestamp, piece.aborted)
        for part in piece.parts:
            writer.add(part)
    writer.cut()
    manifest = draft.after
    manifest.segments = writer.rows
    name = names.manifest(draft.topic_id, draft.partition, manifest.epoch, manifest.number)
    document = {"format": FORMAT, "nonce": nonce} | {row.name: getattr(manifest, row.name) for row in fields(manifest)}
    if claim(engine, name, json.dumps(document, separators=(",", ":")).encode()) is not None:
        raise EngineError(f"{name} was written by another")
    return draft


def _read_again(engine: Engine, row: Segment) -> Fresh | Segment:
    """Its blocks become part of another segment; where it is not what was written it stays, and whoever reads it is
    told."""
    try:
        data = engine.get(row.name)
    except Missing:
        return row
    ends = [block.base_offset for block in row.blocks[1:]] + [row.next_offset]
    parts = []
    for block, end in zip(row.blocks, ends, strict=True):
        part = data[block.position : block.position + block.size]
        if len(part) != block.size or crc32(part) != block.checksum:
            return row
        parts.append(Part([part], block.base_offset, end, block.max_timestamp))
    return Fresh(parts, row.first_timestamp, row.aborted)


def last(engine: Engine, topic_id: str, partition: int) -> Manifest:
    """The one that counts; an empty one where there is none."""
    for name in reversed(engine.list(names.manifests(topic_id, partition))):
        try:
            data = engine.get(name)
        except Missing:
            continue
        return _decode(name, data)
    return Manifest()


def _decode(name: str, data: bytes) -> Manifest:
    try:
        document = json.loads(data)
        if document.pop("format") != FORMAT:
            raise Damaged(f"{name} has another format: use the version of kohort that wrote it")
        del document["nonce"]
        document["segments"] = [_segment(*row) for row in document["segments"]]
        document["epochs"] = [(epoch, offset) for epoch, offset in document["epochs"]]
        return Manifest(**document)
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{name} is damaged: restore it from a copy of the store") from None


def _segment(
    name: str, base: int, next_offset: int, size: int, first: int, blocks: list[Any], aborted: list[Any]
) -> Segment:
    return Segment(name, base, next_offset, size, first, [Block(*row) for row in blocks], aborted)
