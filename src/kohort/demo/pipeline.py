"""The second part of the demo: two Spark applications share the orders of one group, and one of them is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from pathlib import Path
from typing import Any

from kohort.demo.acts import PARTITIONS, Result
from kohort.demo.cast import Cast, Process
from kohort.demo.orders import TOPIC, Shop
from kohort.demo.proof import journal_of_sink, prove
from kohort.demo.show import Show
from kohort.demo.watch import View, Watch
from kohort.demo.words import HEARTBEAT, JOIN_GROUP, SYNC_GROUP

GROUP = "shop-spark"
SESSION_MS = 6_000
START_S = 120.0
FIRST, SECOND = "spark-1", "spark-2"


def why_not() -> str | None:
    """Why Spark cannot run here, with what to install; None where it can."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "Spark is not installed: pip install 'kohort[spark]', then run kohort demo again"
    from kohort.spark import java

    try:
        java.prepare(dict(os.environ))
    except java.NoJava as error:
        return str(error)
    return None


class Pipeline:
    """Its applications are started early, since a JVM takes its time; `play` needs them."""

    def __init__(self, servers: str, cast: Cast, show: Show) -> None:
        self._servers, self._cast, self._show = servers, cast, show
        self._applications = {name: self._launch(name) for name in (FIRST, SECOND)}
        self.top: list[list[Any]] = []

    def _folder(self, name: str) -> Path:
        return self._cast.folder / name / "orders"

    def _launch(self, name: str) -> Process:
        task = {
            "name": name,
            "servers": self._servers,
            "group_id": GROUP,
            "topic": TOPIC,
            "settings": {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "500"},
            "output": str(self._folder(name)),
            "checkpoint": str(self._cast.folder / name / "checkpoint"),
        }
        return self._cast.start(name, "kohort.demo.query", task)

    def play(self, shop: Shop, sold_before: int) -> Result:
        watch, show = Watch(self._servers, GROUP, TOPIC, PARTITIONS).start(), self._show
        try:
            show.follow("Part 2: the same orders, read by two Spark applications", watch, lambda: shop.offered)
            self._start_both(watch)
            committed, killed_ms = self._crash(watch)
            self._take_over(watch)
            sold = sold_before + shop.close()
            return self._finish(watch, sold, committed, killed_ms)
        finally:
            watch.close()

    # -- the steps -----------------------------------------------------------------------------------------------------

    def _start_both(self, watch: Watch) -> None:
        show, (first, second) = self._show, self._applications.values()
        show.step("SPARK", "two Spark applications start, each with a JVM of its own; this takes the longest")
        first.hear("ready", START_S)
        show.step(JOIN_GROUP, f"{FIRST} starts a streaming query, which joins the group like any other member")
        first.tell({"go": True})
        first.hear("started", START_S)
        watch.wait_for(lambda view: _settled(view, {FIRST}), f"{FIRST} reads", START_S)
        second.hear("ready", START_S)
        show.step(JOIN_GROUP, f"{SECOND} joins: {FIRST} keeps reading and hands over only what it must (cooperative)")
        second.tell({"go": True})
        second.hear("started", START_S)
        both = {FIRST, SECOND}
        watch.wait_for(lambda view: _settled(view, both) and _balanced(view), "both share the topic", START_S)
        show.step(SYNC_GROUP, "both write Parquet; what Spark has made durable is committed to the group")
        self._until_written(watch)

    def _until_written(self, watch: Watch) -> None:
        """Until the one to be killed has committed something, and then stored a batch that is not committed yet."""
        mine = next(member.partitions for member in watch.view().members if member.name == SECOND)
        before = watch.committed_now()
        log = self._folder(SECOND) / "_spark_metadata"

        def moved(view: View) -> bool:
            return log.is_dir() and any(view.committed.get(p, 0) > before.get(p, 0) for p in mine)

        watch.wait_for(moved, f"{SECOND} writes and commits", START_S)
        time.sleep(1.5)
        batches, deadline = _batches(log), time.monotonic() + START_S
        while _batches(log) <= batches and time.monotonic() < deadline:
            time.sleep(0.02)

    def _crash(self, watch: Watch) -> tuple[dict[int, int], int]:
        self._applications[SECOND].kill()
        killed_ms = time.time_ns() // 1_000_000
        committed = watch.committed_now()
        self._show.scene.gone[SECOND] = "killed"
        self._show.step(
            HEARTBEAT,
            f"kill -9 of {SECOND}, its JVM and its workers, right after it wrote a batch: nobody says goodbye",
        )
        return committed, killed_ms

    def _take_over(self, watch: Watch) -> None:
        evicted = f"{SECOND} is evicted"
        watch.wait_for(lambda view: any(evicted in line.text for line in view.lines), evicted, START_S)
        self._show.step(JOIN_GROUP, f"{FIRST} takes over at the group's last commit, not at the last row written")
        watch.wait_for(lambda view: _settled(view, {FIRST}), f"{FIRST} takes over", START_S)
        time.sleep(1.0)

    def _finish(self, watch: Watch, sold: int, committed: dict[int, int], killed_ms: int) -> Result:
        first = self._applications[FIRST]
        self._show.step("SUMMARY", f"the shop closes; {FIRST} reads to the end, then Spark reads its Parquet back")
        ends = watch.ends_now()
        watch.wait_for(lambda view: view.has_committed(ends), "everything is read and committed", START_S)
        first.tell({"stop": True})
        first.hear("stopped", START_S)
        watch.wait_for(lambda view: view.state == "Empty", f"{FIRST} has left", START_S)
        folders = {str(self._folder(name)): name for name in self._applications}
        found = self._cast.folder / "found.json"
        first.tell({"read": list(folders), "to": str(found)})
        first.hear("written", START_S)
        said = json.loads(found.read_text())
        self.top = said["top"]
        journals = [
            journal_of_sink(folders[folder], rows, committed, killed=folders[folder] == SECOND)
            for folder, rows in said["places"].items()
        ]
        return Result(prove(sold, ends, journals), watch.events(), watch.view(), SECOND, killed_ms)


def _batches(log: Path) -> int:
    """The last batch that Spark's file sink has recorded as written."""
    return max((int(path.name.partition(".")[0]) for path in log.glob("[0-9]*")), default=-1)


def _settled(view: View, names: set[str]) -> bool:
    return view.state == "Stable" and view.names == names and not view.unowned


def _balanced(view: View) -> bool:
    counts = [len(member.partitions) for member in view.members]
    return max(counts) - min(counts) <= 1
