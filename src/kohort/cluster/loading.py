"""Reading what partitions have, from the manifests and journals of those who led them before. On any thread.

A journal is ended before it is read, unless its owner has handed the partition over and said where: whatever its owner
acknowledged is then in what is read, and it can acknowledge nothing more. Segments are not read here: the manifest says
all that a leader must know of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.cluster import manifests, names
from kohort.cluster.engine import Engine, Missing
from kohort.cluster.journal import Slot, gone, kept, read, seal
from kohort.cluster.manifests import Manifest
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


class _Journals:
    """Each journal is ended once, and read once."""

    def __init__(self, engine: Engine, nonce: str) -> None:
        self._engine = engine
        self._nonce = nonce
        self._slots: dict[tuple[str, int | None], list[Slot]] = {}

    def slots(self, source: Source) -> list[Slot]:
        key = (source.journal, source.until)
        if key not in self._slots:
            if source.until is None:
                seal(self._engine, source.journal, self._nonce)
            self._slots[key] = self._read(source)
        return self._slots[key]

    def _read(self, source: Source) -> list[Slot]:
        """An owner that lives may delete what nobody needs meanwhile, and says so first; whatever else is not there was
        lost, and comes back by no waiting."""
        engine, journal = self._engine, source.journal
        first, stored = kept(engine, journal)
        while True:
            try:
                found = list(read(engine, journal, first, source.until))
            except Missing as missing:
                before, (first, stored) = first, kept(engine, journal)
                if first <= before:
                    raise gone(engine, missing) from None
                continue
            if source.until is None and first + len(found) <= stored:
                raise gone(engine, names.slot(journal, first + len(found)))  # there is a seal in its place
            return found


def load(engine: Engine, wanted: list[Wanted], nonce: str) -> list[Loaded]:
    journals = _Journals(engine, nonce)
    for one in wanted:  # all are over before the first manifest is read: no later one can replace it then
        for source in one.before:
            journals.slots(source)
    return [_load(engine, journals, one) for one in wanted]


def _load(engine: Engine, journals: _Journals, wanted: Wanted) -> Loaded:
    manifest = manifests.last(engine, wanted.topic_id, wanted.partition)
    loaded = Loaded(wanted, [], manifest.start_offset, manifest)
    for source in wanted.before:
        if source.epoch < manifest.epoch:
            continue
        key = (wanted.topic_id, wanted.partition, source.epoch)
        for slot in journals.slots(source):
            if source.epoch == manifest.epoch and slot.seq <= manifest.after:
                continue
            loaded.parts += [entry.data for entry in slot.entries if entry[:3] == key]
            for start in slot.starts:
                if start[:3] == key:
                    loaded.start_offset = max(loaded.start_offset, start.start_offset)
    return loaded
