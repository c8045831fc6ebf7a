"""Foreign clients over every listener and mechanism of a broker, those it turns away, and sessions that are renewed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonError

import kohort
from apache_kafka import run_java
from conformance.secured import (
    DOORS,
    FOREIGN_KEY,
    LIMIT_S,
    ROUND_TRIPS,
    AsyncProvider,
    Door,
    Given,
    Provider,
    Site,
    confluent,
    java,
    python,
    token,
)
from kohort.broker.certificates import TestAuthority

REFUSED = (KafkaException, PythonError, AioError)
SESSION_MS = 1_500
LOAD_S = 6


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")).running() as made:
        yield made


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Certificates are asked for."""
    with Site(tmp_path_factory.mktemp("strict"), "required").running() as made:
        yield made


@pytest.mark.parametrize("client", ROUND_TRIPS)
@pytest.mark.parametrize("door", DOORS, ids=str)
def test_a_record_there_and_back(site: Site, client: str, door: Door) -> None:
    topic = f"{client}-{door}".replace("_", "-")
    assert ROUND_TRIPS[client](site, door, Given(), topic) == b"hello"
    assert site.broker.committed(topic) == {(topic, 0): 1}


def in_java(site: Site, java_classes: Path, run: str, cases: dict[str, tuple[Door, Given]]) -> dict[str, str]:
    """Each case in one process: its outcome by name."""
    paths = []
    for name, (door, given) in cases.items():
        path = site.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in java(site, door, given).items()))
        paths.append(str(path))
    done = run_java("SecuredHarness", run, *paths, extra_class_path=[java_classes], timeout=300)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_java_there_and_back(site: Site, java_classes: Path) -> None:
    cases = {str(door): (door, Given()) for door in DOORS}
    assert in_java(site, java_classes, "java", cases) == dict.fromkeys(cases, "hello")


# What is turned away.


def stranger(directory: Path) -> TestAuthority:
    (directory / "elsewhere").mkdir(exist_ok=True)
    return TestAuthority(directory / "elsewhere")


def wrong(site: Site) -> dict[str, tuple[Door, Given]]:
    """Nobody gets in so; the names are those of the cases."""
    elsewhere = stranger(site.directory)
    passwords = {
        f"wrong-password-{mechanism}": (Door("SASL_SSL", mechanism), Given(password="not this"))
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    return passwords | {
        "foreign-token": (Door("SASL_PLAINTEXT", "OAUTHBEARER"), Given(token=foreign_token)),
        "expired-token": (Door("SASL_PLAINTEXT", "OAUTHBEARER"), Given(token=expired_token)),
        "expired-certificate": (Door("SSL", None, True), Given(certificate=site.authority.sign("late", days=-1))),
        "foreign-certificate": (Door("SSL", None, True), Given(certificate=elsewhere.sign("alice"))),
        "foreign-broker": (Door("SSL"), Given(authority=elsewhere.ca_file)),
    }


def foreign_token() -> str:
    return token(FOREIGN_KEY)


def expired_token() -> str:
    return token(lifetime_s=-3600)


WRONG = (
    "wrong-password-PLAIN", "wrong-password-SCRAM-SHA-256", "wrong-password-SCRAM-SHA-512", "foreign-token",
    "expired-token", "expired-certificate", "foreign-certificate", "foreign-broker",
)  # fmt: skip


@pytest.mark.parametrize("client", ROUND_TRIPS)
@pytest.mark.parametrize("name", WRONG)
def test_who_shows_the_wrong_thing_is_turned_away_and_told(site: Site, client: str, name: str) -> None:
    door, given = wrong(site)[name]
    with pytest.raises(REFUSED):
        ROUND_TRIPS[client](site, door, given, f"never-{client}-{name}")
    assert f"never-{client}-{name}" not in site.broker._running.core.topics.by_name  # type: ignore[union-attr]


@pytest.mark.parametrize("client", ROUND_TRIPS)
def test_without_a_certificate_where_one_is_required(strict: Site, client: str) -> None:
    with pytest.raises(REFUSED):
        ROUND_TRIPS[client](strict, Door("SSL"), Given(), f"never-{client}")
    assert ROUND_TRIPS[client](strict, Door("SSL", None, True), Given(), f"{client}-mtls") == b"hello"


def test_java_is_turned_away_with_the_right_name(site: Site, strict: Site, java_classes: Path) -> None:
    cases = {name: case for name, case in wrong(site).items() if name != "expired-token"}  # it refuses that one itself
    sasl, tls = "SaslAuthenticationException", "SslAuthenticationException"
    expected = {name: sasl if "password" in name or "token" in name else tls for name in cases}
    assert in_java(site, java_classes, "never", cases) == expected
    none = {"no-certificate": (Door("SSL"), Given())}
    assert in_java(strict, java_classes, "never", none) == {"no-certificate": tls}


# Sessions that end while their clients are at work (KIP-368).


@pytest.fixture
def renewing(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, **{"connections.max.reauth.ms": SESSION_MS}).running() as made:
        yield made


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def logins(caplog: pytest.LogCaptureFixture) -> int:
    return lines(caplog, " is User:alice")


def confluent_load(site: Site, door: Door, topic: str) -> tuple[int, list[bytes]]:
    errors: list[Any] = []
    settings = confluent(site, door, Given()) | {"error_cb": errors.append}
    producer, seen = Producer(settings), []
    more = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings | more)
    consumer.subscribe([topic])
    sent, ends = 0, time.monotonic() + LOAD_S
    while time.monotonic() < ends or (len(seen) < sent and time.monotonic() < ends + LIMIT_S):
        if time.monotonic() < ends:
            producer.produce(topic, b"%d" % sent)
            sent += 1
            producer.poll(0)
        message = consumer.poll(0.02)
        if message is not None and not message.error():
            seen.append(message.value())
            consumer.commit(message, asynchronous=False)
    assert producer.flush(LIMIT_S) == 0
    consumer.close()
    assert not errors
    return sent, seen


def kafka_python_load(site: Site, door: Door, topic: str) -> tuple[int, list[bytes]]:
    settings = python(site, door, Given(), Provider)
    producer, seen = KafkaProducer(**settings), []
    consumer = KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False)
    sent, ends = 0, time.monotonic() + LOAD_S
    while time.monotonic() < ends or (len(seen) < sent and time.monotonic() < ends + LIMIT_S):
        if time.monotonic() < ends:
            producer.send(topic, b"%d" % sent).get(LIMIT_S)
            sent += 1
        for records in consumer.poll(20).values():
            seen += [record.value for record in records]
            consumer.commit()
    producer.close()
    consumer.close()
    return sent, seen


def aiokafka_load(site: Site, door: Door, topic: str) -> tuple[int, list[bytes]]:
    async def load() -> tuple[int, list[bytes]]:
        settings = python(site, door, Given(), AsyncProvider)
        more = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        seen: list[bytes] = []
        async with AIOKafkaProducer(**settings) as producer, AIOKafkaConsumer(topic, **settings, **more) as consumer:
            sent, ends = 0, time.monotonic() + LOAD_S
            while time.monotonic() < ends or (len(seen) < sent and time.monotonic() < ends + LIMIT_S):
                if time.monotonic() < ends:
                    await producer.send_and_wait(topic, b"%d" % sent)
                    sent += 1
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    seen += [record.value for record in records]
                    await consumer.commit()
        return sent, seen

    return asyncio.run(load())


def own_load(site: Site, door: Door, topic: str) -> tuple[int, list[bytes]]:
    base = {
        "bootstrap_servers": site.address(door),
        "security_protocol": door.protocol,
        "sasl_mechanism": door.mechanism,
    }
    if door.mechanism == "OAUTHBEARER":
        base["sasl_oauthbearer_token_provider"] = token
    else:
        base |= {"sasl_username": "alice", "sasl_password": Given().password}
    seen: list[bytes] = []
    more = {"group_id": topic, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with kohort.Producer(**base) as producer, kohort.Consumer(**base, **more) as consumer:
        consumer.subscribe(topic)
        sent, ends = 0, time.monotonic() + LOAD_S
        while time.monotonic() < ends or (len(seen) < sent and time.monotonic() < ends + LIMIT_S):
            if time.monotonic() < ends:
                producer.send(topic, b"%d" % sent)
                producer.flush()
                sent += 1
            if records := consumer.poll(0.02):
                seen += [record.value for record in records]
                consumer.commit()
    return sent, seen


LOADS = {
    "confluent-kafka": confluent_load,
    "kafka-python": kafka_python_load,
    "aiokafka": aiokafka_load,
    "kohort": own_load,
}
RENEW = ("confluent-kafka", "kafka-python", "kohort")
"""aiokafka does not: it connects again."""


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("client", LOADS)
def test_sessions_are_renewed_under_load(
    renewing: Site, client: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    sent, seen = LOADS[client](renewing, Door("SASL_PLAINTEXT", mechanism), "load")
    assert sent > 20 and seen == [b"%d" % number for number in range(sent)], "each once, in order"
    assert logins(caplog) > 4, "for each connection every second or so"
    if client in RENEW:
        assert lines(caplog, "its session is over") == 0, "nobody had to connect again"


def test_java_renews_its_sessions_under_load(
    renewing: Site, java_classes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    door = Door("SASL_SSL", "SCRAM-SHA-512")
    path = renewing.directory / "renew.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in java(renewing, door, Given()).items()))
    arguments = ("renew", str(path), "load", str(2 * LOAD_S))  # a JVM takes a while to get going
    done = run_java("SecuredHarness", *arguments, extra_class_path=[java_classes], timeout=300)
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert int(said["sent"]) > 20 and said["seen"] == said["sent"]
    assert int(said["producer"]) > 0 and int(said["consumer"]) > 0
    assert lines(caplog, "its session is over") == 0


def test_a_user_who_is_revoked_is_out_when_the_session_ends(renewing: Site) -> None:
    """Not before, as in Kafka; and then with an error that says why."""
    root = AdminClient(confluent(renewing, Door("SASL_PLAINTEXT", "PLAIN"), Given()))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    renewing.broker._call(lambda running: running.core.access.give([kohort.acl("alice", "ALL", "CLUSTER")]))
    renewing.broker._call(lambda running: running.core.access.give([kohort.acl("carol", "ALL", "TOPIC", "*")]))
    change = UserScramCredentialUpsertion("carol", info, b"hers")
    root.alter_user_scram_credentials([change])["carol"].result(LIMIT_S)
    errors: list[Any] = []
    settings = confluent(renewing, Door("SASL_PLAINTEXT", "SCRAM-SHA-256"), Given()) | {
        "sasl.username": "carol", "sasl.password": "hers", "error_cb": errors.append,
    }  # fmt: skip
    producer = Producer(settings)
    producer.produce("carols", b"first")
    assert producer.flush(LIMIT_S) == 0 and not errors
    gone = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    root.alter_user_scram_credentials([gone])["carol"].result(LIMIT_S)
    ends = time.monotonic() + LIMIT_S
    while not errors and time.monotonic() < ends:
        producer.poll(0.2)
    assert any("uthentication" in error.str() for error in errors), errors
    stored = [record.value for record in renewing.broker.records("carols")]
    producer.produce("carols", b"second")
    assert producer.flush(2) == 1 and stored == [record.value for record in renewing.broker.records("carols")]
    producer.purge()
