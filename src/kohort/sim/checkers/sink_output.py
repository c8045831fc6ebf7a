"""Every row of a Spark query's batches is in its output once, for read_committed consumers, whatever has died."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kohort.sim.checkers.transactions import committed_values
from kohort.sim.trace import Checker


class SinkOutput(Checker):
    def settled(self, world: Any) -> None:
        for query in world.queries:
            if not query.idle:
                self.fail(f"query {query.query_id} has not come to rest at batch {query.begun}: {query.refusals[-3:]}")
        found: Counter[bytes] = Counter()
        for tp in world.sink_partitions():
            there = committed_values(world.broker.store.logs[tp])
            if there.hanging:
                self.fail(f"{tp}: the transaction of producer {there.hanging[0]} hangs")
            found.update(there.values.values())
        for row, count in found.items():
            if count > 1:
                self.fail(f"{row!r} is there {count} times")
        for query in world.queries:
            for row in query.written():
                if row not in found:
                    self.fail(f"{row!r} is missing, and Spark has finished its batch")
