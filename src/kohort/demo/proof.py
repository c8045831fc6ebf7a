"""Was every order read, and was any read again without need? Computed from what was written. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[int, int]  # partition, offset


class Read(NamedTuple):
    place: Place
    at: float


@dataclass(frozen=True, slots=True)
class Journal:
    """What one reader has written: its orders, and since when it knows which of them to be committed."""

    name: str
    read: tuple[Read, ...]
    committed: Mapping[Place, float] = field(default_factory=dict)
    ids: frozenset[str] = frozenset()


@dataclass(slots=True)
class Proof:
    """`skipped` and `without_need` must be empty; the latter were read after another reader had committed them."""

    sold: int
    rows: int
    read: int
    skipped: list[Place] = field(default_factory=list)
    twice: dict[Place, list[str]] = field(default_factory=dict)
    without_need: list[Place] = field(default_factory=list)
    strange: int = 0
    """Orders that nobody sold: places behind the end of a log, or ids that do not add up."""

    @property
    def holds(self) -> bool:
        return not (self.skipped or self.without_need or self.strange)

    def first_readers(self) -> Counter[str]:
        """Whose orders were read again, and how many."""
        return Counter(names[0] for names in self.twice.values())


def read_journal(name: str, text: str) -> Journal:
    """The file of a reader. A line without its end was never finished, and nothing after it was promised."""
    reads: list[Read] = []
    committed: dict[Place, float] = {}
    ids: set[str] = set()
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        note = json.loads(line)
        if "committed" in note:
            upto = {int(partition): offset for partition, offset in note["committed"].items()}
            for place, _ in reads:
                if place[1] < upto.get(place[0], -1):
                    committed.setdefault(place, note["t"])
        else:
            reads.append(Read((note["p"], note["o"]), note["t"]))
            ids.add(note["id"])
    return Journal(name, tuple(reads), committed, frozenset(ids))


def journal_of_sink(
    name: str, rows: Iterable[tuple[int, int, str]], committed: Mapping[int, int], killed: bool
) -> Journal:
    """For a sink that notes no times: `committed` is what the group had on record when this reader was killed."""
    rows = list(rows)
    reads = tuple(Read((partition, offset), 0.0 if killed else 1.0) for partition, offset, _ in rows)
    done = {read.place: 0.0 for read in reads if killed and read.place[1] < committed.get(read.place[0], 0)}
    return Journal(name, reads, done, frozenset(order_id for _, _, order_id in rows))


def prove(sold: int, ends: Mapping[int, int], journals: Iterable[Journal]) -> Proof:
    """`ends` are the ends of the logs: what was sold is exactly what lies before them."""
    journals = list(journals)
    readers: dict[Place, list[tuple[float, Journal]]] = {}
    for journal in journals:
        for place, at in journal.read:
            readers.setdefault(place, []).append((at, journal))
    wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    ids = {order_id for journal in journals for order_id in journal.ids}
    proof = Proof(
        sold=sold,
        rows=sum(len(journal.read) for journal in journals),
        read=len(readers.keys() & wanted),
        skipped=sorted(wanted - readers.keys()),
        strange=len(readers.keys() - wanted) + abs(len(wanted) - sold) + (abs(len(ids) - sold) if ids else 0),
    )
    for place, who in sorted(readers.items(), key=lambda item: item[0]):
        if len(who) < 2:
            continue
        who.sort(key=lambda reader: reader[0])
        proof.twice[place] = [journal.name for _, journal in who]
        known = min((journal.committed.get(place, float("inf")) for _, journal in who), default=float("inf"))
        if who[-1][0] > known:
            proof.without_need.append(place)
    return proof
