"""What each path of the control port does where it controls several brokers: their lives, who leads what, and, for one
of them or for the coordinator of a group, all that the port of a single broker does. HTTP is in control.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from kohort.broker.boot import RunningBroker
from kohort.broker.control_routes import Answering, Routes, partition_in, record_row, seconds_in, topic_in
from kohort.broker.embedded_cluster import Cluster, ClusterBroker
from kohort.broker.http_port import Kinds, Refused, Request

_T = TypeVar("_T")
_PARTITION: Kinds = {"store": bool, "clients": bool}
_MOVE: Kinds = {"topic": str, "partition": int, "to": int}
_ACTIONS = ("kill", "stop", "start", "pause", "resume", "heal")
MOST_BROKERS = 20


class ClusterRoutes(Answering):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changing = asyncio.Lock()

    async def _answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        try:
            return await self._of_the_cluster(request)
        except RuntimeError as error:  # what is asked for is not running
            raise Refused(HTTPStatus.CONFLICT, str(error)) from None

    async def _of_the_cluster(self, request: Request) -> tuple[HTTPStatus, Any]:
        match request.method, *request.path:
            case "POST", "brokers":
                return HTTPStatus.CREATED, await self._add()
            case "POST", "topics":
                return HTTPStatus.CREATED, await self._create_topic(request)
            case _, "brokers", node_id, action, *rest:
                return await self._of_a_broker(request, _number(node_id), [action, *rest])
            case "GET", "groups", group, "coordinator":
                return HTTPStatus.OK, {"group": group, "node_id": await self._coordinator(group)}
            case _, "groups", group, *_:
                return await self._passed_on(self._broker(await self._coordinator(group)), request)
            case _, "faults" | "requests", *_:
                raise Refused(HTTPStatus.NOT_FOUND, f"name the broker: /brokers/1/{'/'.join(request.path)}")
        if (answer := await self._other(request)) is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.method} /{'/'.join(request.path)}")
        return HTTPStatus.OK, answer

    async def _other(self, request: Request) -> dict[str, Any] | None:
        match request.method, *request.path:
            case "GET", "cluster":
                return self._told()
            case "POST", "cluster", "move":
                return await self._move(request)
            case "GET", "topics", name, "leader":
                (partition,) = await self._partitions(name, partition_in(request) or 0)
                leader = await self._work(lambda: self._cluster.leader_of(name, partition))
                return {"topic": name, "partition": partition, "node_id": leader}
            case "GET", "topics", name, "records":
                return await self._records(request, name)
            case "GET", "clock":
                return {"now_ms": self._cluster.clock.now_ms()}
            case "POST", "clock", "advance":
                seconds = seconds_in(request)
                await self._work(lambda: self._cluster.clock.advance(seconds))
                return {"now_ms": self._cluster.clock.now_ms()}
        return None

    # Brokers.

    def _told(self) -> dict[str, Any]:
        brokers = [
            {
                "node_id": node_id,
                "address": f"{broker.host}:{broker.port}",
                "running": broker.running,
                "paused": broker.is_paused,
            }
            for node_id, broker in self._cluster.brokers.items()
        ]
        return {"bootstrap_servers": self._cluster.bootstrap_servers, "brokers": brokers}

    async def _add(self) -> dict[str, Any]:
        if len(self._cluster.brokers) >= MOST_BROKERS:
            raise Refused(HTTPStatus.CONFLICT, f"there are {MOST_BROKERS} brokers already: start one of them")
        async with self._changing:
            node_id = await self._work(self._cluster.add)
        return {"node_id": node_id, "bootstrap_servers": self._cluster.bootstrap_servers}

    async def _of_a_broker(self, request: Request, node_id: int, path: list[str]) -> tuple[HTTPStatus, Any]:
        broker = self._broker(node_id)
        if request.method == "POST" and path == ["partition"]:
            given = request.json("a partition", _PARTITION)
            self._awake(broker)
            await self._change(lambda: self._cluster.partition(node_id, **given))
        elif request.method == "POST" and len(path) == 1 and path[0] in _ACTIONS:
            if path[0] == "heal":
                self._awake(broker)
            action = getattr(self._cluster, path[0])
            await self._change(lambda: action(node_id))
        else:
            request.path = path
            return await self._passed_on(broker, request)
        return HTTPStatus.OK, self._told()

    async def _change(self, action: Callable[[], Any]) -> None:
        async with self._changing:
            await self._work(action)

    def _broker(self, node_id: int) -> ClusterBroker:
        if node_id not in self._cluster.brokers:
            raise LookupError(f"there is no broker {node_id}: {', '.join(map(str, self._cluster.brokers))}")
        return self._cluster.brokers[node_id]

    def _awake(self, broker: ClusterBroker) -> RunningBroker:
        running = broker._running
        if running is None:
            raise RuntimeError(f"broker {broker.node_id} is not running: start it first")
        if broker.is_paused:
            raise RuntimeError(f"broker {broker.node_id} stands still: resume it first")
        return running

    async def _passed_on(self, broker: ClusterBroker, request: Request) -> tuple[HTTPStatus, Any]:
        """As if it were asked by itself, on the thread that owns it."""
        running = self._awake(broker)
        assert broker._loop is not None
        routes = Routes(lambda: running, self._no_restart)
        asked = asyncio.run_coroutine_threadsafe(routes.answer(request), broker._loop)
        return await asyncio.wrap_future(asked)

    async def _no_restart(self) -> None:
        raise ValueError("of several brokers each is stopped and started: POST /brokers/1/stop, then start")

    # Topics, and who leads them.

    async def _coordinator(self, group: str) -> int:
        return await self._work(lambda: self._cluster.coordinator_of(group))

    async def _move(self, request: Request) -> dict[str, Any]:
        given = request.json("a move", _MOVE)
        if missing := [name for name in _MOVE if name not in given]:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{missing[0]} is missing: a move has {', '.join(_MOVE)}")
        self._awake(self._broker(given["to"]))
        await self._partitions(given["topic"], given["partition"])
        await self._change(lambda: self._cluster.move(given["topic"], given["partition"], to=given["to"]))
        return given

    async def _create_topic(self, request: Request) -> dict[str, Any]:
        name, partitions, configs = topic_in(request)
        await self._work(lambda: self._cluster.create_topic(name, partitions, configs))
        return {"name": name, "partitions": partitions}

    async def _records(self, request: Request, topic: str) -> dict[str, Any]:
        wanted = await self._partitions(topic, partition_in(request))
        found = await self._work(lambda: [row for index in wanted for row in self._cluster.records(topic, index)])
        return {"topic": topic, "records": [record_row(record) for record in found]}

    async def _partitions(self, topic: str, wanted: int | None) -> list[int]:
        """The one that is wanted, or all; whoever asks for another is told, and does not wait for its leader."""
        count = await self._work(lambda: self._cluster.partitions_of(topic))
        if not count:
            raise LookupError(f"there is no topic {topic}")
        if wanted is not None and not 0 <= wanted < count:
            raise LookupError(f"{topic} has {count} partitions, no {wanted}")
        return list(range(count)) if wanted is None else [wanted]

    async def _work(self, function: Callable[[], _T]) -> _T:
        """What waits for threads of brokers does so on another one."""
        return await asyncio.to_thread(function)


def _number(word: str) -> int:
    if not word.isdigit():
        raise ValueError(f"{word} is no number of a broker")
    return int(word)
