"""Reading what partitions have, from the manifests and journals of those who led them before. On any thread.

A journal is ended before it is read, unless its owner has handed the partition over and said where: whatever its owner
acknowledged is then in what is read, and it can acknowledge nothing more. Segments are not read here: the manifest says
all that a leader must know of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kohort.cluster import manifests, names
from kohort.cluster.engine import Engine, Missing
from kohort.cluster.journal import Extent, Slot, gone, kept, read, seal
from kohort.cluster.manifests import Manifest
from kohort.cluster.snapshots import Damaged
from kohort.cluster.state import Source


class Wanted(NamedTuple):
    """A partition to be led, in an epoch."""

    topic_id: str
    partition: int
    epoch: int
    sources: list[Source]

    @property
    def is_new(self) -> bool:
        """Nobody has led it before."""
        return self.epoch == 0

    @property
    def before(self) -> list[Source]:
        return [source for source in self.sources if source.epoch < self.epoch]


@dataclass(slots=True)
class Loaded:
    wanted: Wanted
    parts: list[bytes | memoryview] = field(default_factory=list)
    start_offset: int = 0
    manifest: Manifest = field(default_factory=Manifest)


Journals = dict[tuple[str, int | None], list[Slot] | Damaged]
"""What was found of each: its name, and up to which slot it counts."""


def load(engine: Engine, wanted: list[Wanted], nonce: str) -> list[Loaded | Damaged]:
    """What each of them has, or what is damaged or gone of it. Whatever can be asked side by side is: the time that it
    takes does not grow with the number of partitions or of objects, as long as the store answers as fast."""
    sources = dict.fromkeys((source.journal, source.until) for one in wanted for source in one.before)
    journals = _read(engine, list(sources), nonce)
    # All are over before the first manifest is read: no later one can replace it then.
    found = engine.together([partial(_manifest, engine, one) for one in wanted])
    return [_load(journals, one, manifest) for one, manifest in zip(wanted, found, strict=True)]


def _manifest(engine: Engine, wanted: Wanted) -> Manifest | Damaged:
    try:
        return manifests.last(engine, wanted.topic_id, wanted.partition)
    except Damaged as damaged:
        return damaged


def _load(journals: Journals, wanted: Wanted, manifest: Manifest | Damaged) -> Loaded | Damaged:
    if isinstance(manifest, Damaged):
        return manifest
    loaded = Loaded(wanted, [], manifest.start_offset, manifest)
    for source in wanted.before:
        if source.epoch < manifest.epoch:
            continue
        slots = journals[source.journal, source.until]
        if isinstance(slots, Damaged):
            return slots
        key = (wanted.topic_id, wanted.partition, source.epoch)
        for slot in slots:
            if source.epoch == manifest.epoch and slot.seq <= manifest.after:
                continue
            loaded.parts += [entry.data for entry in slot.entries if entry[:3] == key]
            for start in slot.starts:
                if start[:3] == key:
                    loaded.start_offset = max(loaded.start_offset, start.start_offset)
    return loaded


# ---- journals: each is ended once, and read once


def _read(engine: Engine, journals: list[tuple[str, int | None]], nonce: str) -> Journals:
    ended = engine.together([partial(_end, engine, *key, nonce) for key in journals])
    found: Journals = {key: extent for key, extent in zip(journals, ended, strict=True) if isinstance(extent, Damaged)}
    left = {key: extent for key, extent in zip(journals, ended, strict=True) if isinstance(extent, Extent)}
    while left:
        objects = _objects(engine, [name for extent in left.values() for name in extent.names()])
        missing: dict[tuple[str, int | None], tuple[Extent, Missing]] = {}
        for key, extent in left.items():
            try:
                found[key] = _slots(engine, extent, objects, is_sealed=key[1] is None)
            except Damaged as damaged:
                found[key] = damaged
            except Missing as error:
                missing[key] = (extent, error)
        again = engine.together([partial(_again, engine, *row) for row in missing.values()])
        found |= {key: extent for key, extent in zip(missing, again, strict=True) if isinstance(extent, Damaged)}
        left = {key: extent for key, extent in zip(missing, again, strict=True) if isinstance(extent, Extent)}
    return found


def _end(engine: Engine, journal: str, until: int | None, nonce: str) -> Extent | Damaged:
    try:
        return seal(engine, journal, nonce) if until is None else Extent(journal, *kept(engine, journal), until)
    except Damaged as damaged:
        return damaged


def _again(engine: Engine, before: Extent, missing: Missing) -> Extent | Damaged:
    """An owner that lives may delete what nobody needs meanwhile, and says so first; whatever else is not there was
    lost, and comes back by no waiting."""
    try:
        first, stored = kept(engine, before.journal)
    except Damaged as damaged:
        return damaged
    return before._replace(first=first, stored=stored) if first > before.first else gone(engine, missing)


def _objects(engine: Engine, wanted: list[str]) -> dict[str, bytes]:
    """Those that are there."""

    def get(name: str) -> bytes | None:
        try:
            return engine.get(name)
        except Missing:
            return None

    found = engine.together([partial(get, name) for name in wanted])
    return {name: data for name, data in zip(wanted, found, strict=True) if data is not None}


def _slots(engine: Engine, extent: Extent, objects: dict[str, bytes], *, is_sealed: bool) -> list[Slot]:
    slots = read(extent, objects)
    if is_sealed and extent.first + len(slots) <= extent.stored:
        raise gone(engine, names.slot(extent.journal, extent.first + len(slots)))  # there is a seal in its place
    return slots
