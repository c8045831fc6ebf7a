"""What goes wrong in a cluster: brokers die, stand still, stop, are cut off from store or clients, and join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.sim.nemesis import Faults, Nemesis

if TYPE_CHECKING:
    from kohort.sim.cluster_node import SimNode
    from kohort.sim.cluster_world import ClusterWorld


class ClusterNemesis(Nemesis):
    def __init__(self, world: ClusterWorld) -> None:
        self._cluster = world
        super().__init__(world)

    def _faults(self) -> Faults:
        options = self._world.options
        return {
            **self._client_faults(),
            "kill": (options.kill_every_ms, self._kill),
            "pause": (options.pause_every_ms, self._pause),
            "clean restart": (options.restart_every_ms, self._restart),
            "cut off from the store": (options.store_cut_every_ms, self._cut_off),
            "cut off from clients": (options.hide_every_ms, self._hide),
            "move": (options.move_every_ms, lambda: self._cluster.move_a_partition(self._random)),
            "join": (options.join_every_ms, self._cluster.join),
        }

    def _node(self) -> SimNode:
        return self._random.choice(self._cluster.nodes)

    def _again(self, node: SimNode) -> None:
        self._world.scheduler.after(self._random.choice([100, 3_000, 15_000]), node.start)

    def _kill(self) -> None:
        node = self._node()
        node.kill()
        self._again(node)

    def _restart(self) -> None:
        node = self._node()
        node.stop()
        self._again(node)

    def _pause(self) -> None:
        session_ms = self._world.options.broker_session_timeout_ms
        duration_ms = self._random.choice([session_ms // 2, 2 * session_ms, 2 * session_ms, 5 * session_ms])
        node = self._node()
        self._random.choice([node.stall, node.suspend])(duration_ms)

    def _cut_off(self) -> None:
        node = self._node()
        node.cut_off(True)
        self._world.scheduler.after(self._random.choice([500, 5_000, 20_000]), node.cut_off, False)

    def _hide(self) -> None:
        name = self._node().name
        self._world.network.partition(name)
        self._world.scheduler.after(self._random.choice([500, 5_000, 20_000]), self._world.network.heal, name)
