"""S3 on loopback, by moto: `python s3.py PORT DELAY_MS`, every answer takes that longer; or `running`, for a while."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from broker_process import free_ports

BUCKET = "bucket"
START_LIMIT_S = 60


@contextlib.contextmanager
def running(delay_ms: float = 0) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a store for a cluster, and the environment in which it is found."""
    with serving(delay_ms) as endpoint:
        make_bucket(endpoint, BUCKET)
        environment = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT": endpoint,
            "AWS_ENDPOINT_URL": endpoint,
        }
        yield f"s3://{BUCKET}/cluster", environment


@contextlib.contextmanager
def serving(delay_ms: float = 0) -> Iterator[str]:
    """Its endpoint, in a process of its own."""
    (port,) = free_ports(1)
    command = [sys.executable, __file__, str(port), str(delay_ms)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait(20)


def make_bucket(endpoint: str, name: str) -> None:
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT"), timeout=20).close()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("moto does not start: pip install 'moto[server]'") from None
            time.sleep(0.05)


def main(port: int, delay_ms: float) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()  # or two that create one object may both succeed, now and then

    def slow(environ: Any, start_response: Any) -> Any:
        time.sleep(delay_ms / 1000)
        with one_at_a_time:
            return list(application(environ, start_response))

    run_simple("127.0.0.1", port, slow, threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
