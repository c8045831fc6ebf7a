"""Tasks and the query's membership over TLS. The broker speaks plain text, so a proxy in front of it ends the TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from kohort.client.errors import NotConnectedError
from kohort.spark.cluster import Cluster
from kohort.spark.options import parse_read_options
from kohort.spark.planning import bounded_ranges
from spark.conftest import BROKER
from spark.query import Query, committed, create, produce, stopping, unique


class TlsProxy:
    """Ends TLS on a port of its own and passes everything on to `target`, in a thread."""

    def __init__(self, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self.target = 0
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    @staticmethod
    async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def _end(self) -> None:
        self._server.close()
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@pytest.fixture(scope="module")
def tls(certificate: Path) -> Iterator[str]:
    """The address with TLS, which is also what the broker tells its clients."""
    proxy = TlsProxy(certificate)
    secure = f"127.0.0.1:{proxy.port}"
    with kohort.Broker(config={**BROKER, "advertised.listeners": secure}) as broker:
        proxy.target = broker.port
        yield secure
    proxy.close()


def test_a_query_joins_reads_and_commits_over_tls(tls: str, certificate: Path) -> None:
    topic, group = unique("orders"), unique()
    client = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
    create(tls, topic, client=client)
    produce(tls, topic, [f"{number:01000d}" for number in range(400)], client=client)
    settings = {"kafka_security_protocol": "SSL", "kafka_ssl_cafile": str(certificate)}
    query = Query(tls, group, subscribe=topic, **settings)
    with stopping(query):
        query.step_until(400)
        assert sorted(map(int, query.values())) == list(range(400))
    assert committed(tls, group, topic, client=client) == {0: 100, 1: 100, 2: 100, 3: 100}


def test_a_certificate_that_is_not_trusted_is_refused(tls: str) -> None:
    options = parse_read_options(
        {
            "kafka.bootstrap.servers": tls,
            "subscribe": "orders",
            "kafka.security.protocol": "SSL",
            "kafka.default.api.timeout.ms": "500",
            "kafka.request.timeout.ms": "400",
        },
        "batch",
    )
    with pytest.raises(NotConnectedError, match="certificate verify failed"):
        bounded_ranges(Cluster(options.config()), options)
