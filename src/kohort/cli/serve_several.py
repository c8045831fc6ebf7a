"""`kohort serve --brokers N`: brokers of one cluster in this process, in memory, for tests in any language."""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any


class ServingSeveral:
    def __init__(self, options: argparse.Namespace, given: dict[str, str], token: str | None) -> None:
        from kohort.broker.embedded_cluster import Cluster

        self._options = options
        self._token = token
        self._cluster = Cluster(options.brokers, given, port=options.port, host=options.host)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        cluster, control = self._cluster, None
        try:
            await asyncio.to_thread(cluster.start)
            control = await self._start_control()
            print(f"kohort listening on {cluster.bootstrap_servers}", flush=True)
            if control is not None:
                print(f"kohort control on http://{control.host}:{control.port}", flush=True)
            await self._stop.wait()
        finally:
            if control is not None:
                await control.stop()
            await asyncio.to_thread(cluster.close)
        return 0

    async def _start_control(self) -> Any:
        if self._options.control_port is None:
            return None
        from kohort.broker.cluster_control import ClusterRoutes
        from kohort.broker.control import Control

        control = Control(ClusterRoutes(self._cluster), self._token)
        await control.start(self._options.control_port)
        return control
