"""A broker with group events, the command line as a function, and members that poll in the background."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import kohort
from kohort.client.admin_types import NewTopic

PATIENCE_S = 60
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
_numbers = itertools.count()


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def broker() -> Iterator[kohort.Broker]:
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "kohort.group.events.topic.enable": "true",
    }
    with kohort.Broker(config=config) as running:
        yield running


@pytest.fixture(scope="session")
def admin(broker: kohort.Broker) -> Iterator[kohort.Admin]:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as made:
        yield made


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def rows(self) -> list[list[str]]:
        """The cells of a table, without its headers."""
        assert self.code == 0, self.err
        return [line.split() for line in self.out.splitlines()[1:]]


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    out, err = io.BytesIO(), io.BytesIO()
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    sys.stdout = io.TextIOWrapper(out, "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, "utf-8", write_through=True)
    try:
        yield out, err
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.detach()  # or it would close the buffer
        sys.stdin, sys.stdout, sys.stderr = kept


class CommandLine:
    """What the `kohort` script does with its arguments, in this process: `k("groups", "list")`."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        from kohort.cli.run import run

        data = stdin.encode() if isinstance(stdin, str) else stdin
        os.environ["KOHORT_BOOTSTRAP_SERVER"] = self.servers
        try:
            with _streams(data) as (out, err):
                code = run(list(arguments))
        finally:
            del os.environ["KOHORT_BOOTSTRAP_SERVER"]
        return Result(code, out.getvalue().decode(), err.getvalue().decode())

    def refused(self, *arguments: str, stdin: str | bytes = b"", code: int = 2) -> str:
        """The one sentence that is said."""
        result = self(*arguments, stdin=stdin)
        assert (result.code, result.out) == (code, ""), result
        assert result.err.count("\n") == 1 and "Traceback" not in result.err, result.err
        return result.err.strip()


@pytest.fixture
def k(broker: kohort.Broker) -> CommandLine:
    return CommandLine(broker.bootstrap_servers)


@pytest.fixture
def topic(admin: kohort.Admin) -> str:
    """A topic of three partitions with 10, 20 and 30 records."""
    name = f"topic-{next(_numbers)}"
    admin.create_topics([NewTopic(name, 3, 1, {"retention.ms": "-1"})])
    servers = admin.config["bootstrap.servers"][0]
    with kohort.Producer(bootstrap_servers="{}:{}".format(*servers)) as producer:
        for partition, count in enumerate((10, 20, 30)):
            for number in range(count):
                producer.send(name, f"v{number}", key=f"k{number}", partition=partition, timestamp_ms=1_000 + number)
    return name


class Member:
    """A consumer that polls on a thread of its own until it is closed."""

    def __init__(self, servers: str, group: str, topics: Any, **settings: Any) -> None:
        given = {name: value for name, value in {**QUICK, **settings}.items() if value is not None}
        self.consumer = kohort.Consumer(bootstrap_servers=servers, group_id=group, **given)
        self.records: list[Any] = []
        self.assigned: set[Any] = set()
        self._stop = threading.Event()
        self.consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.records += self.consumer.poll(0.1)
            self.assigned = set(self.consumer.assignment())

    def pause(self) -> None:
        """Stop polling; heartbeats go on."""
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def close(self) -> None:
        self.pause()
        self.consumer.close()

    def crash(self) -> None:
        """Go without leaving."""
        self.pause()
        thread, self.consumer._thread = self.consumer._thread, None
        assert thread is not None
        thread.close()


@pytest.fixture
def join(broker: kohort.Broker) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def start(group: str, topics: Any, **settings: Any) -> Member:
        made.append(Member(broker.bootstrap_servers, group, topics, **settings))
        return made[-1]

    yield start
    for member in made:
        member.close()
