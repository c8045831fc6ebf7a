"""What must not depend on where the tests run: Hypothesis' time limit per example, whether Ctrl-C and Ctrl-\\ are
heard. And what tests of several packages need."""

import logging
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# What takes longest begins first, so that no process is left alone with it at the end; the rest comes as it is found.
LONG = (
    "sim",
    "cli/test_demo.py",
    "history",
    "spark",
    "console",
    "broker/test_cluster",
    "broker/test_crash.py",
    "client/test_consumer_protocol.py",
    "cluster",
    "test_",
    "broker/test_",
    "fuzz",
    "schemes",
    "cli",
)

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell starts what runs in its background with both signals ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        return next((number for number, start in enumerate(LONG) if path.startswith(start)), len(LONG))

    items.sort(key=rank)


@pytest.fixture(autouse=True)
def logging_is_on() -> Iterator[None]:
    """Commands that say everything themselves switch it off for their process, which here is that of all tests."""
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl not found")
    folder = tmp_path_factory.mktemp("tls")
    key, cert, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return both
