"""A broker with every listener and mechanism at once, and foreign clients as values: what each is told to connect.

Tokens are made by a key of this module; certificates by an authority in the folder that is given.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

import kohort
from kohort.broker.certificates import TestAuthority

SECRET = "alice's secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LIMIT_S = 60
KEY, FOREIGN_KEY = (rsa.generate_private_key(65537, 2048) for _ in range(2))


class Door(NamedTuple):
    """A listener, and how somebody wants in by it."""

    protocol: str
    mechanism: str | None = None
    certificate: bool = False

    def __str__(self) -> str:
        return "-".join([self.protocol, *([self.mechanism] if self.mechanism else []), *["mTLS"] * self.certificate])


DOORS = [
    Door("PLAINTEXT"),
    Door("SSL"),
    Door("SSL", certificate=True),
    *(Door(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(key: Any = KEY, lifetime_s: float = 300) -> str:
    claims = {"sub": "alice", "iat": int(time.time()), "exp": time.time() + lifetime_s}
    signed = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256"}, claims))
    return f"{signed}.{encoded(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Given(NamedTuple):
    """What a client shows; the defaults are as they should be."""

    password: str = SECRET
    token: Callable[[], str] = token
    certificate: Path | None = None
    authority: Path | None = None


class Site:
    """The broker and its authority."""

    def __init__(self, directory: Path, client_auth: str = "requested", **config: Any) -> None:
        self.directory = directory
        self.authority = TestAuthority(directory)
        self.alice = self.authority.sign("alice")
        public = KEY.public_key().public_numbers()
        keys = [{"kty": "RSA", "kid": "one", "n": number(public.n), "e": number(public.e)}]
        (directory / "jwks.json").write_text(json.dumps({"keys": keys}))
        names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        self.broker = kohort.Broker(
            config={
                "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
                "ssl.keystore.location": str(self.authority.sign("broker", "localhost", "127.0.0.1")),
                "ssl.truststore.location": str(self.authority.ca_file),
                "ssl.client.auth": client_auth,
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.jaas.config": f'PlainLoginModule required user_alice="{SECRET}";',
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/jwks.json",
                "offsets.topic.num.partitions": 2,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                **config,
            },
            acls=[
                kohort.acl(user, "ALL", kind, "*")
                for user in ("alice", "ANONYMOUS")
                for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
            ],
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        with self.broker:
            yield self

    def address(self, door: Door) -> str:
        assert self.broker._running is not None
        return next(one.address for one in self.broker._running.listeners if one.name == door.protocol)


# What each client is told.


def confluent(site: Site, door: Door, given: Given) -> dict[str, Any]:
    made: dict[str, Any] = {"bootstrap.servers": site.address(door), "security.protocol": door.protocol}
    if door.protocol.endswith("SSL"):
        made["ssl.ca.location"] = str(given.authority or site.authority.ca_file)
    if door.certificate:
        certificate = str(given.certificate or site.alice)
        made |= {"ssl.certificate.location": certificate, "ssl.key.location": certificate}
    if door.mechanism == "OAUTHBEARER":
        made |= {"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": lambda _: (given.token(), time.time() + 300)}
    elif door.mechanism is not None:
        made |= {"sasl.mechanisms": door.mechanism, "sasl.username": "alice", "sasl.password": given.password}
    return made


class Provider(AbstractTokenProvider):
    def __init__(self, given: Given) -> None:
        self._given = given

    def token(self) -> str:
        return self._given.token()


class AsyncProvider(AsyncTokenProvider):
    def __init__(self, given: Given) -> None:
        self._given = given

    async def token(self) -> str:
        return self._given.token()


def python(site: Site, door: Door, given: Given, provider: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"bootstrap_servers": site.address(door), "security_protocol": door.protocol}
    if door.protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(given.authority or site.authority.ca_file))
        if door.certificate:
            context.load_cert_chain(given.certificate or site.alice)
        made["ssl_context"] = context
    if door.mechanism == "OAUTHBEARER":
        made |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider(given)}
    elif door.mechanism is not None:
        names = {"sasl_plain_username": "alice", "sasl_plain_password": given.password}
        made |= {"sasl_mechanism": door.mechanism, **names}
    return made


def java(site: Site, door: Door, given: Given) -> dict[str, str]:
    made = {"bootstrap.servers": site.address(door), "security.protocol": door.protocol}
    if door.protocol.endswith("SSL"):
        authority = str(given.authority or site.authority.ca_file)
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    if door.certificate:
        made |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(given.certificate or site.alice)}
    if door.mechanism is None:
        return made
    made["sasl.mechanism"] = door.mechanism
    modules = "org.apache.kafka.common.security"
    if door.mechanism == "OAUTHBEARER":
        path = site.directory / f"token-{abs(hash(given))}"
        path.write_text(given.token())
        handler = f"{modules}.oauthbearer.OAuthBearerLoginCallbackHandler"
        made |= {"sasl.oauthbearer.token.endpoint.url": f"file://{path}", "sasl.login.callback.handler.class": handler}
        made["sasl.jaas.config"] = f"{modules}.oauthbearer.OAuthBearerLoginModule required;"
        return made
    module = "plain.PlainLoginModule" if door.mechanism == "PLAIN" else "scram.ScramLoginModule"
    made["sasl.jaas.config"] = f'{modules}.{module} required username="alice" password="{given.password}";'
    return made


TURNED_AWAY = (KafkaError._AUTHENTICATION, KafkaError._SSL)


# One record there and back, in a group, committed; an exception where that cannot be.


def confluent_round_trip(site: Site, door: Door, given: Given, topic: str) -> bytes:
    refusals: list[Any] = []
    settings = confluent(site, door, given) | {"error_cb": refusals.append}
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    ends = time.monotonic() + LIMIT_S
    while producer.poll(0.1) or len(producer):
        if any(error.code() in TURNED_AWAY or " alert " in error.str() for error in refusals):
            raise KafkaException(refusals[0])
        assert time.monotonic() < ends, refusals
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = None
        while message is None or message.error():
            message = consumer.poll(1)
            assert time.monotonic() < ends, refusals
        consumer.commit(message, asynchronous=False)
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


def kafka_python_round_trip(site: Site, door: Door, given: Given, topic: str) -> bytes:
    settings = python(site, door, given, Provider)
    producer = KafkaProducer(**settings, max_block_ms=10_000)
    try:
        producer.send(topic, b"hello").get(LIMIT_S)
    finally:
        producer.close(timeout=1)
    more = {"group_id": topic, "auto_offset_reset": "earliest", "consumer_timeout_ms": LIMIT_S * 1000}
    consumer = KafkaConsumer(topic, **settings, **more)
    try:
        value: bytes = next(iter(consumer)).value
        consumer.commit()
        return value
    finally:
        consumer.close()


def aiokafka_round_trip(site: Site, door: Door, given: Given, topic: str) -> bytes:
    async def there_and_back() -> bytes:
        settings = python(site, door, given, AsyncProvider)
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"hello")
        finally:
            await producer.stop()
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            value: bytes = (await asyncio.wait_for(consumer.getone(), LIMIT_S)).value
            await consumer.commit()
            return value

    return asyncio.run(there_and_back())


ROUND_TRIPS = {
    "confluent-kafka": confluent_round_trip,
    "kafka-python": kafka_python_round_trip,
    "aiokafka": aiokafka_round_trip,
}
