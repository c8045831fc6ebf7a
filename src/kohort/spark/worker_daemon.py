"""Spark's daemon of Python workers, without a traceback where Spark has ended a task that was still writing.

The launcher of interpreter.py starts it. It forks the workers: nothing may be imported here that starts a thread.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1  # nobody is there to tell


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
