"""A broker as a subprocess on loopback: its folder, its life, how one sees that it answers. Others say which broker."""

from __future__ import annotations

import atexit
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def ask(port: int, api_key: int, version: int, body: bytes, timeout: float = 5.0) -> bytes:
    """One request with header version 1; the response without its size and correlation id."""
    payload = struct.pack(">hhih", api_key, version, 1, 5) + b"probe" + body
    with socket.create_connection(("127.0.0.1", port), timeout) as sock:
        sock.sendall(struct.pack(">i", len(payload)) + payload)
        with sock.makefile("rb") as stream:
            head = stream.read(4)
            if len(head) < 4:
                raise ConnectionError("closed")
            return stream.read(struct.unpack(">i", head)[0])[4:]


def answers_api_versions(port: int) -> bool:
    try:
        return ask(port, 18, 0, b"")[:2] == b"\0\0"
    except OSError:
        return False


class BrokerProcess:
    """A context manager; ended at exit in any case. Its folder is removed unless the caller named it."""

    name = "the broker"
    start_timeout: float = 60
    look_every: float = 0.02
    """Seconds between two looks at a broker that is starting."""

    def __init__(
        self, config: Mapping[str, object] | None = None, *, data_dir: Path | str | None = None, log_level: str
    ) -> None:
        self.config = dict(config or {})
        self._own_dir = tempfile.mkdtemp(prefix=f"{self.name.lower().replace(' ', '-')}-") if data_dir is None else None
        self.home = Path(self._own_dir or data_dir or "").resolve()
        self.data_dir = self.home / "data"
        self.log_file = self.home / "server.log"
        self.log_level = log_level
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.startup_seconds = 0.0
        """From the start of the process to the first answered request, at the last start."""

    # -- for each kind of broker to say

    def _command(self) -> list[str]:
        """What starts it; the place to prepare its folder."""
        raise NotImplementedError

    @staticmethod
    def _usable(port: int) -> bool:
        """Whether one that answers can be used already."""
        return True

    # -- what it is

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 60) -> str:
        if not self.log_file.exists():
            return "(no log)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    # -- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start, and return when the broker can be used."""
        if self.running:
            return
        atexit.register(self.close)
        self.home.mkdir(parents=True, exist_ok=True)
        command = self._command()
        began = time.monotonic()
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.home)
        try:
            self._wait_until(answers_api_versions, began)
            self.startup_seconds = time.monotonic() - began
            self._wait_until(self._usable, began)
        except BaseException:
            self.kill()
            raise

    def _wait_until(self, condition: Callable[[int], bool], began: float) -> None:
        while not condition(self.port):
            if not self.running:
                raise RuntimeError(f"{self.name} ended while starting; its log:\n{self.log_tail()}")
            if time.monotonic() - began > self.start_timeout:
                raise TimeoutError(f"{self.name} did not answer in {self.start_timeout} s; its log:\n{self.log_tail()}")
            time.sleep(self.look_every)

    def stop(self, timeout: float = 60) -> None:
        """SIGTERM and wait; the data stays for the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill -9; the data stays for the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """End it and remove what it wrote, unless the caller named the data directory."""
        if self._own_dir is None:
            self.stop()
        else:
            self.kill()
            shutil.rmtree(self._own_dir, ignore_errors=True)
        atexit.unregister(self.close)
