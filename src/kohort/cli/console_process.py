"""The console of a `kohort serve`, as a child that ends with its parent, however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from kohort.broker.boot import StartError

PATIENCE_S = 60
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
SAYS = "kohort console on "


@dataclass(slots=True)
class ConsoleProcess:
    process: asyncio.subprocess.Process
    address: str

    @classmethod
    async def start(cls, host: str, broker_port: int, port: int) -> ConsoleProcess:
        if find_spec("starlette") is None or find_spec("uvicorn") is None:
            raise StartError("--console-port needs more packages: pip install 'kohort[console]'")
        host = EVERYWHERE.get(host, host)
        server = f"[{host}]:{broker_port}" if ":" in host else f"{host}:{broker_port}"
        words = ["console", "--bootstrap-server", server, "--port", str(port), "--end-with-stdin"]
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "kohort.cli", *words]
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        line = ""
        with contextlib.suppress(TimeoutError):
            line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode().strip()
        started = cls(process, line.removeprefix(SAYS))
        if not line.startswith(SAYS):
            await started.stop()
            raise StartError(f"--console-port {port}: the console did not start, and says why above")
        return started

    async def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 10)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
