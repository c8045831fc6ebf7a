"""Settings of listeners: kohort and a real Kafka read the same server.properties, and let the same visitors in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from apache_kafka import ApacheKafka, free_ports
from doors import Visit, outcome
from kohort.broker.certificates import TestAuthority
from kohort_process import KohortProcess

PROTOCOLS = {
    "ONE": "SSL",
    "TWO": "SSL",
    "INSIDE": "SASL_PLAINTEXT",
    "OUTSIDE": "SASL_PLAINTEXT",
    "PLAINTEXT": "PLAINTEXT",  # the last to open: a broker that answers there has opened all
}
NAMES = tuple(PROTOCOLS)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Site:
    def __init__(self, directory: Path) -> None:
        for name in ("ours", "theirs"):
            (directory / name).mkdir()
        # Of different names: clients of OpenSSL send the authority that they take for their own along.
        self.ours, self.theirs = (TestAuthority(directory / name, name) for name in ("ours", "theirs"))

    def properties(self, ports: Mapping[str, int]) -> dict[str, object]:
        """Without controllers, which kohort has not."""
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        return {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": self.ours.sign("first", "localhost", "127.0.0.1"),
            "listener.name.two.ssl.keystore.location": self.theirs.sign("second", "localhost", "127.0.0.1"),
            "listener.name.two.ssl.keystore.type": "PEM",
            "listener.name.two.ssl.truststore.location": self.ours.ca_file,
            "listener.name.two.ssl.truststore.type": "PEM",
            "listener.name.two.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} user_alice="inside";',
            "listener.name.outside.plain.sasl.jaas.config": f'{PLAIN} user_alice="outside" user_bob="own";',
            "listener.name.outside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.outside.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }

    def visits(self) -> list[Visit]:
        signed, stranger = self.ours.sign("alice"), self.theirs.sign("mallory")
        logins = [
            Visit(listener, mechanism=mechanism, user=user, password=password)
            for listener in ("INSIDE", "OUTSIDE")
            for mechanism in ("PLAIN", "SCRAM-SHA-256")
            for user, password in (("alice", "inside"), ("alice", "outside"), ("bob", "own"), ("nobody", "own"))
        ]
        return [
            Visit("ONE", self.ours.ca_file),
            Visit("ONE", self.theirs.ca_file),
            Visit("ONE", self.ours.ca_file, stranger),
            Visit("TWO", self.theirs.ca_file),
            Visit("TWO", self.theirs.ca_file, signed),
            Visit("TWO", self.theirs.ca_file, stranger),
            Visit("TWO", self.ours.ca_file, signed),
            *logins,
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("listeners"))


@pytest.fixture(scope="module")
def of_kafka(jdk: None, site: Site) -> Iterator[dict[str, int]]:
    *numbers, controller = free_ports(len(NAMES) + 1)
    ports = dict(zip(NAMES, numbers, strict=True))
    properties = site.properties(ports)
    kafka = ApacheKafka(
        properties
        | {
            "listeners": f"{properties['listeners']},CONTROLLER://127.0.0.1:{controller}",
            "listener.security.protocol.map": f"{properties['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
    )
    kafka.port, kafka.controller_port = ports["PLAINTEXT"], controller
    with kafka:
        yield ports


@pytest.fixture(scope="module")
def of_kohort(site: Site) -> Iterator[dict[str, int]]:
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    kohort = KohortProcess(site.properties(ports))
    kohort.port = ports["PLAINTEXT"]
    with kohort:
        yield ports


def test_the_same_visitors_are_let_in(site: Site, of_kafka: dict[str, int], of_kohort: dict[str, int]) -> None:
    for visit in site.visits():
        found = outcome(of_kohort[visit.listener], visit)
        assert found == outcome(of_kafka[visit.listener], visit), visit
    assert outcome(of_kohort["TWO"], Visit("TWO", site.theirs.ca_file, site.ours.sign("x"))) == "in, met second"
