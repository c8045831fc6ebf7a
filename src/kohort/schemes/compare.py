"""The same changes, one after another, in each scheme: what each of them costs, and what goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from kohort.schemes.meter import Tally
from kohort.schemes.next import Next
from kohort.schemes.scheme import SESSION_TIMEOUT_MS, Scheme
from kohort.schemes.server_coordinator import ServerCoordinator
from kohort.schemes.today import Today
from kohort.schemes.watchers import Watchers
from kohort.schemes.zookeeper import SYNC_LIMIT_MS

SCHEMES: dict[str, Callable[[int, int], Scheme]] = {
    "watchers": Watchers,
    "server coordinator": ServerCoordinator,
    "today": Today,
    "next": Next,
}
PARTITIONS_A_MEMBER = 2
STEP_MS = 500
WINDOW_MS = 60_000
CUT_MS = 20_000

ALL_JOIN, JOIN, LEAVE, CRASH = "all join", "join", "leave", "crash"
GROWTH, BROKER, LAG, CUT = "topic grows", "broker dies", "follower lags", "cut off"
CHANGES = (ALL_JOIN, JOIN, LEAVE, CRASH, GROWTH, BROKER, LAG, CUT)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one change came to. `agreed_after_ms` is None where the group had not agreed a minute later."""

    scheme: str
    members: int
    change: str
    tally: Tally
    agreed_after_ms: int | None
    unread: int
    longest_wait_us: int

    @property
    def messages(self) -> int:
        return self.tally.messages

    def to_dict(self) -> dict[str, Any]:
        found = asdict(self)
        tally = found.pop("tally")
        return {**found, "messages": self.messages, **tally}


def names(seed: int) -> Iterator[str]:
    """Consumers' names, in no order: where a newcomer stands among the others is chance, as with host names."""
    random = Random(f"{seed} names")
    index = 0
    while True:
        yield f"{random.getrandbits(24):06x}-c{index}"
        index += 1


def compare(sizes: tuple[int, ...], seed: int, lag_ms: int = SYNC_LIMIT_MS) -> Iterator[Outcome]:
    for members in sizes:
        for scheme in SCHEMES:
            yield from run(scheme, members, seed, lag_ms)


def run(scheme: str, members: int, seed: int, lag_ms: int = SYNC_LIMIT_MS) -> Iterator[Outcome]:
    """One scheme through all changes. After each that takes a consumer away another one joins, unmeasured."""
    script = Script(scheme, members, seed)
    yield from script.all_join()
    yield script.measure(LEAVE, script.leave_one)
    script.replace_one()
    yield script.measure(CRASH, script.crash_one)
    script.replace_one()
    yield script.measure(GROWTH, script.grow)
    yield script.measure(BROKER, script.group.lose_broker, at_least_ms=2 * SESSION_TIMEOUT_MS)
    script.group.fall_behind(lag_ms)
    yield script.measure(LAG, script.join_one, at_least_ms=lag_ms)
    script.leave_one()
    script.settle()
    script.let_records_flow()
    yield script.measure(CUT, script.cut_one, at_least_ms=CUT_MS)


class Script:
    """One scheme and who is in its group; every change is one call."""

    def __init__(self, scheme: str, members: int, seed: int) -> None:
        self._scheme = scheme
        self._members = members
        self._partitions = PARTITIONS_A_MEMBER * members
        self._random = Random(f"{seed} script")
        self._names = names(seed)
        self._present: list[str] = []
        self.group = SCHEMES[scheme](seed, self._partitions)

    # Changes.

    def all_join(self) -> Iterator[Outcome]:
        """One by one, each when the group has agreed on the one before; the last is told apart."""
        before, began_ms = self.group.tally(), self.group.scheduler.now_ms
        for _ in range(self._members - 1):
            self.join_one()
            self.settle()
        last = self.measure(JOIN, self.join_one)
        took_ms = None
        if last.agreed_after_ms is not None and self.group.meter.agreed_since_ms is not None:
            took_ms = self.group.meter.agreed_since_ms - began_ms
        all_of_it = self.group.tally().since(before)
        yield Outcome(self._scheme, self._members, ALL_JOIN, all_of_it, took_ms, last.unread, last.longest_wait_us)
        yield last

    def join_one(self) -> None:
        self._present.append(next(self._names))
        self.group.join(self._present[-1])

    def leave_one(self) -> None:
        self.group.leave(self._take_one())

    def crash_one(self) -> None:
        self.group.crash(self._take_one())

    def _take_one(self) -> str:
        return self._present.pop(self._random.randrange(len(self._present)))

    def replace_one(self) -> None:
        self.join_one()
        self.settle()

    def grow(self) -> None:
        self._partitions += self._members
        self.group.grow(self._partitions)

    def cut_one(self) -> None:
        name = self._random.choice(self._present)
        self.group.cut(name)
        self.group.scheduler.after(CUT_MS, self.group.heal, name)

    def let_records_flow(self) -> None:
        """For a while, so that when somebody is cut off does not depend on when commits are due."""
        self.group.records_flow(True)
        self.wait(self._random.randint(10_000, 15_000))

    # Time.

    def wait(self, duration_ms: int) -> None:
        self.group.scheduler.run(self.group.scheduler.now_ms + duration_ms)

    def settle(self, at_least_ms: int = 0) -> None:
        """Until the group has agreed and stayed so for a moment, at most for a minute."""
        scheduler, meter = self.group.scheduler, self.group.meter
        began_ms = scheduler.now_ms
        self.wait(at_least_ms + STEP_MS)
        while meter.agreed_since_ms is None or scheduler.now_ms - meter.agreed_since_ms < STEP_MS:
            if scheduler.now_ms - began_ms >= WINDOW_MS:
                return
            self.wait(STEP_MS)

    def measure(self, change: str, do: Callable[[], None], at_least_ms: int = 0) -> Outcome:
        meter = self.group.meter
        before, began_ms = self.group.tally(), self.group.scheduler.now_ms
        self.group.longest_wait_us()
        do()
        self.settle(at_least_ms)
        agreed_after_ms = None if meter.agreed_since_ms is None else max(0, meter.agreed_since_ms - began_ms)
        tally, longest_wait_us = self.group.tally().since(before), self.group.longest_wait_us()
        return Outcome(self._scheme, self._members, change, tally, agreed_after_ms, meter.unread, longest_wait_us)
