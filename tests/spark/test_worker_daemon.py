"""Workers whose task Spark has ended while they were writing end without a traceback; others as they do."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kohort.spark import worker_daemon


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    yield one
    one.close()
    other.close()


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError()])
def test_nobody_is_told_that_nobody_listens(
    sock: socket.socket, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(worker_daemon, "_worker", fails)
    assert worker_daemon.worker(sock, True) == 1


def test_other_ends_of_a_worker_are_left_alone(sock: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_daemon, "_worker", lambda *_: 0)
    assert worker_daemon.worker(sock, True) == 0

    def fails(*_: object) -> int:
        raise ValueError("a bug")

    monkeypatch.setattr(worker_daemon, "_worker", fails)
    with pytest.raises(ValueError, match="a bug"):
        worker_daemon.worker(sock, True)
