"""The audit of the soak with Spark: every (topic, incarnation, partition, offset), and who read it, how often. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int, int]
"""Topic, which of the topics that had this name (0 was the first), partition."""


class Reading(NamedTuple):
    """A batch that a life of a member has made durable; times are of the clock that all processes share."""

    who: str
    life: int
    at: float
    batch: int
    runs: tuple[tuple[Place, int, int], ...]
    """With the first and the last offset."""


class Trouble(NamedTuple):
    """What was done to a life of a member, or to everybody (who is "")."""

    kind: str
    at: float
    who: str = ""
    life: int = 0


class Reset(NamedTuple):
    """An operator's: offsets from `to` on are to be read again."""

    place: Place
    at: float
    to: int


@dataclass
class Story:
    """What happened, as far as the audit needs it."""

    readings: list[Reading] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    ends: Mapping[Place, int] = field(default_factory=dict)
    """Where the logs of the topics that there are now end."""
    careless: frozenset[str] = frozenset()
    """Members that promise nothing: consumers that commit after the fact."""
    trouble_lasts_s: float = 60
    """How long what was done to everybody may keep a commit from arriving."""


@dataclass
class Verdict:
    places: int = 0
    records: int = 0
    again: Counter[str] = field(default_factory=Counter)
    """Records that were read before, by the reason that allows it."""
    broken: list[str] = field(default_factory=list)


def audit(story: Story) -> Verdict:
    verdict = Verdict()
    by_place: dict[Place, list[tuple[int, int, Reading]]] = defaultdict(list)
    for reading in sorted(story.readings, key=lambda one: one.at):
        for place, first, last in reading.runs:
            by_place[place].append((first, last, reading))
    for place in sorted(by_place.keys() | story.ends.keys()):
        verdict.places += 1
        _audit_place(place, by_place[place], story, verdict)
    return verdict


def _audit_place(place: Place, runs: list[tuple[int, int, Reading]], story: Story, verdict: Verdict) -> None:
    readers: dict[int, Reading] = {}
    unexplained: Counter[str] = Counter()
    for first, last, reading in runs:
        for offset in range(first, last + 1):
            before = readers.get(offset)
            if before is not None:
                why = _why_again(place, offset, before, reading, story)
                verdict.again[why or "no reason"] += 1
                if why is None:
                    unexplained[f"{before.who}.{before.life} and then {reading.who}.{reading.life}"] += 1
            readers[offset] = reading
    verdict.records += len(readers)
    name = f"{place[0]}-{place[2]}" + (f" (number {place[1]} of that name)" if place[1] else "")
    end = story.ends.get(place)
    stop = end if end is not None else max(readers, default=-1) + 1
    if missing := [offset for offset in range(stop) if offset not in readers]:
        verdict.broken.append(f"{name}: {len(missing)} of {stop} records were never read: {spans(missing)}")
    for who, count in unexplained.items():
        verdict.broken.append(f"{name}: {count} records were read by {who}, for no reason that the docs allow")
    if end is not None and max(readers, default=-1) >= end:
        verdict.broken.append(f"{name}: offset {max(readers)} was read, and the log ends at {end}")


def _why_again(place: Place, offset: int, before: Reading, after: Reading, story: Story) -> str | None:
    if before.who == after.who and before.batch == after.batch and before.life < after.life:
        return "a batch that its checkpoint repeats"
    for reset in story.resets:
        if reset.place == place and offset >= reset.to and before.at <= reset.at <= after.at:
            return "an operator's reset"
    if before.who in story.careless:
        return "a plain consumer that had not committed it"
    for trouble in story.troubles:
        if (trouble.who, trouble.life) == (before.who, before.life) and trouble.at <= after.at:
            return f"{trouble.kind} of the member that read it first"
        if not trouble.who and before.at - story.trouble_lasts_s <= trouble.at <= after.at:
            return trouble.kind
    return None


def spans(offsets: Iterable[int]) -> str:
    found: list[list[int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:5])
    return shown + (", …" if len(found) > 5 else "")
