"""Where a simulated client sends what it asks for itself: to the one broker, or to whoever leads or coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kohort.client.types import TopicPartition
from kohort.sim.client import Channel

if TYPE_CHECKING:
    from kohort.sim.broker import SimBroker
    from kohort.sim.world import World


class Coordinator(NamedTuple):
    key_type: int
    key: str


Place = TopicPartition | Coordinator | None
"""What a request is about; nothing where any broker will do."""


class OneRoute:
    def __init__(self, world: World, name: str) -> None:
        self._channel = Channel(world, name, name)

    def is_known(self, place: Place) -> bool:
        return True

    def to(self, place: Place) -> Channel:
        return self._channel

    def learn(self, place: Place, node_id: int) -> None:
        """There is only one; -1 where the one that was asked is not the right one, and does not name another."""

    def vanish(self) -> None:
        """The client's process died."""
        self._channel.vanish()


class Routes(OneRoute):
    """Brokers are found by asking, one after another where none is named."""

    def __init__(self, world: World, name: str, random: Random, nodes: Sequence[SimBroker]) -> None:
        self._world = world
        self._name = name
        self._random = random
        self._nodes = nodes
        self._channels: dict[str, Channel] = {}
        self._known: dict[Place, str] = {}

    def is_known(self, place: Place) -> bool:
        return place in self._known

    def to(self, place: Place) -> Channel:
        name = self._known.get(place) or self._random.choice(self._nodes).name
        if name not in self._channels:
            self._channels[name] = Channel(self._world, self._name, self._name, name)
        return self._channels[name]

    def learn(self, place: Place, node_id: int) -> None:
        if node_id >= 0:
            self._known[place] = f"b{node_id}"
        else:
            self._known.pop(place, None)

    def vanish(self) -> None:
        for channel in self._channels.values():
            channel.vanish()
