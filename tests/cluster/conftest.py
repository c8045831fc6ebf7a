"""A bucket of S3, served by moto in a process of its own."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

S3 = Path(__file__).resolve().parents[2] / "tools" / "s3.py"


@pytest.fixture(scope="session")
def moto():
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, str(S3), str(port), "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, "moto does not start"
            time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(20)


@pytest.fixture
def bucket(moto, request):
    import urllib.request

    from kohort.cluster.object_engine import ObjectEngine

    name = f"b{abs(hash(request.node.nodeid)) % 10**12}"
    urllib.request.urlopen(urllib.request.Request(f"{moto}/{name}", method="PUT"), timeout=20)
    return ObjectEngine(
        f"s3://{name}/prefix",
        endpoint=moto,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        client_options={"allow_http": True},
    )
