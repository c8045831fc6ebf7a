"""What a partition has outside of journals: segments of its batches, and the manifest that names them.

A manifest of epoch e covers all that was written in earlier epochs, and of the journal of epoch e the slots up to
`after`. The last one counts: of the highest epoch, and of that the highest number. Whatever a manifest no longer names
is deleted by its leader after a write to its own journal, which says that nobody else leads by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from kohort.cluster import names
from kohort.cluster.engine import Engine, EngineError, Missing, claim
from kohort.cluster.snapshots import Damaged
from kohort.cluster.state import FORMAT

LARGE_SEGMENT = 8 * 1024 * 1024
"""A segment of that size is written once; smaller ones are joined with what follows."""


class Segment(NamedTuple):
    name: str
    base_offset: int
    next_offset: int
    size: int


@dataclass(slots=True)
class Manifest:
    epoch: int = -1
    number: int = -1
    after: int = -1
    start_offset: int = 0
    next_offset: int = 0
    segments: list[Segment] = field(default_factory=list)

    def kept(self, start_offset: int, all_anew: bool) -> list[Segment]:
        """The segments that another manifest can go on naming: the rest is written anew, with what follows."""
        kept = [] if all_anew else [row for row in self.segments if row.next_offset > start_offset]
        while kept and kept[-1].size < LARGE_SEGMENT:
            kept.pop()
        return kept


@dataclass(slots=True)
class Draft:
    """A manifest on its way, with the bytes of its new segments."""

    topic_id: str
    partition: int
    before: Manifest
    after: Manifest
    parts: list[Any]

    def replaced(self) -> list[str]:
        """What is not needed any more once the new manifest is known to be the last."""
        names_now = {row.name for row in self.after.segments}
        gone = [row.name for row in self.before.segments if row.name not in names_now]
        if self.before.number >= 0:
            gone.append(names.manifest(self.topic_id, self.partition, self.before.epoch, self.before.number))
        return gone


def write(engine: Engine, draft: Draft, nonce: str) -> Draft:
    """First the segments, then the manifest that names them."""
    manifest, kept = draft.after, draft.after.segments
    offset = kept[-1].next_offset if kept else manifest.start_offset
    for number, (data, next_offset) in enumerate(_chunks(draft.parts, manifest.next_offset)):
        name = names.segment(draft.topic_id, draft.partition, offset, manifest.epoch, f"{nonce}-{number}")
        claim(engine, name, data)
        kept.append(Segment(name, offset, next_offset, len(data)))
        offset = next_offset
    document = {"format": FORMAT, "nonce": nonce, **asdict(manifest)}
    name = names.manifest(draft.topic_id, draft.partition, manifest.epoch, manifest.number)
    if claim(engine, name, json.dumps(document).encode()) is not None:
        raise EngineError(f"{name} was written by another")
    return draft


def _chunks(parts: Sequence[Any], next_offset: int) -> Iterator[tuple[bytes, int]]:
    """Parts are whole batches; each is a (bytes, next offset), the last reaches `next_offset`."""
    gathered: list[Any] = []
    size = 0
    for number, (data, end) in enumerate(parts):
        gathered.append(data)
        size += len(data)
        if size >= LARGE_SEGMENT or number == len(parts) - 1:
            yield b"".join(gathered), end if number < len(parts) - 1 else next_offset
            gathered, size = [], 0


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
        document["segments"] = [Segment(*row) for row in document["segments"]]
        return Manifest(**document)
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{name} is damaged: restore it from a copy of the store") from None


def read(engine: Engine, manifest: Manifest) -> list[bytes]:
    """The bytes of all segments."""
    found = []
    for row in manifest.segments:
        try:
            data = engine.get(row.name)
        except Missing:
            raise EngineError(f"{row.name} is named by a manifest and gone") from None
        if len(data) != row.size:
            raise Damaged(f"{row.name} has {len(data)} bytes, not {row.size}: restore it from a copy of the store")
        found.append(data)
    return found


def empty_journal(engine: Engine, journal: str, first_seal: int) -> None:
    """Delete what a journal that is over held; its seal stays for ever, so that its owner never goes on."""
    for name in engine.list(names.journal_prefix(journal)):
        if names.number(name) != first_seal:
            engine.delete(name)
