"""Section `security`: what TLS and SASL cost a broker, beside plain connections and beside a real Kafka.

One broker a side with every kind of listener, the same certificate (EC P-256) and users on both. Heartbeats and records
over each; then connections that are opened, log in and are closed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apache_kafka import free_ports
from broker import FETCH_VERSION, PRODUCE_VERSION, batch_of, check_fetched, check_produced, create_topic, fill_topic
from hostile_attacks import Wire, find_coordinator, join
from kafka_socket import KafkaSocket
from kohort.broker.certificates import TestAuthority
from kohort.client.sasl import Credentials, exchange
from kohort.protocol import messages as m
from loadgen import Lane, Load, pump
from process import cpu_seconds
from tables import Table
from targets import KafkaTarget, KohortTarget, Target

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER, PASSWORD = "bench", "bench-secret"
LOGINS = {
    "TCP alone": ("PLAINTEXT", None),
    "TLS": ("SSL", None),
    "PLAIN": ("SASL_PLAINTEXT", "PLAIN"),
    "SCRAM-SHA-256": ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    "TLS and SCRAM-SHA-512": ("SASL_SSL", "SCRAM-SHA-512"),
}
SIZE, CONNECTIONS, DEPTH = 65536, 8, 8


class Secured(KafkaSocket):
    """A connection by one of the listeners, authenticated."""

    def __init__(self, address: str, protocol: str, context: ssl.SSLContext, mechanism: str | None) -> None:
        super().__init__(address)
        if protocol.endswith("SSL"):
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        if mechanism is not None:
            self._log_in(mechanism)

    def _log_in(self, mechanism: str) -> None:
        answer = self.call(m.SaslHandshakeRequest(mechanism=mechanism), 1)
        assert answer.error_code == 0, answer
        steps = exchange(Credentials(mechanism, USER, PASSWORD), base64.b64encode(b"a nonce of the bench").decode())
        message = next(steps)
        with contextlib.suppress(StopIteration):
            while True:
                answer = self.call(m.SaslAuthenticateRequest(auth_bytes=message), 2)
                assert answer.error_code == 0, answer
                message = steps.send(bytes(answer.auth_bytes))


class SecuredLane(Lane):
    """What TLS has read ahead is taken as well: no selector tells of it."""

    def receive(self, buffer: memoryview) -> tuple[int, int]:
        size, answers = super().receive(buffer)
        pending = getattr(self.connection.socket, "pending", int)
        while pending():
            more, other = super().receive(buffer)
            size, answers = size + more, answers + other
        return size, answers


class Site:
    """A running broker and its doors."""

    def __init__(self, target: Target, ports: Mapping[str, int], authority: TestAuthority) -> None:
        self.target = target
        self._ports = ports
        self._context = ssl.create_default_context(cafile=str(authority.ca_file))

    def connect(self, protocol: str, mechanism: str | None = None) -> Secured:
        if mechanism is None and protocol.startswith("SASL"):
            mechanism = "SCRAM-SHA-512"
        return Secured(f"127.0.0.1:{self._ports[protocol]}", protocol, self._context, mechanism)


@contextlib.contextmanager
def running_site(side: str) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="kohort-bench-tls-") as directory:
        authority = TestAuthority(Path(directory))
        certificate = authority.sign("broker", "localhost", "127.0.0.1")
        *numbers, controller = free_ports(5)
        ports = dict(zip(PROTOCOLS, numbers, strict=True))
        config: dict[str, Any] = {
            "ssl.keystore.location": str(certificate),
            "ssl.keystore.type": "PEM",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "offsets.topic.num.partitions": 4,
        }
        target = _kohort(config, ports) if side == "kohort" else _kafka(config, ports, controller)
        try:
            target.start()
            _add_user(target.bootstrap_servers)
            yield Site(target, ports, authority)
        finally:
            target.close()


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def _kohort(config: Mapping[str, Any], ports: Mapping[str, int]) -> KohortTarget:
    line = f'PlainLoginModule required user_{USER}="{PASSWORD}";'
    target = KohortTarget({**config, "listeners": _addresses(ports), "sasl.jaas.config": line})
    target.port = ports["PLAINTEXT"]
    return target


def _kafka(config: Mapping[str, Any], ports: Mapping[str, int], controller: int) -> KafkaTarget:
    modules = "org.apache.kafka.common.security"
    lines = {"plain": f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'}
    lines |= {f"scram-sha-{n}": f"{modules}.scram.ScramLoginModule required;" for n in (256, 512)}
    target = KafkaTarget(
        {
            **config,
            "listeners": f"{_addresses(ports)},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": _addresses(ports),
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in PROTOCOLS)
            + ",CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            **{
                f"listener.name.{listener}.{mechanism}.sasl.jaas.config": line
                for listener in ("sasl_plaintext", "sasl_ssl")
                for mechanism, line in lines.items()
            },
        }
    )
    target.port, target.controller_port = ports["PLAINTEXT"], controller
    return target


def _add_user(servers: str) -> None:
    from kohort.protocol.scram import salted_password

    kind, salt = m.AlterUserScramCredentialsRequest, b"salt of the bench"
    upsertions = [
        kind.ScramCredentialUpsertion(
            name=USER, mechanism=number, iterations=4096, salt=salt,
            salted_password=salted_password(name, PASSWORD, salt, 4096),
        )
        for number, name in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512"))
    ]  # fmt: skip
    with KafkaSocket(servers) as connection:
        for one in upsertions:
            answer = connection.call(kind(upsertions=[one]), 0)
            assert not any(row.error_code for row in answer.results), answer
    time.sleep(1)  # a real Kafka knows them a moment later


# What is measured.


def measure_heartbeats(site: Site, table: Table, options: argparse.Namespace) -> None:
    wire, group = Wire(site.target.bootstrap_servers), "innocent"
    find_coordinator(wire, group)
    generation = -1
    while generation < 1:  # a real Kafka names a coordinator a moment before it is one
        member_id, generation = join(wire, group)
        time.sleep(0.1)
    request = m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
    for protocol in PROTOCOLS:
        lanes = [SecuredLane(site.connect(protocol), request, 3, _check_beat) for _ in range(16)]
        load = _pumped(site, lanes, options, depth=1)
        table.put(site.target.side, f"Heartbeat, {protocol}", load.cpu_us_per_request, "broker CPU us")
        table.put(
            site.target.side, f"Heartbeat, {protocol}", load.requests_per_second, "a second", lower_is_better=False
        )


def _check_beat(answer: Any) -> None:
    assert answer.error_code == 0, answer


def _pumped(site: Site, lanes: list[SecuredLane], options: argparse.Namespace, depth: int = DEPTH) -> Load:
    load = pump(lanes, depth=depth, warmup=options.warmup, seconds=options.seconds, pid=site.target.pid)
    for lane in lanes:
        lane.connection.close()
    return load


def measure_records(site: Site, table: Table, options: argparse.Namespace) -> None:
    servers, batch = site.target.bootstrap_servers, batch_of(SIZE)
    create_topic(servers, "fetched", CONNECTIONS)
    fill_topic(site.target, "fetched", CONNECTIONS, total_bytes=4 << 20)
    for protocol in ("PLAINTEXT", "SSL"):
        topic = f"produced-{protocol.lower()}"
        create_topic(servers, topic, CONNECTIONS)
        lanes = [
            SecuredLane(site.connect(protocol), _produce(topic, number, batch), PRODUCE_VERSION, check_produced)
            for number in range(CONNECTIONS)
        ]
        load = _pumped(site, lanes, options)
        _put_rate(table, site, f"Produce 64 KB, {protocol}", load, load.requests * SIZE)
        lanes = [
            SecuredLane(site.connect(protocol), _fetch(number), FETCH_VERSION, lambda a: check_fetched(a, SIZE))
            for number in range(CONNECTIONS)
        ]
        load = _pumped(site, lanes, options)
        _put_rate(table, site, f"Fetch 64 KB, {protocol}", load, load.received_bytes)


def _produce(topic: str, partition: int, batch: bytes) -> Any:
    kind = m.ProduceRequest
    data = kind.PartitionProduceData(index=partition, records=batch)
    return kind(acks=1, timeout_ms=30_000, topic_data=[kind.TopicProduceData(name=topic, partition_data=[data])])


def _fetch(partition: int) -> Any:
    kind = m.FetchRequest
    wanted = kind.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=SIZE)
    topics = [kind.FetchTopic(topic="fetched", partitions=[wanted])]
    return kind(max_wait_ms=500, min_bytes=1, max_bytes=SIZE, session_epoch=-1, topics=topics)


def _put_rate(table: Table, site: Site, name: str, load: Load, size: int) -> None:
    value = size / 2**20 / max(load.cpu_seconds, 0.01)
    table.put(site.target.side, name, value, "MB per CPU second", lower_is_better=False)


def measure_logins(site: Site, table: Table, options: argparse.Namespace) -> None:
    for name, (protocol, mechanism) in LOGINS.items():
        for _ in range(50):
            site.connect(protocol, mechanism).close()
        count, before, until = 0, cpu_seconds(site.target.pid), time.perf_counter() + options.seconds
        while time.perf_counter() < until:
            with site.connect(protocol, mechanism) as connection:
                connection.call(m.ApiVersionsRequest(), 0)
            count += 1
        used = cpu_seconds(site.target.pid) - before
        table.put(site.target.side, f"a connection: {name}", 1e6 * used / count, "broker CPU us")


def run(options: argparse.Namespace) -> Iterator[Table]:
    tables = [
        Table("Heartbeats by kind of listener (16 connections)"),
        Table("Records by kind of listener (8 connections, 8 requests each under way)"),
        Table("Opening a connection and logging in"),
    ]
    for side in options.sides:
        with running_site(side) as site:
            measure_heartbeats(site, tables[0], options)
            measure_records(site, tables[1], options)
            measure_logins(site, tables[2], options)
    tables[1].notes.append(
        "the load generator speaks TLS too, on the same machine: what is counted is the broker alone"
    )
    yield from tables
