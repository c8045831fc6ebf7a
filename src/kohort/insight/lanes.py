"""Who held which partitions from when to when: one lane a client, bars on it. Pure, and bounded.

A client that comes back under a new member id goes on in its old lane, so that flapping is seen. A bar is a set of
partitions that a member held without a change; sets are kept once, bars as columns of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from kohort.coordinator.causes import Who

Partition = tuple[str, int]
OPEN = -1
MOST_BARS = 400_000


class Moves(NamedTuple):
    """What a new assignment did to partitions: `lost` have no reader now, `came` had none before."""

    moved: int = 0
    kept: int = 0
    lost: int = 0
    came: int = 0


class Bar(NamedTuple):
    """`end_ms` is OPEN while it is held; `partitions` is an index into the sets."""

    lane: int
    start_ms: int
    end_ms: int
    partitions: int


class Lanes:
    def __init__(self, most: int = MOST_BARS) -> None:
        self.whos: list[Who] = []
        self.sets: list[tuple[Partition, ...]] = []
        self.forgotten = 0  # bars that were too old to keep
        self._most = most
        self._set_of: dict[tuple[Partition, ...], int] = {}
        self._free: dict[str, list[int]] = {}  # lanes by the identity of a client that is not here
        self._lane_of: dict[str, int] = {}  # by member id, of those that are
        self._lane, self._start, self._end, self._set = array("i"), array("q"), array("q"), array("i")
        self._held: dict[int, int] = {}  # lane -> its open bar
        self._reader: dict[Partition, int] = {}  # partition -> lane

    def __len__(self) -> int:
        return len(self._lane)

    @property
    def present(self) -> dict[str, Who]:
        return {member_id: self.whos[lane] for member_id, lane in self._lane_of.items()}

    def assign(self, at_ms: int, held: Mapping[Who, Iterable[Partition]]) -> Moves:
        """A generation: these members hold this, and nobody else holds anything."""
        named = {who.member_id for who in held}
        for member_id in [one for one in self._lane_of if one not in named]:
            self.release(at_ms, member_id)
        for who, partitions in held.items():
            self.hold(at_ms, who, partitions)
        return self._moves()

    def hold(self, at_ms: int, who: Who, partitions: Iterable[Partition]) -> None:
        """From now on this member holds these and no others."""
        lane = self._lane_for(who)
        number = self._number(tuple(sorted(partitions)))
        bar = self._held.get(lane)
        if bar is not None:
            if self._set[bar] == number:
                return
            self._close(bar, at_ms)
        self._held[lane] = len(self._lane)
        self._lane.append(lane)
        self._start.append(at_ms)
        self._end.append(OPEN)
        self._set.append(number)
        if len(self._lane) > self._most:
            self._forget()

    def release(self, at_ms: int, member_id: str) -> None:
        """The member is gone."""
        lane = self._lane_of.pop(member_id, None)
        if lane is None:
            return
        self._free.setdefault(self.whos[lane].identity, []).append(lane)
        bar = self._held.pop(lane, None)
        if bar is not None:
            self._close(bar, at_ms)

    def bars(self, from_ms: int, to_ms: int, step_ms: int = 0) -> Iterator[Bar]:
        """Those that touch the span, of members that held something.

        With a step, at most one a lane that ends within a step, as no more can be seen, and what is held now.
        """
        empty = self._set_of.get((), -1)
        free = [-1] * len(self.whos)
        for lane, start_ms, end_ms, held in zip(self._lane, self._start, self._end, self._set, strict=True):
            if start_ms >= to_ms or (end_ms <= from_ms and end_ms != OPEN) or held == empty:
                continue
            if step_ms and end_ms != OPEN:
                step = end_ms // step_ms
                if step <= free[lane]:
                    continue
                free[lane] = step
            yield Bar(lane, start_ms, end_ms, held)

    def count(self, from_ms: int, to_ms: int, most: int) -> int:
        """How many bars touch the span; counted no further than just above `most`."""
        found = (s < to_ms and (e == OPEN or e > from_ms) for s, e in zip(self._start, self._end, strict=True))
        return sum(1 for _ in islice(filter(None, found), most + 1))

    def held_at(self, at_ms: int) -> dict[Partition, Who]:
        """Who held what at the end of that millisecond."""
        return {
            partition: self.whos[bar.lane]
            for bar in self.bars(at_ms, at_ms + 1)
            if bar.end_ms == OPEN or bar.end_ms > at_ms
            for partition in self.sets[bar.partitions]
        }

    def held_now(self) -> dict[str, tuple[Partition, ...]]:
        """By member id."""
        return {
            member_id: self.sets[self._set[self._held[lane]]] if lane in self._held else ()
            for member_id, lane in self._lane_of.items()
        }

    # -- within

    def _lane_for(self, who: Who) -> int:
        lane = self._lane_of.get(who.member_id)
        if lane is None:
            free = self._free.get(who.identity)
            if free:
                lane = free.pop(0)
                self.whos[lane] = who
            else:
                lane = len(self.whos)
                self.whos.append(who)
            self._lane_of[who.member_id] = lane
        return lane

    def _number(self, partitions: tuple[Partition, ...]) -> int:
        number = self._set_of.setdefault(partitions, len(self.sets))
        if number == len(self.sets):
            self.sets.append(partitions)
        return number

    def _close(self, bar: int, at_ms: int) -> None:
        # A clock that jumped back must not make a bar that ends before it begins.
        self._end[bar] = max(at_ms, self._start[bar])

    def _moves(self) -> Moves:
        now = {p: lane for lane, bar in self._held.items() for p in self.sets[self._set[bar]]}
        before, self._reader = self._reader, now
        both = now.keys() & before.keys()
        kept = sum(now[p] == before[p] for p in both)
        return Moves(len(both) - kept, kept, len(before) - len(both), len(now) - len(both))

    def _forget(self) -> None:
        """The oldest quarter of what has ended; what is held stays."""
        held = set(self._held.values())
        cut = len(self._lane) // 4
        keep = [i for i in range(len(self._lane)) if i >= cut or i in held]
        place = {old: new for new, old in enumerate(keep)}
        self.forgotten += len(self._lane) - len(keep)
        for name in ("_lane", "_start", "_end", "_set"):
            old = getattr(self, name)
            setattr(self, name, array(old.typecode, [old[i] for i in keep]))
        self._held = {lane: place[bar] for lane, bar in self._held.items()}
