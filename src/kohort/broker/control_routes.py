"""What each path of the control port does: faults, time, restarts, topics, groups, requests. HTTP is in control.py."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from kohort.broker.boot import RunningBroker
from kohort.broker.client_requests import RequestLog
from kohort.broker.controls import EVICTED
from kohort.broker.faults import Fault
from kohort.broker.http_port import Kinds, Refused, Request
from kohort.broker.inside import GroupSnapshot, StoredRecord
from kohort.protocol.errors import KafkaError

MAX_WAIT_S = 600.0
_OPTIONAL_INT, _OPTIONAL_TEXT, _NUMBER = (int, type(None)), (str, type(None)), (int, float)
_FAULT: Kinds = {
    "action": str,
    "api": str,
    "code": (str, int),
    "seconds": _NUMBER,
    "before": bool,
    "times": _OPTIONAL_INT,
    "after": int,
    "group": str,
    "client": str,
    "topic": str,
    "partition": int,
}
_TOPIC: Kinds = {"name": str, "partitions": int, "configs": dict}
_EVICT: Kinds = {
    "member": _OPTIONAL_TEXT,
    "client": _OPTIONAL_TEXT,
    "group_instance_id": _OPTIONAL_TEXT,
    "reason": str,
}
_WAIT: Kinds = {"members": _OPTIONAL_INT, "partitions": _OPTIONAL_INT, "timeout": _NUMBER}


class Answering:
    """What all ports of control have in common: which status goes with what went wrong."""

    async def answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        try:
            return await self._answer(request)
        except KafkaError as error:
            raise Refused(HTTPStatus.CONFLICT, str(error)) from None
        except (ValueError, LookupError) as error:
            status = HTTPStatus.NOT_FOUND if isinstance(error, LookupError) else HTTPStatus.BAD_REQUEST
            raise Refused(status, str(error)) from None
        except TimeoutError as error:
            raise Refused(HTTPStatus.CONFLICT, str(error)) from None

    async def _answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        raise NotImplementedError


class Routes(Answering):
    """`broker` gives the running broker; `restart` stops it and starts it again with the same data and port."""

    def __init__(self, broker: Callable[[], RunningBroker], restart: Callable[[], Awaitable[None]]) -> None:
        self._broker = broker
        self._restart = restart

    async def _answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        match request.method, *request.path:
            case "POST", "faults":
                return HTTPStatus.CREATED, self._add_fault(request)
            case "POST", "topics":
                return HTTPStatus.CREATED, self._create_topic(request)
            case "POST", "broker", "restart":
                await self._restart()
                return HTTPStatus.OK, {"bootstrap_servers": f"{self._broker().host}:{self._broker().port}"}
            case _, "faults" | "clock" | "requests", *_:
                answer = await self._about_the_broker(request)
            case _, "topics", name, "records":
                answer = await self._records(request, name)
            case _, "groups", name, *rest:
                answer = await self._about_a_group(request, name, rest)
            case _:
                answer = None
        if answer is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.method} /{'/'.join(request.path)}")
        return HTTPStatus.OK, answer

    async def _about_the_broker(self, request: Request) -> dict[str, Any] | None:
        match request.method, *request.path:
            case "GET", "faults":
                return {"faults": [fault.to_dict() for fault in self._broker().core.faults]}
            case "DELETE", "faults":
                return self._clear_faults()
            case "DELETE", "faults", number:
                return self._remove_fault(number)
            case "GET", "clock":
                return {"now_ms": self._broker().clock.now_ms()}
            case "POST", "clock", "advance":
                return await self._advance(request)
            case "GET", "requests":
                found = self._request_log().select(**request.asked("api", "client"))
                return {"requests": [one.to_dict() for one in found]}
            case "DELETE", "requests":
                self._request_log().clear()
                return {"requests": []}
        return None

    async def _about_a_group(self, request: Request, name: str, rest: list[str]) -> dict[str, Any] | None:
        inside = self._broker().inside
        match request.method, *rest:
            case ("GET",):
                return _group(await inside.group(name))
            case "GET", "story":
                return {"group": name, "events": [event.to_dict() for event in self._broker().story(name)]}
            case "GET", "committed":
                rows = await inside.committed(name)
                offsets = [{"topic": t, "partition": p, "offset": offset} for (t, p), offset in sorted(rows.items())]
                return {"group": name, "offsets": offsets}
            case "POST", "evict":
                given = {"reason": EVICTED} | request.json("an eviction", _EVICT)
                return {"group": name, "evicted": await inside.evict(name, **given)}
            case "POST", "wait-stable":
                given = request.json("a wait", _WAIT)
                if not 0 <= given.get("timeout", 0) <= MAX_WAIT_S:
                    raise Refused(HTTPStatus.BAD_REQUEST, f"timeout is in seconds, at most {MAX_WAIT_S:.0f}")
                return _group(await inside.wait_stable(name, **given))
        return None

    # Faults and time.

    def _add_fault(self, request: Request) -> dict[str, Any]:
        given = request.json("a fault", _FAULT)
        if "action" not in given:
            raise Refused(HTTPStatus.BAD_REQUEST, "action is missing: fail, delay, drop or disconnect")
        return self._broker().core.faults.add(Fault(**given)).to_dict()

    def _clear_faults(self) -> dict[str, Any]:
        running = self._broker()
        running.core.faults.clear(running.core, running.clock.now_ms())
        running.server.end_turn()
        return {"faults": []}

    def _remove_fault(self, number: str) -> dict[str, Any]:
        faults = self._broker().core.faults
        for fault in faults:
            if str(fault.id) == number:
                faults.remove(fault)
                return fault.to_dict()
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no fault {number}")

    async def _advance(self, request: Request) -> dict[str, Any]:
        await self._broker().server.advance(seconds_in(request))
        return {"now_ms": self._broker().clock.now_ms()}

    # Topics and requests.

    def _create_topic(self, request: Request) -> dict[str, Any]:
        name, partitions, configs = topic_in(request)
        running = self._broker()
        running.core.topics.create(name, partitions, configs)
        running.server.end_turn()
        return {"name": name, "partitions": partitions}

    async def _records(self, request: Request, topic: str) -> dict[str, Any] | None:
        if request.method != "GET":
            return None
        found = await self._broker().inside.records(topic, partition_in(request))
        return {"topic": topic, "records": [record_row(record) for record in found]}

    def _request_log(self) -> RequestLog:
        log = self._broker().core.request_log
        if log is None:
            raise Refused(HTTPStatus.NOT_FOUND, "this broker does not keep requests")
        return log


def topic_in(request: Request) -> tuple[str, int, dict[str, str]]:
    given = request.json("a topic", _TOPIC)
    if not given.get("name"):
        raise Refused(HTTPStatus.BAD_REQUEST, "name is missing: how the topic is called")
    configs = {key: str(value) for key, value in given.get("configs", {}).items()}
    return given["name"], given.get("partitions", 1), configs


def partition_in(request: Request, *others: str) -> int | None:
    """The one that is asked for in the query, if any."""
    partition = request.asked("partition", *others).get("partition")
    if partition is not None and not partition.isdigit():
        raise Refused(HTTPStatus.BAD_REQUEST, f"partition cannot be {partition!r}")
    return None if partition is None else int(partition)


def seconds_in(request: Request) -> float:
    seconds = request.json("a step of the clock", {"seconds": object}).get("seconds")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= 1e9:
        raise Refused(HTTPStatus.BAD_REQUEST, 'write {"seconds": 45}: how far, not negative')
    return seconds


def record_row(record: StoredRecord) -> dict[str, Any]:
    headers = [{"key": key, **_bytes("value", value)} for key, value in record.headers]
    where = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
    return where | _bytes("key", record.key) | _bytes("value", record.value) | {"headers": headers}


def _group(group: GroupSnapshot) -> dict[str, Any]:
    members = [member._asdict() for member in group.members]
    return {"group": group.group_id, "state": group.state, "protocol": group.protocol, "members": members}


def _bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """Text where it is UTF-8, else base64 under a name that says so, as `kohort consume` prints it."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
