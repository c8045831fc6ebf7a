"""One object of a broker's journal: a group commit of all partitions that it leads, or the seal that ends the journal.

    magic, size of the head, checksum of all that follows | head as JSON | record batches

The head has a nonce, the slot, below which slot the owner may have deleted what was there (`trimmed`), up to which slot
it has acknowledged what is there (`stored`), and rows of (topic id, partition, leader epoch, base offset, next offset,
bytes), and of (topic id, partition, epoch, start offset).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from kohort.cluster import names
from kohort.cluster.engine import Engine, Missing, claim
from kohort.cluster.snapshots import Damaged

_MAGIC = b"KJ01"
_HEAD = Struct(">4sII")


class Entry(NamedTuple):
    """Batches of one partition."""

    topic_id: str
    partition: int
    epoch: int
    base_offset: int
    next_offset: int
    data: bytes | memoryview


class Start(NamedTuple):
    """The log of a partition begins here from now on."""

    topic_id: str
    partition: int
    epoch: int
    start_offset: int


class Gone(Damaged):
    """A slot of a journal is not there. Or nobody needs it any more, and the meta log tells so soon."""


class Slot(NamedTuple):
    seq: int
    is_seal: bool
    trimmed: int
    stored: int
    entries: list[Entry]
    starts: list[Start]


def encode(
    seq: int,
    nonce: str,
    *,
    entries: Sequence[tuple[str, int, int, int, int, Sequence[Any]]] = (),
    starts: Sequence[Start] = (),
    trimmed: int = 0,
    stored: int = -1,
    seal: bool = False,
) -> bytes:
    """The parts of an entry are joined here, so that this can be done on another thread."""
    rows: list[list[Any]] = []
    parts: list[Any] = []
    for topic_id, partition, epoch, base_offset, next_offset, views in entries:
        rows.append([topic_id, partition, epoch, base_offset, next_offset, sum(map(len, views))])
        parts += views
    said = {"nonce": nonce, "seq": seq, "seal": seal, "trimmed": trimmed, "stored": stored}
    head = json.dumps(said | {"entries": rows, "starts": list(starts)}, separators=(",", ":")).encode()
    body = b"".join([head, *parts])
    return _HEAD.pack(_MAGIC, len(head), crc32(body)) + body


def decode(name: str, data: bytes) -> Slot:
    try:
        magic, head_size, checksum = _HEAD.unpack_from(data)
        body = memoryview(data)[_HEAD.size :]
        if magic != _MAGIC or crc32(body) != checksum:
            raise ValueError
        head = json.loads(bytes(body[:head_size]))
    except Exception:
        raise Damaged(
            f"{name} is damaged: restore it from a copy of the store before its partitions can be led"
        ) from None
    entries, pos = [], head_size
    for topic_id, partition, epoch, base_offset, next_offset, size in head["entries"]:
        entries.append(Entry(topic_id, partition, epoch, base_offset, next_offset, body[pos : pos + size]))
        pos += size
    starts = [Start(*row) for row in head["starts"]]
    return Slot(head["seq"], head["seal"], head["trimmed"], head.get("stored", -1), entries, starts)


class Extent(NamedTuple):
    """Which slots of a journal are to be read."""

    journal: str
    first: int
    """Whose bytes are still needed, or were when it was last said."""
    stored: int
    """The last that its owner has acknowledged, when it was last said."""
    last: int
    """A seal, or the last that counts."""

    def names(self) -> list[str]:
        return [names.slot(self.journal, seq) for seq in range(self.first, self.last + 1)]


def seal(engine: Engine, journal: str, nonce: str) -> Extent:
    """End a journal, so that nothing more is ever acknowledged from it; what it has ends with a seal.

    The first free slot is sealed. Its owner may write behind it, where slots are void: it acknowledges in order. A slot
    may also be free because its owner has deleted what was there, which some later object then says (`trimmed`). Of two
    seals the first counts. Where what was acknowledged is gone nothing is sealed: the seal would hide all that follows.
    """
    while True:
        found = engine.list(names.journal_prefix(journal))
        taken = {names.number(name) for name in found}
        seq, stored = _last(engine, found)
        while seq in taken:
            seq += 1
        if seq <= stored:
            raise gone(engine, names.slot(journal, seq))
        while (other := claim(engine, names.slot(journal, seq), encode(seq, nonce, seal=True))) is not None:
            if decode(names.slot(journal, seq), other).is_seal:
                break
            seq += 1
        first, stored = kept(engine, journal)
        if first <= seq:
            return Extent(journal, first, stored, seq)


def gone(engine: Engine, name: object) -> Gone:
    return Gone(
        f"{name} is gone from {engine.name}: restore it from a copy of the store before its partitions can be led"
    )


def first_kept(engine: Engine, journal: str) -> int:
    """The first slot whose bytes are still needed, or were not when it was last said."""
    return kept(engine, journal)[0]


def kept(engine: Engine, journal: str) -> tuple[int, int]:
    """The same, and the last slot that was acknowledged when it was last said."""
    return _last(engine, engine.list(names.journal_prefix(journal)))


def delete_all_but_seals(engine: Engine, journal: str) -> None:
    """What a journal that is over held. Its seals stay, so that its owner never goes on: also those that came late and
    count for nothing, since nobody can tell them from the others once the rest is gone."""
    found = engine.list(names.journal_prefix(journal))
    seals = engine.together([partial(_is_seal, engine, name) for name in found])
    engine.delete_all([name for name, is_seal in zip(found, seals, strict=True) if not is_seal])


def _is_seal(engine: Engine, name: str) -> bool:
    try:
        return decode(name, engine.get(name)).is_seal
    except Missing:
        return False


def _last(engine: Engine, found: list[str]) -> tuple[int, int]:
    """The first slot that its owner cannot have deleted, and the last that it has acknowledged, as its last object
    says."""
    for name in reversed(found):
        try:
            slot = decode(name, engine.get(name))
        except Missing:
            continue
        if not slot.is_seal:
            return slot.trimmed, slot.stored
    return 0, -1


def read(extent: Extent, objects: Mapping[str, bytes]) -> list[Slot]:
    """What these objects hold, up to the end or the first seal. Missing where one is not among them."""
    found = []
    for name in extent.names():
        if name not in objects:
            raise Missing(name)
        slot = decode(name, objects[name])
        if slot.is_seal:
            break
        found.append(slot)
    return found
