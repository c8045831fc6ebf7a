"""Random sequences of group requests from a seed: members that mostly behave, and sometimes do not.

Every seed draws its own versions, protocols, static members and mistakes. No step waits for time to pass.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from conformance.group_script import Script, subscription

METADATA = (subscription("t0"), subscription("t1"), subscription("t0", "t1"), b"", b"new")
"""The last two are no subscriptions. Longer nonsense, which announces a huge array, is not sent: there Kafka 4.3 fails
while it completes the rebalance, and the group stays in PreparingRebalance for good. kohort goes on."""

PROTOCOLS = ("range", "roundrobin", "sticky", "cooperative-sticky")


def random_script(seed: int) -> Script:
    return RandomScript(seed).write()


class RandomScript:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.script = Script(f"random-{seed}", f"random-{seed}", seed)
        self.actors = list("abcde"[: self.random.randint(1, 5)])
        self.common = self.random.choice(PROTOCOLS)
        for actor in self.actors:
            if self.random.random() < 0.3:
                self.script.static(actor, f"i-{self.random.choice(self.actors)}")
            others = [p for p in PROTOCOLS if p != self.common and self.random.random() < 0.3]
            offered = self.random.sample([self.common, *others], 1 + len(others))
            self.script.supports(actor, *offered, metadata=self.random.choice(METADATA))

    def write(self) -> Script:
        if self.random.random() < 0.7:
            present = self.random.sample(self.actors, self.random.randint(1, min(3, len(self.actors))))
            self.script.assemble(*present)
        moves: list[tuple[float, Callable[[str], None]]] = [
            (5, self.rejoin),
            (3, self.enter),
            (6, self.sync),
            (3, self.heartbeat),
            (3, self.commit),
            (2, self.leave),
            (1, self.round),
            (2, self.mistake),
            (1, self.tool),
        ]
        for _ in range(self.random.randint(8, 20)):
            (move,) = self.random.choices([m for _, m in moves], [w for w, _ in moves])
            move(self.random.choice(self.actors))
        self.script.fetch()
        return self.script

    def rejoin(self, actor: str) -> None:
        changed = [(self.common, self.random.choice(METADATA))] if self.random.random() < 0.3 else None
        self.script.join(actor, protocols=changed)

    def enter(self, actor: str) -> None:
        self.script.enter(actor)

    def sync(self, actor: str) -> None:
        self.script.sync(actor, assign=self.random.choice(("all", "all", "all", "self", "none", "stranger")))

    def heartbeat(self, actor: str) -> None:
        self.script.heartbeat(actor)

    def leave(self, actor: str) -> None:
        others = self.random.sample(self.actors, self.random.randint(0, min(2, len(self.actors))))
        named = [(name, "own", self.script.instances.get(name)) for name in others]
        self.script.leave(actor, *named)

    def round(self, actor: str) -> None:
        """Everybody rejoins and syncs, in an order of its own."""
        for act in (self.script.join, self.script.sync):
            for name in self.random.sample(self.actors, len(self.actors)):
                act(name)

    def commit(self, actor: str) -> None:
        offsets = [(topic, p, self.random.randint(0, 99)) for topic, p in (("t0", 0), ("t0", 2), ("t1", 0))]
        generation = None if self.random.random() < 0.2 else 0
        picked = self.random.sample(offsets, self.random.randint(1, 3))
        self.script.commit(actor, offsets=picked, generation=generation)

    def mistake(self, actor: str) -> None:
        s, who = self.script, self.random.choice(("own", "none", "first", "nobody"))
        instance = self.random.choice((None, "i-a", "i-b", "unknown"))
        delta = self.random.choice((-1, 0, 1))
        self.random.choice(
            (
                lambda: s.join(actor, member=who, instance=instance),
                lambda: s.join(actor, protocols=[("other", b"")]),
                lambda: s.join(actor, protocol_type="connect"),
                lambda: s.sync(actor, member=who, generation=delta, instance=instance),
                lambda: s.sync(actor, protocol_name=self.random.choice(PROTOCOLS)),
                lambda: s.heartbeat(actor, member=who, generation=delta, instance=instance),
                lambda: s.commit(actor, member=who, generation=delta, instance=instance),
                lambda: self.oversized_commit(actor),
                lambda: s.commit(actor, offsets=[("missing", 0, 1), ("t0", 7, 1), ("t0", 1, 1)]),
                lambda: s.leave(actor, (actor, who, instance)),
            )
        )()

    def oversized_commit(self, actor: str) -> None:
        """After one that makes the group: where the refused commit is a group's first, Kafka 4.3 keeps a group that
        commits and joins see but that describing it says is Dead, until something is stored."""
        self.script.commit(actor, generation=None)
        self.script.commit(actor, metadata="x" * 5000)

    def tool(self, actor: str) -> None:
        s = self.script
        self.random.choice(
            (
                s.describe,
                s.list_groups,
                s.delete_groups,
                s.fetch,
                lambda: s.fetch(topics={"t0": [0, 1, 2], "t1": [0]}, stable=True),
                lambda: s.delete_offsets(("t0", 0), ("t1", 0)),
            )
        )()
