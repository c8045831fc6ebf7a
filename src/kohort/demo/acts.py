"""The first part of the demo: readers of a group that join, work, crash and are replaced. The script, step by step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import kohort
from kohort.client.admin_types import NewTopic
from kohort.coordinator.events import EVENTS_TOPIC, GroupEvent
from kohort.demo.cast import Cast, Process
from kohort.demo.orders import TOPIC, Shop
from kohort.demo.proof import Proof, prove, read_journal
from kohort.demo.show import Show
from kohort.demo.watch import View, Watch
from kohort.demo.words import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

GROUP = "shop"
PARTITIONS = 6
LONGEST_WAIT_S = 10.0
BROKER = {
    "group.min.session.timeout.ms": 1_000,
    "kohort.group.events.topic.enable": True,
    "auto.create.topics.enable": False,
}


class Tempo(NamedTuple):
    """How fast it is played. `pace` stretches the pauses in which there is only to be looked."""

    pace: float
    session_ms: int
    heartbeat_ms: int
    initial_delay_ms: int


TO_WATCH = Tempo(1.6, 2_500, 400, 500)
FAST = Tempo(0.25, 1_200, 150, 100)


def broker_config(tempo: Tempo) -> dict[str, Any]:
    return BROKER | {"group.initial.rebalance.delay.ms": tempo.initial_delay_ms}


@dataclass(slots=True)
class Result:
    """What a part leaves for the summary. `killed_ms` is when the one that crashed was killed."""

    proof: Proof
    events: list[GroupEvent]
    view: View
    victim: str
    killed_ms: int


def create_topics(servers: str) -> None:
    """The broker would make the second one at the first event; having it, the first event is seen at once."""
    with kohort.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic(EVENTS_TOPIC, 1)])


class Readers:
    """The readers of part one."""

    def __init__(self, servers: str, cast: Cast, show: Show, shop: Shop, tempo: Tempo) -> None:
        self._servers, self._cast, self._show, self._shop, self._tempo = servers, cast, show, shop, tempo
        self._watch = Watch(servers, GROUP, TOPIC, PARTITIONS)
        self._running: dict[str, Process] = {}
        self._files: dict[str, Path] = {}

    def play(self) -> Result:
        watch, show = self._watch.start(), self._show
        try:
            show.follow("Part 1: a shop's orders, read by a group of consumers", watch, lambda: self._shop.offered)
            self._first_member()
            self._more_members()
            killed_ms = self._crash("carol")
            self._replacement("dave")
            self._goodbye("bob")
            proof = self._finish()
            return Result(proof, watch.events(), watch.view(), "carol", killed_ms)
        finally:
            watch.close()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds * self._tempo.pace)

    def _start(self, name: str) -> None:
        path = self._files[name] = self._cast.folder / f"{name}.jsonl"
        task = {
            "name": name,
            "servers": self._servers,
            "group_id": GROUP,
            "topic": TOPIC,
            "path": str(path),
            "settings": {
                "session.timeout.ms": self._tempo.session_ms,
                "heartbeat.interval.ms": self._tempo.heartbeat_ms,
            },
        }
        self._running[name] = self._cast.start(name, "kohort.demo.reader", task)

    def _settled(self, what: str) -> None:
        """Until exactly those who run are in the group, and it is stable."""

        def settled(view: View) -> bool:
            return view.state == "Stable" and view.names == set(self._running) and not view.unowned

        self._watch.wait_for(settled, what)

    def _until_uncommitted(self, name: str) -> None:
        """Until a reader has just written orders and not yet committed them: the moment that a crash repeats."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while time.monotonic() < deadline:
            lines = self._files[name].read_text().splitlines()
            if lines and "committed" not in lines[-1]:
                return
            time.sleep(0.01)

    def _joined(self, name: str, what: str) -> None:
        self._watch.wait_for(lambda view: any(line.text.startswith(f"{name} joins") for line in view.lines), what)

    # -- the steps -----------------------------------------------------------------------------------------------------

    def _first_member(self) -> None:
        show, watch = self._show, self._watch
        node, address, place = watch.coordinator()
        show.step(
            FIND_COORDINATOR,
            f"alice starts and asks who looks after group {GROUP!r}: its name leads to partition {place} of "
            f"__consumer_offsets, which broker {node} ({address}) leads",
        )
        self._start("alice")
        self._joined("alice", "alice joins the group")
        show.step(JOIN_GROUP, "alice asks to be let in; the coordinator waits a moment in case others come too")
        watch.wait_for(lambda view: view.state == "Stable", "the first assignment")
        show.step(SYNC_GROUP, f"alice is alone, so it leads, and gives all {PARTITIONS} partitions to itself")
        self._settled("alice reads")
        self._pause(0.6)
        every, silence = self._tempo.heartbeat_ms, self._tempo.session_ms
        show.step(HEARTBEAT, f"every {every} ms alice says that it lives; silence for {silence} ms is death")
        self._pause(0.8)

    def _more_members(self) -> None:
        show = self._show
        show.step(JOIN_GROUP, "bob and carol join: alice learns of it from its next heartbeat and rejoins as well")
        self._start("bob")
        self._start("carol")
        self._settled("bob and carol are in")
        show.step(SYNC_GROUP, f"the leader divided {PARTITIONS} partitions among three: each order has one reader")
        self._pause(1.2)

    def _crash(self, name: str) -> int:
        show, watch = self._show, self._watch
        process = self._running.pop(name)
        self._until_uncommitted(name)
        process.kill()
        killed_ms = time.time_ns() // 1_000_000
        show.scene.gone[name] = "killed"
        show.step(HEARTBEAT, f"kill -9 {name}: no goodbye. Its partitions wait until its silence is noticed")
        evicted = f"{name} is evicted"
        watch.wait_for(lambda view: any(evicted in line.text for line in view.lines), f"{name} is evicted")
        silence = self._tempo.session_ms
        show.step(JOIN_GROUP, f"{name} was silent for {silence} ms and is out: the others rejoin and share its work")
        self._settled(f"the others take over from {name}")
        self._pause(0.8)
        return killed_ms

    def _replacement(self, name: str) -> None:
        self._show.step(JOIN_GROUP, f"{name} is started to replace it, and takes its share after one more rebalance")
        self._start(name)
        self._settled(f"{name} is in")
        self._pause(0.6)

    def _goodbye(self, name: str) -> None:
        self._show.step(LEAVE_GROUP, f"{name} is stopped properly: it commits, says goodbye, and nobody has to wait")
        process = self._running.pop(name)
        process.ask_to_end()
        self._settled(f"{name} has left")
        self._pause(0.6)

    def _finish(self) -> Proof:
        """No more orders; the readers read on to the end of every log, commit and leave."""
        show, watch = self._show, self._watch
        sold = self._shop.close()
        show.step("SUMMARY", "the shop closes; the readers finish what is left, commit it and leave")
        ends = watch.ends_now()
        watch.wait_for(lambda view: view.has_committed(ends), "everything is read")
        for process in self._running.values():
            process.ask_to_end()
        watch.wait_for(lambda view: view.state == "Empty", "everybody has left")
        for process in self._running.values():
            process.end()
        texts = {name: path.read_text() if path.exists() else "" for name, path in self._files.items()}
        return prove(sold, ends, [read_journal(name, text) for name, text in texts.items()])
