"""The small HTTP ports: health and readiness, the control port's token, peers that are slow, large or many."""

import asyncio
import json
from http import HTTPStatus

import pytest

from kohort.broker import http_port
from kohort.broker.control import Control
from kohort.broker.control_routes import Routes
from kohort.broker.groups import GroupService
from kohort.broker.health import Health, health_of, text
from kohort.broker.http_port import HttpPort, Reply
from kohort.broker.metrics_port import MetricsPort
from kohort.coordinator.shard import Life
from kohort.protocol import messages
from wire import World

LIMIT_S = 60


async def ask(port, data):
    """What a peer that sends these bytes is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), LIMIT_S)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(path, *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def on_a_port(made, story):
    async def run():
        await made.start("127.0.0.1", 0)
        try:
            return await story(made.port)
        finally:
            await made.stop()

    return asyncio.run(run())


async def echo(request):
    return Reply(HTTPStatus.OK, "/".join(request.path).encode() + request.body)


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (get("/a/b"), b"200 OK"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 20_000 + b"\r\n\r\n", b"431"),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n", b"413"),
        ("POST / HTTP/1.1\r\ncontent-length: \u00b2\r\n\r\n".encode("latin-1"), b"413"),
        (b"\x16\x03\x01 hello\r\n\r\n", b"400"),
    ],
    ids=["good", "head", "body", "digits", "tls"],
)
def test_what_is_not_a_small_request_is_refused(sent, answered):
    assert answered in on_a_port(HttpPort(echo), lambda port: ask(port, sent)).split(b"\r\n")[0]


def test_slow_and_many_peers_lose_their_connections(monkeypatch):
    monkeypatch.setattr(http_port, "PATIENCE_S", 0.05)
    monkeypatch.setattr(http_port, "MOST_CONNECTIONS", 3)

    async def story(port):
        loris = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for _, writer in loris:
            writer.write(b"GET / HT")
        for reader, writer in loris:
            try:
                assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
            except ConnectionError:
                pass
            writer.close()
        return await ask(port, get("/still"))

    assert on_a_port(HttpPort(echo), story).endswith(b"still")


def test_a_handler_that_fails_tells_nobody_why():
    async def fails(request):
        raise RuntimeError("a secret")

    answer = on_a_port(HttpPort(fails), lambda port: ask(port, get("/")))
    assert b"500" in answer and b"secret" not in answer


def test_the_control_port_wants_its_token():
    control = Control(Routes(lambda: None, None), token="s3cret")

    async def story(port):
        return [
            await ask(port, get("/nowhere", *headers))
            for headers in (
                [],
                ["Authorization: Bearer wrong"],
                ["Authorization: Bearer \u00e9"],
                ["Authorization: Bearer s3cret", "Origin: http://evil"],
                ["Authorization: Bearer s3cret"],
            )
        ]

    async def run():
        await control.start(0)
        try:
            return await story(control.port)
        finally:
            await control.stop()

    answers = asyncio.run(run())
    assert [int(answer.split()[1]) for answer in answers] == [401, 401, 401, 403, 404]
    assert all("error" in json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers)
    assert not any(b"s3cret" in answer for answer in answers)


def test_health_and_readiness_over_http():
    state = [Health([], ["the broker is starting"])]

    async def story(port):
        first = [await ask(port, get(path)) for path in ("/health", "/ready", "/metrics", "/nothing")]
        state[0] = Health(["t-0 is offline: full"], [])
        return first, [await ask(port, get(path)) for path in ("/health", "/ready")]

    first, then = on_a_port(MetricsPort(lambda: None, lambda: state[0]), story)
    assert [int(answer.split()[1]) for answer in first] == [200, 503, 503, 404]
    assert b"starting" in first[1]
    assert [int(answer.split()[1]) for answer in then] == [503, 200] and b"t-0 is offline" in then[0]


def test_what_makes_a_broker_ready_and_healthy():
    world = World({"offsets.topic.num.partitions": 2}, groups=GroupService)
    topic = world.create_topic("t", 2)
    assert health_of(world.core, is_stopping=False) == Health([], [])
    assert health_of(None, is_stopping=False).is_ready is False
    assert not health_of(world.core, is_stopping=True).is_ready
    world.connect().call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    shard = next(iter(world.groups.coordinator.runtime.shards.values()))
    world.groups.coordinator.runtime.crashed(shard, world.now_ms)
    assert "loading" in health_of(world.core, is_stopping=False).waits_for[0]
    shard.become(Life.FAILED)
    assert "cannot be read" in health_of(world.core, is_stopping=False).failures[0]
    topic.partitions[1].log.failure = OSError("no space")
    found = health_of(world.core, is_stopping=False)
    assert not found.is_healthy and any("t-1 is offline: no space" in line for line in found.failures)


def test_a_long_list_of_failures_is_cut():
    assert text("failing", [f"p{n}" for n in range(30)]).decode().splitlines()[-1] == "and 10 more"
