"""A world for the exactly-once sink's protocol: brokers as a dictionary, Spark as a loop, crashes between two steps.

Drivers that were taken for dead may come back; transactions expire while a query is down. `run` returns what a
read_committed consumer sees of each row. No code under test but `sink_commit`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kohort.client.types import OpenTransaction
from kohort.spark import sink_commit as sc
from kohort.spark.sink_commit import Decision, Fate, Share

BATCHES, TASKS, TIMEOUT_MS = 4, 3, 60_000
Row = tuple[int, int]


class Fenced(Exception):
    """Another driver has taken over."""


class Crash(Exception):
    pass


@dataclass
class Brokers:
    fates: dict[str, Fate] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    driver_epoch: int = 0
    written: Decision | None = None

    def end(self, transaction: OpenTransaction, commit: bool) -> Fate:
        name = transaction.transactional_id
        if self.fates[name] is Fate.OPEN:
            self.fates[name] = Fate.COMMITTED if commit else Fate.ABORTED
        return self.fates[name]

    def expire(self) -> None:
        self.fates |= {name: Fate.ABORTED for name, fate in self.fates.items() if fate is Fate.OPEN}

    def read_committed(self) -> Counter[Row]:
        return Counter(row for name, rows in self.rows.items() if self.fates[name] is Fate.COMMITTED for row in rows)


class Driver:
    """Carries the effects of one machine out, until it is done or dies."""

    def __init__(self, brokers: Brokers, machine: Any, chance: random.Random, crash_at: float) -> None:
        self.brokers, self.machine, self.chance, self.crash_at = brokers, machine, chance, crash_at
        self.epoch = -1
        self.effect: Any = machine.begin()

    def run(self) -> None:
        while not isinstance(self.effect, sc.Finish):
            self.step()

    def step(self) -> None:
        if self.chance.random() < self.crash_at:
            raise Crash
        answer = self.carry_out(self.effect)
        if self.chance.random() < self.crash_at:
            raise Crash
        self.effect = self.machine.answered(answer)

    def carry_out(self, effect: Any) -> Any:
        brokers = self.brokers
        match effect:
            case sc.TakeOver():
                brokers.driver_epoch += 1
                self.epoch, brokers.written = brokers.driver_epoch, None
            case sc.Read():
                return brokers.decisions[-1] if brokers.decisions else None
            case sc.ReadAll():
                return brokers.decisions[-1:]
            case sc.Sweep(keep):
                for name, fate in brokers.fates.items():
                    if fate is Fate.OPEN and name not in keep:
                        brokers.fates[name] = Fate.ABORTED
            case sc.Write(decision):
                self._still_in_charge()
                brokers.written = decision
            case sc.Look(transactions):
                fates = {t.transactional_id: brokers.fates[t.transactional_id] for t in transactions}
                return sc.Looked(fates, 0, TIMEOUT_MS)
            case sc.Settle(commit):
                self._still_in_charge()
                if commit and brokers.written is not None:
                    brokers.decisions.append(brokers.written)
                brokers.written = None
            case sc.End(transactions, commit):
                return {t.transactional_id: self._end(t, commit) for t in transactions}
        return None

    def _end(self, transaction: OpenTransaction, commit: bool) -> Fate:
        if self.chance.random() < self.crash_at:
            raise Crash
        return self.brokers.end(transaction, commit)

    def _still_in_charge(self) -> None:
        if self.epoch != self.brokers.driver_epoch:
            raise Fenced


class World:
    def __init__(
        self, seed: int, commit: Any = sc.BatchCommit, abort: Any = sc.BatchAbort, roll: Any = sc.RollForward
    ) -> None:
        self.chance = random.Random(seed)
        self.commit, self.abort, self.roll = commit, abort, roll
        self.crash_at = self.chance.choice([0.0, 0.03, 0.1])
        self.brokers = Brokers()
        self.finished = 0  # Spark's commit log
        self.asleep: list[Driver] = []
        self.attempts = 0

    def rows(self, batch: int, task: int) -> list[Row]:
        return [] if (batch + task) % 5 == 4 else [(batch, 10 * task + number) for number in range(2)]

    def write(self, batch: int) -> tuple[Share, ...]:
        """Spark's tasks, each attempt under a name of its own; some attempts are lost, and leave what they wrote."""
        shares = []
        for task in range(TASKS):
            for lost in (True, False):
                if lost and self.chance.random() > 0.2:
                    continue
                self.attempts += 1
                rows = self.rows(batch, task)
                name = f"t{self.attempts}"
                if rows:
                    self.brokers.fates[name], self.brokers.rows[name] = Fate.OPEN, rows
            made = OpenTransaction(name, self.attempts, 0, True) if rows else None
            shares.append(Share(len(rows), hash(tuple(rows)), made))
        return tuple(shares)

    def run(self) -> Counter[Row]:
        for _ in range(200):
            if self.finished == BATCHES:
                break
            self.run_query()
        else:
            raise AssertionError("the query never ends")
        for sleeper in self.asleep:
            self.wake(sleeper, to_the_end=True)
        return self.brokers.read_committed()

    def run_query(self) -> None:
        """Until all is done, or something kills it."""
        while self.finished < BATCHES:
            batch = self.finished
            try:
                if self.chance.random() < 0.3:
                    self.drive(self.roll())  # at a restart, or by somebody else
            except Crash:
                return self.down()
            shares = self.write(batch)
            try:
                if self.chance.random() < 0.1:
                    raise sc.Refusal("a task has failed")
                self.drive(self.commit(batch, shares))
            except (sc.Refusal, Fenced):
                try:
                    self.drive(self.abort(batch, shares))
                except (Crash, Fenced):
                    self.down()
                return
            except Crash:
                return self.down()
            if self.chance.random() < self.crash_at:  # between the sink's commit and Spark's commit log
                return self.down()
            self.finished += 1

    def drive(self, machine: Any) -> None:
        driver = Driver(self.brokers, machine, self.chance, self.crash_at)
        while not isinstance(driver.effect, sc.Finish):
            if self.asleep and self.chance.random() < 0.3:
                self.wake(self.chance.choice(self.asleep))
            try:
                driver.step()
            except Crash:
                if self.chance.random() < 0.3:
                    self.asleep.append(driver)  # it only seems so
                raise

    def wake(self, sleeper: Driver, to_the_end: bool = False) -> None:
        try:
            for _ in range(100 if to_the_end else self.chance.randrange(1, 8)):
                if not isinstance(sleeper.effect, sc.Finish):
                    sleeper.step()
        except (Crash, Fenced, sc.Refusal):
            self.asleep.remove(sleeper) if not to_the_end else None

    def down(self) -> None:
        if self.chance.random() < 0.2:
            self.brokers.expire()

    def expected(self) -> Counter[Row]:
        return Counter(row for batch in range(BATCHES) for task in range(TASKS) for row in self.rows(batch, task))
