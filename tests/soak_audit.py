"""The audit of a soak: reads what producers and consumers noted and says which promise was broken, if any."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Place = tuple[str, int]


@dataclass
class Audit:
    processed: int = 0
    again: int = 0
    """Processed by the group before: allowed after a crash, never within a generation."""
    commits: int = 0
    gave_up: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    broken: list[str] = field(default_factory=list)


class Ledgers:
    """Everything the workers wrote, sorted by what it is about."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.assigned: dict[tuple[str, Place, int], tuple[float, str, int | None]] = {}
        self.runs: dict[tuple[str, Place], list[tuple[str, int, int, int]]] = defaultdict(list)
        self.commits: dict[tuple[str, Place], list[tuple[float, float, int]]] = defaultdict(list)
        self.broken: list[str] = []
        self.gave_up: dict[str, int] = defaultdict(int)
        for path in paths:
            with open(path) as lines:
                for line in lines:
                    if line.endswith("\n"):  # the last one of a killed worker may be cut off
                        self._add(json.loads(line))

    def _add(self, row: list[Any]) -> None:
        match row:
            case ["A", at, consumer, group, generation, topic, partition, period]:
                self.assigned[consumer, (topic, partition), period] = (at, group, generation)
            case ["R", consumer, group, topic, partition, period, first, last]:
                self.runs[group, (topic, partition)].append((consumer, period, first, last))
            case ["C", sent, acknowledged, group, topic, partition, offset]:
                self.commits[group, (topic, partition)].append((sent, acknowledged, offset))
            case ["V", consumer, what]:
                self.broken.append(f"{consumer}: {what}")
            case ["E", consumer, what]:
                kind = consumer.split("-", 2)[2].rpartition(".")[0]
                self.gave_up[f"{kind}: {what}"] += 1


def audit(ledgers: Ledgers, groups: dict[str, str], ends: dict[Place, int]) -> Audit:
    """`groups` is group -> topic, `ends` the end of every partition: all of it must have been processed."""
    found = Audit(broken=list(ledgers.broken), gave_up=ledgers.gave_up)
    for group, topic in groups.items():
        for place, end in ends.items():
            if place[0] == topic:
                runs = ledgers.runs[group, place]
                _coverage(found, group, place, runs, end)
                acknowledged = _commits(found, group, place, ledgers.commits[group, place])
                _starts(found, group, place, runs, ledgers, acknowledged)
    _owners(found, ledgers)
    return found


def _coverage(found: Audit, group: str, place: Place, runs: list[Any], end: int) -> None:
    seen = bytearray(end)
    for _, _, first, last in runs:
        if last >= end:
            found.broken.append(f"{group} processed {place} up to {last}, which ends at {end}")
            continue
        found.processed += last - first + 1
        found.again += sum(seen[first : last + 1])
        seen[first : last + 1] = b"\1" * (last - first + 1)
    if 0 in seen:
        missing = seen.count(0)
        found.broken.append(f"{group} skipped {missing} records of {place}, the first at {seen.index(0)}")


def _commits(
    found: Audit, group: str, place: Place, commits: list[tuple[float, float, int]]
) -> tuple[list[float], list[int]]:
    """When acknowledged and the highest offset by then; none may be lower than one acknowledged before it was sent."""
    times: list[float] = []
    highest: list[int] = []
    for sent, acknowledged, offset in sorted(commits, key=lambda commit: commit[1]):
        found.commits += 1
        known = bisect_left(times, sent)
        if known and offset < highest[known - 1]:
            found.broken.append(f"{group} {place}: committed {offset} after {highest[known - 1]} was acknowledged")
        times.append(acknowledged)
        highest.append(max(offset, highest[-1] if highest else 0))
    return times, highest


def _starts(
    found: Audit,
    group: str,
    place: Place,
    runs: list[tuple[str, int, int, int]],
    ledgers: Ledgers,
    acknowledged: tuple[list[float], list[int]],
) -> None:
    """An owner begins where the last acknowledged commit was, or later ones have moved it to."""
    firsts: dict[tuple[str, int], int] = {}
    for consumer, period, first, _ in runs:
        firsts.setdefault((consumer, period), first)
    times, highest = acknowledged
    for (consumer, period), first in firsts.items():
        assignment = ledgers.assigned.get((consumer, place, period))
        if assignment is None:
            found.broken.append(f"{consumer} processed {place} of {group} without an assignment")
            continue
        known = bisect_left(times, assignment[0])
        if known and first < highest[known - 1]:
            found.broken.append(
                f"{consumer} of {group} began {place} at {first}, {highest[known - 1]} had been committed before"
            )


def _owners(found: Audit, ledgers: Ledgers) -> None:
    """A partition has one owner in a generation (of the clients that tell theirs)."""
    owners: dict[tuple[str, int, Place], str] = {}
    for (consumer, place, _), (_, group, generation) in ledgers.assigned.items():
        if generation is None:
            continue
        other = owners.setdefault((group, generation, place), consumer)
        if other != consumer:
            found.broken.append(f"{place} belongs to {other} and {consumer} in generation {generation} of {group}")
