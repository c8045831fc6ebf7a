"""Jobs that may never end, such as an assignor that somebody wrote: each on a thread of its own, and not too many.

Nobody waits for them when the broker stops, and what they say then is not heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from threading import Thread

from kohort.broker.core import Job

MOST = 8
PATIENCE_S = 2.0
Done = Callable[[Job, BaseException | None], None]


def carry_out(job: Job, loop: asyncio.AbstractEventLoop, done: Done) -> None:
    """On a thread. The loop is told without a future of its own, which would cost more than a small job does."""
    error: BaseException | None = None
    try:
        job.run()
    except BaseException as raised:
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(done, job, error)


class Apart:
    def __init__(self, loop: asyncio.AbstractEventLoop, done: Done) -> None:
        self._loop = loop
        self._done = done
        self._running: set[Job] = set()
        self._closed = False

    def run(self, job: Job) -> None:
        if len(self._running) >= MOST:
            self._loop.call_soon(self._finish, job, RuntimeError(f"{MOST} others have not come to an end"))
            return
        self._running.add(job)
        work = (job, self._loop, self._finish)
        Thread(target=carry_out, args=work, name="kohort-apart", daemon=True).start()

    def _finish(self, job: Job, error: BaseException | None) -> None:
        self._running.discard(job)
        if not self._closed:
            self._done(job, error)

    async def settle(self) -> None:
        """For a clock that is set by hand: those that come to an end soon do so before it moves on."""
        until = time.monotonic() + PATIENCE_S
        while self._running and time.monotonic() < until:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self._closed = True
