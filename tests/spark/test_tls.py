"""Tasks and the query's membership over TLS. The broker speaks plain text, so a proxy in front of it ends the TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kohort
from kohort.client.errors import NotConnectedError
from kohort.spark.cluster import Cluster
from kohort.spark.options import parse_read_options, parse_write_options
from kohort.spark.planning import bounded_ranges
from kohort.spark.sink import write
from spark.conftest import BROKER
from spark.query import Query, committed, create, produce, stopping, unique


class TlsProxy:
    """Ends TLS on a port of its own and passes everything on to `target`, in a thread."""

    def __init__(self, certificate: Path, of_clients: Path | None = None) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        if of_clients is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(of_clients)
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
    yield from behind(TlsProxy(certificate))


@pytest.fixture(scope="module")
def mutual_tls(certificate: Path) -> Iterator[str]:
    """The same, where clients show certificates too."""
    yield from behind(TlsProxy(certificate, certificate))


def behind(proxy: TlsProxy) -> Iterator[str]:
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


@pytest.mark.parametrize("how", ["files", "a PEM store", "PEM text"])
def test_a_query_and_a_sink_with_a_certificate_of_their_own(mutual_tls: str, certificate: Path, how: str) -> None:
    topic, group, text = unique("orders"), unique(), certificate.read_text()
    key = (
        text[text.index("-----BEGIN PRIVATE KEY") : text.index("-----END PRIVATE KEY-----")]
        + "-----END PRIVATE KEY-----"
    )
    chain = text[text.index("-----BEGIN CERT") : text.rindex("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----"
    own = {
        "files": {"ssl.cafile": str(certificate), "ssl.certfile": str(certificate), "ssl.keyfile": str(certificate)},
        "a PEM store": {
            "ssl.truststore.location": str(certificate), "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(certificate), "ssl.keystore.type": "PEM",
        },
        "PEM text": {
            "ssl.truststore.type": "PEM", "ssl.truststore.certificates": chain,
            "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key,
        },
    }[how]  # fmt: skip
    client = {"security.protocol": "SSL", "ssl.ca.location": str(certificate),
              "ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}  # fmt: skip
    create(mutual_tls, topic, client=client)
    settings = {"kafka.security.protocol": "SSL", **{f"kafka.{name}": value for name, value in own.items()}}
    sink = parse_write_options({"kafka.bootstrap.servers": mutual_tls, "topic": topic, **settings})
    assert write(sink, ("value",), iter([pa.record_batch({"value": [b"a", b"b"]})])).records == 2
    query = Query(mutual_tls, group, subscribe=topic, **settings)
    with stopping(query):
        query.step_until(2)
        assert sorted(query.values()) == ["a", "b"]


def test_a_query_without_a_certificate_is_refused_where_one_is_wanted(mutual_tls: str, certificate: Path) -> None:
    given = {
        "kafka.bootstrap.servers": mutual_tls, "subscribe": "orders", "kafka.security.protocol": "SSL",
        "kafka.ssl.cafile": str(certificate), "kafka.default.api.timeout.ms": "500", "kafka.request.timeout.ms": "400",
    }  # fmt: skip
    options = parse_read_options(given, "batch")
    with pytest.raises(NotConnectedError):
        bounded_ranges(Cluster(options.config()), options)
