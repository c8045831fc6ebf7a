"""Listeners, TLS and SASL: every client over every protocol, and what is refused."""

import asyncio
import os
import random
import re
import ssl
import struct
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from kafka import KafkaConsumer, KafkaProducer

import kohort
from fuzz_inputs import mutated
from kohort.broker import tls_transport
from kohort.broker.boot import StartError
from kohort.broker.certificates import TestAuthority
from kohort.broker.config import BrokerConfig, ConfigError
from kohort.broker.listeners import Protocol, listeners
from kohort.broker.tls import PrincipalMapping, distinguished_name
from kohort.client.blocking import BlockingTransport
from kohort.client.config import Config
from kohort.client.connection import Phase
from kohort.client.renewal import Renewal
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from wire import WireClient, World, batch, fetch_request, produce_request

USERS = {"alice": "alice's secret", "bob": "b,o=b"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KINDS = {"SSL": (True, None), "SASL_PLAINTEXT": (False, USERS), "SASL_SSL": (True, USERS)}
CASES = [("SSL", None), *[(kind, m) for kind in ("SASL_PLAINTEXT", "SASL_SSL") for m in MECHANISMS]]
LIMIT_S = 60


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def secured(request):
    kind, mechanism = request.param
    tls, users = KINDS[kind]
    with kohort.Broker(tls=tls, users=users, config={"offsets.topic.num.partitions": 2}) as broker:
        user = "alice" if mechanism else None
        yield broker, broker.security.client(user, mechanism or "PLAIN")


def test_librdkafka(secured):
    broker, settings = secured
    base = {"bootstrap.servers": broker.bootstrap_servers, **settings}
    producer = Producer(base)
    producer.produce("rd", b"hello")
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer({**base, "group.id": "rd", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rd"])
    message = None
    for _ in range(LIMIT_S):
        message = message or consumer.poll(1)
    consumer.close()
    assert message.value() == b"hello"


def python_settings(settings):
    made = {"security_protocol": settings["security.protocol"]}
    if "sasl.mechanism" in settings:
        made |= {
            "sasl_mechanism": settings["sasl.mechanism"],
            "sasl_plain_username": settings["sasl.username"],
            "sasl_plain_password": settings["sasl.password"],
        }
    return made


def test_kafka_python(secured):
    broker, settings = secured
    base = python_settings(settings) | {"bootstrap_servers": broker.bootstrap_servers}
    if "ssl.ca.location" in settings:
        base["ssl_cafile"] = settings["ssl.ca.location"]
    producer = KafkaProducer(**base)
    producer.send("kp", b"hello").get(LIMIT_S)
    producer.close()
    consumer = KafkaConsumer("kp", **base, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT_S * 1000)
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


def test_aiokafka(secured):
    broker, settings = secured

    async def round_trip():
        base = python_settings(settings) | {"bootstrap_servers": broker.bootstrap_servers}
        if "ssl.ca.location" in settings:
            base["ssl_context"] = ssl.create_default_context(cafile=settings["ssl.ca.location"])
        async with AIOKafkaProducer(**base) as producer:
            await producer.send_and_wait("aio", b"hello")
        async with AIOKafkaConsumer("aio", **base, auto_offset_reset="earliest") as consumer:
            return (await asyncio.wait_for(consumer.getone(), LIMIT_S)).value

    assert asyncio.run(round_trip()) == b"hello"


def test_our_own_client(secured):
    broker, settings = secured
    own = {name.replace(".", "_"): value for name, value in settings.items()}
    if "ssl_ca_location" in own:
        own["ssl_cafile"] = own.pop("ssl_ca_location")
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, **own) as producer:
        producer.send("own", b"hello")
        producer.flush()
    assert [record.value for record in broker.records("own")] == [b"hello"]


# What is refused.


@pytest.fixture(scope="module")
def closed():
    with kohort.Broker(users=USERS, config={"connections.max.reauth.ms": 60_000}) as broker:
        yield broker


def failure(broker, **settings):
    """What librdkafka hears."""
    heard = []
    client = Producer({
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "error_cb": lambda error: heard.append(error.code()),
        **{name.replace("_", "."): value for name, value in settings.items()},
    })  # fmt: skip
    for _ in range(LIMIT_S):
        if KafkaError._AUTHENTICATION in heard:
            return True
        client.poll(1)
    return False


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_is_told_as_such(closed, mechanism, user):
    assert failure(closed, sasl_mechanism=mechanism, sasl_username=user, sasl_password="wrong")


def handshake(client, mechanism, version=1):
    return client.call(messages.SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client, token, version=2):
    return client.call(messages.SaslAuthenticateRequest(auth_bytes=token), version)


def test_nothing_is_answered_before_the_connection_is_known(closed):
    client = WireClient(closed.bootstrap_servers)
    assert client.call(messages.ApiVersionsRequest(), 0).error_code == 0
    client.send(messages.MetadataRequest(topics=None), 9)
    assert client.closed_by_peer()


def test_a_mechanism_that_is_not_there_names_those_that_are(closed):
    client = WireClient(closed.bootstrap_servers)
    answer = handshake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == list(MECHANISMS)
    assert client.closed_by_peer()


def test_steps_out_of_order_cost_the_connection(closed):
    client = WireClient(closed.bootstrap_servers)
    assert authenticate(client, b"\0alice\0x").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.closed_by_peer()
    client = WireClient(closed.bootstrap_servers)
    assert handshake(client, "PLAIN").error_code == 0
    assert handshake(client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.closed_by_peer()


def known(broker):
    client = WireClient(broker.bootstrap_servers)
    assert handshake(client, "PLAIN").error_code == 0
    answer = authenticate(client, f"\0alice\0{USERS['alice']}".encode())
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    return client


def test_a_session_is_renewed_by_the_same_user_before_it_ends(closed):
    client = known(closed)
    closed.clock.advance(50)
    assert handshake(client, "PLAIN").error_code == 0
    assert authenticate(client, f"\0alice\0{USERS['alice']}".encode()).session_lifetime_ms == 60_000
    closed.clock.advance(50)
    assert client.call(messages.MetadataRequest(topics=[]), 9).controller_id == 1
    closed.clock.advance(11)
    client.send(messages.MetadataRequest(topics=[]), 9)
    assert client.closed_by_peer(), "the session is over"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own_clients_renew_their_sessions_with_requests_under_way(closed, mechanism, monkeypatch):
    """At every request that finds none being renewed: a session a request, and nothing is lost or refused."""
    monkeypatch.setattr(Renewal, "is_due", lambda self, now_s: self._connection.phase is Phase.READY)
    settings = {name.replace(".", "_"): value for name, value in closed.security.client("alice", mechanism).items()}
    base = {"bootstrap_servers": closed.bootstrap_servers, **settings}
    topic = f"renewed-{mechanism}"
    with kohort.Producer(**base) as producer:
        for number in range(50):
            producer.send(topic, b"%d" % number)
            producer.flush()
    with kohort.Consumer(group_id=topic, auto_offset_reset="earliest", **base) as consumer:
        consumer.subscribe(topic)
        seen = []
        while len(seen) < 50:
            seen += [record.value for record in consumer.poll(1)]
            consumer.commit()
        assert seen == [b"%d" % number for number in range(50)]
    transport = BlockingTransport("127.0.0.1", closed.port, Config({"bootstrap.servers": "x:1"} | dotted(settings)))
    for _ in range(3):
        assert transport.call(messages.MetadataRequest(topics=[])).controller_id == 1
    assert transport.connection.logins == 4
    transport.close()


def dotted(settings):
    return {name.replace("_", "."): value for name, value in settings.items()}


def test_a_session_is_not_renewed_by_somebody_else(closed):
    client = known(closed)
    handshake(client, "PLAIN")
    answer = authenticate(client, f"\0bob\0{USERS['bob']}".encode())
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.closed_by_peer()
    client = known(closed)
    assert handshake(client, "SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_bare_messages_of_clients_before_saslauthenticate(closed):
    client = WireClient(closed.bootstrap_servers)
    assert handshake(client, "PLAIN", version=0).error_code == 0
    client.send_frame(f"\0alice\0{USERS['alice']}".encode())
    assert client.receive_frame() == b""
    assert client.call(messages.MetadataRequest(topics=[]), 9).controller_id == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_nonsense_instead_of_a_message(closed, mechanism):
    good = {"PLAIN": b"\0alice\0secret"}.get(mechanism, b"n,,n=alice,r=abcdef")
    for seed in range(40):
        client = WireClient(closed.bootstrap_servers)
        handshake(client, mechanism)
        token = mutated(good, random.Random(seed))
        answer = authenticate(client, token)
        if answer.error_code == 0:
            assert mechanism != "PLAIN"
            answer = authenticate(client, mutated(b"c=biws,r=abcdef,p=AAAA", random.Random(seed)))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "secret" not in (answer.error_message or "")
        client.close()
    assert known(closed)


def test_secrets_are_not_in_the_log(closed, caplog):
    caplog.set_level("DEBUG")
    known(closed)
    client = WireClient(closed.bootstrap_servers)
    handshake(client, "PLAIN")
    authenticate(client, b"\0alice\0not the secret")
    assert USERS["alice"] not in caplog.text and "not the secret" not in caplog.text


def test_plaintext_spoken_to_tls_and_back():
    with kohort.Broker(tls=True) as broker:
        client = WireClient(broker.bootstrap_servers)
        client.send(messages.ApiVersionsRequest(), 0)
        assert struct.pack(">i", 6) not in client.socket.recv(100)[:4]
        client.close()


# Users of SCRAM.


def admin(broker, user="alice"):
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, **broker.security.client(user)})


def test_users_are_added_kept_and_revoked(tmp_path):
    broker = kohort.Broker(data_dir=tmp_path, users=USERS)
    with broker:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("carol", info, b"carol's own")
        client = admin(broker)
        client.alter_user_scram_credentials([change])["carol"].result(LIMIT_S)
        described = client.describe_user_scram_credentials(["carol"])["carol"].result(LIMIT_S)
        assert [found.iterations for found in described.scram_credential_infos] == [4096]
        broker.restart()
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "carol"}
        assert not_refused(broker, sasl_password="carol's own", **login)
        assert failure(broker, sasl_password="wrong", **login)
        client = admin(broker)
        gone = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
        client.alter_user_scram_credentials([gone])["carol"].result(LIMIT_S)
        assert failure(broker, sasl_password="carol's own", **login)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
        change = UserScramCredentialUpsertion("dave", info, b"dave's own")
        client.alter_user_scram_credentials([change])["dave"].result(LIMIT_S)
    assert "dave" in (tmp_path / "kohort.users.json").read_text()
    assert "dave's own" not in (tmp_path / "kohort.users.json").read_text()
    assert (tmp_path / "kohort.users.json").stat().st_mode & 0o077 == 0, "nobody else reads what is kept of passwords"


def test_a_user_is_changed_once_a_request_and_many_are_looked_up_in_no_time():
    world = World()
    client, kind = world.connect(), messages.AlterUserScramCredentialsRequest
    more = {"iterations": 4096, "salt": b"s", "salted_password": b"p"}
    rows = [kind.ScramCredentialUpsertion(name="carol", mechanism=number, **more) for number in (1, 2)]
    rows += [kind.ScramCredentialUpsertion(name=f"u{number}", mechanism=1, **more) for number in range(5_000)]
    codes = {row.user: row.error_code for row in client.call(kind(upsertions=rows), 0).results}
    assert codes.pop("carol") == ErrorCode.DUPLICATE_RESOURCE, "as in Kafka, whatever the mechanism"
    assert set(codes.values()) == {0} and len(codes) == 5_000
    kind = messages.DescribeUserScramCredentialsRequest
    users = [kind.UserName(name=f"u{number}") for number in range(5_000)]
    assert {row.error_code for row in client.call(kind(users=users), 0).results} == {0}


def not_refused(broker, **settings):
    client = AdminClient({
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        **{name.replace("_", "."): value for name, value in settings.items()},
    })  # fmt: skip
    return client.list_topics(timeout=LIMIT_S) is not None


# Certificates.


def tls_client(broker, ca, certificate=None):
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    client = WireClient(broker.bootstrap_servers)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def test_a_certificate_is_who_a_client_is():
    config = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/L,DEFAULT"}
    with kohort.Broker(tls=True, config=config, acls=[kohort.acl("alice", "DESCRIBE", "CLUSTER")]) as broker:
        authority = broker.security.authority
        alice = tls_client(broker, authority.ca_file, authority.sign("Alice"))
        request = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert alice.call(request, 0).cluster_authorized_operations > 0
        bob = tls_client(broker, authority.ca_file, authority.sign("Bob"))
        assert bob.call(request, 0).cluster_authorized_operations == 0


ALERTS = {"none": "certificate required", "expired": "certificate expired", "foreign": "decrypt error"}
REASONS = {"none": "PEER_DID_NOT_RETURN_A_CERTIFICATE", "expired": "has expired", "foreign": "signature failure"}


@pytest.mark.parametrize("kind", ALERTS)
def test_clients_without_a_certificate_that_counts_are_told_and_so_is_the_log(kind, tmp_path, caplog):
    with kohort.Broker(tls=True, config={"ssl.client.auth": "required"}) as broker:
        authority = broker.security.authority
        shown = {
            "none": lambda: None,
            "expired": lambda: authority.sign("late", days=-1),
            "foreign": lambda: TestAuthority(tmp_path).sign("stranger"),
        }[kind]()
        with pytest.raises(ssl.SSLError, match=ALERTS[kind].replace(" ", "[ _]")):
            tls_client(broker, authority.ca_file, shown).call(messages.ApiVersionsRequest(), 0)
    (line,) = [record.getMessage() for record in caplog.records if "handshake" in record.getMessage()]
    assert "127.0.0.1" in line and re.search(REASONS[kind], line)


def test_handshakes_that_are_begun_and_never_ended_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(tls_transport, "MOST_HANDSHAKES", 2)
    with kohort.Broker(tls=True) as broker:
        idle = [WireClient(broker.bootstrap_servers) for _ in range(2)]
        assert WireClient(broker.bootstrap_servers).closed_by_peer()
        idle.pop().close()
        client = None
        while client is None:
            try:
                client = tls_client(broker, broker.security.authority.ca_file)
            except (ssl.SSLError, OSError):
                continue  # the one that left is not noticed yet
        assert client.call(messages.ApiVersionsRequest(), 0).error_code == 0
    assert "TLS handshakes are under way" in caplog.text


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_answers_of_megabytes_over_tls_in_pieces_of_any_size(loop, monkeypatch):
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with kohort.Broker(tls=True) as broker:
        broker.create_topic("large")
        client = tls_client(broker, broker.security.authority.ca_file)
        value = random.Random(1).randbytes(900_000)
        for _ in range(5):
            answer = client.call(produce_request("large", batch(value, timestamp=2**40)), 9)
            assert not answer.responses[0].partition_responses[0].error_code
        fetched = client.call(fetch_request("large", 0, max_bytes=1 << 23, partition_max_bytes=1 << 23), 12)
        assert bytes(fetched.responses[0].partitions[0].records).count(value) == 5
        client.close()


def test_certificates_are_reloaded_while_connections_go_on():
    with kohort.Broker(tls=True) as broker:
        authority = broker.security.authority
        before = tls_client(broker, authority.ca_file)
        serial = before.socket.getpeercert()["serialNumber"]
        authority.sign("broker", "localhost")
        broker._call(lambda running: running.server.certificates["PLAINTEXT"].reload())
        after = tls_client(broker, authority.ca_file)
        assert after.socket.getpeercert()["serialNumber"] != serial
        assert before.call(messages.ApiVersionsRequest(), 0).error_code == 0
        (authority.directory / "broker.pem").write_text("nonsense")
        with pytest.raises(ConfigError, match="cannot be used"):
            broker._call(lambda running: running.server.certificates["PLAINTEXT"].reload())
        assert tls_client(broker, authority.ca_file).call(messages.ApiVersionsRequest(), 0).error_code == 0


def pkcs12_of(pem, path, password, with_key=True):
    content = pem.read_bytes()
    key = load_pem_private_key(content, None) if with_key else None
    certificates = x509.load_pem_x509_certificates(content)
    hidden = BestAvailableEncryption(password.encode())
    if with_key:
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, certificates[0], certificates[1:], hidden))
    else:
        path.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, certificates, hidden))
    return str(path)


def test_java_stores_on_the_broker(tmp_path):
    authority = TestAuthority(tmp_path)
    own = pkcs12_of(Path(authority.sign("broker", "localhost")), tmp_path / "own.p12", "secret1")
    trusted = pkcs12_of(Path(authority.ca_file), tmp_path / "trust.p12", "secret2", with_key=False)
    config = {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.location": own,
        "ssl.keystore.password": "secret1",
        "ssl.keystore.type": "PKCS12",
        "ssl.truststore.location": trusted,
        "ssl.truststore.password": "secret2",
        "ssl.client.auth": "required",
    }
    with kohort.Broker(config=config) as broker:
        alice = tls_client(broker, authority.ca_file, authority.sign("Alice"))
        assert alice.call(messages.ApiVersionsRequest(), 0).error_code == 0
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            tls_client(broker, authority.ca_file).call(messages.ApiVersionsRequest(), 0)
    with pytest.raises(StartError, match=r"own\.p12 cannot be opened") as raised:
        kohort.Broker(config=config | {"ssl.keystore.password": "not this"}).start()
    assert "not this" not in str(raised.value)
    with pytest.raises(StartError, match="cannot be used"):
        kohort.Broker(config=config | {"ssl.keystore.location": str(tmp_path / "nowhere.p12")}).start()


def test_names_of_certificates():
    subject = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "alice"),))
    name = distinguished_name({"subject": subject})
    assert name == r"CN=alice,O=A\, B,C=DE"
    assert PrincipalMapping("DEFAULT").user(name) == name
    assert PrincipalMapping("RULE:^CN=(.*?),.*$/$1/U").user(name) == "ALICE"
    with pytest.raises(ValueError, match="no rule"):
        PrincipalMapping("RULE:^CN=bob$/bob/").user(name)
    with pytest.raises(ConfigError, match="RULE"):
        PrincipalMapping("CN=bob")


# Listeners.


def parsed(**config):
    return listeners(BrokerConfig({name.replace("_", "."): value for name, value in config.items()}), "h", 1)


def test_listeners_have_names_protocols_and_addresses():
    found = parsed(
        listeners="PLAINTEXT://127.0.0.1:0,INSIDE://[::1]:9093",
        listener_security_protocol_map="INSIDE:SASL_SSL",
        advertised_listeners="INSIDE://kafka.example:19093",
    )
    assert [(one.name, one.protocol, one.host, one.port) for one in found] == [
        ("PLAINTEXT", Protocol.PLAINTEXT, "127.0.0.1", 0),
        ("INSIDE", Protocol.SASL_SSL, "::1", 9093),
    ]
    assert (found[1].advertised_host, found[1].advertised_port) == ("kafka.example", 19093)
    assert [(one.name, one.host, one.port) for one in parsed()] == [("PLAINTEXT", "h", 1)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"listeners": "INSIDE://h:1"}, "listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "different name"),
        ({"listeners": "PLAINTEXT://h:99999"}, "HOST:PORT"),
        ({"listeners": "h"}, "HOST:PORT"),
        ({"listeners": "A://h:1", "listener_security_protocol_map": "A:TLS"}, "one of"),
        ({"advertised_listeners": "OTHER://h:1"}, "not among listeners"),
        ({"advertised_listeners": "PLAINTEXT://:1"}, "HOST:PORT"),
    ],
)
def test_listeners_that_contradict_themselves(config, says):
    with pytest.raises(ConfigError, match=says):
        parsed(**config)


def test_several_listeners_at_once_each_with_its_own_address():
    names = "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0"
    if os.path.exists("/proc/net/if_inet6"):
        names += ",SIX://[::1]:0"
    config = {
        "listeners": names,
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,SIX:PLAINTEXT",
        "sasl.jaas.config": 'PlainLoginModule required user_alice="a" user_bob="b";',
    }
    with kohort.Broker(config=config) as broker:
        for listener in broker._running.listeners:
            address = listener.address.replace("[::1]", "::1")
            client = WireClient(address)
            if listener.name == "INSIDE":
                handshake(client, "PLAIN")
                assert authenticate(client, b"\0alice\0a").error_code == 0
            told = client.call(messages.MetadataRequest(topics=[]), 9).brokers[0]
            assert (told.host, told.port) == (listener.host, listener.port)
            found = client.call(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0]
            assert (found.host, found.port) == (listener.host, listener.port)
            client.close()


def test_a_tls_listener_without_a_certificate_says_what_to_do():
    with pytest.raises(kohort.StartError, match=r"ssl\.keystore\.location"):
        kohort.Broker(config={"listeners": "SSL://127.0.0.1:0"}).start()


def test_passwords_are_shown_to_nobody():
    with kohort.Broker(config={"sasl.jaas.config": 'x user_alice="do not tell";'}) as broker:
        kind = messages.DescribeConfigsRequest
        resource = kind.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        answer = WireClient(broker.bootstrap_servers).call(kind(resources=[resource], include_synonyms=True), 4)
        (row,) = [row for row in answer.results[0].configs if row.name == "sasl.jaas.config"]
        assert row.is_sensitive and row.value is None
        assert all(synonym.value is None for synonym in row.synonyms)


def test_a_stranger_cannot_announce_a_large_frame(closed):
    client = WireClient(closed.bootstrap_servers)
    client.socket.sendall(struct.pack(">i", 50_000_000))
    assert client.closed_by_peer()


def test_what_a_client_calls_itself_cannot_forge_a_line_of_the_log(caplog):
    name = b"innocent\nERROR kohort.broker: all is lost \x1b[2J" + b"x" * 1000
    with kohort.Broker() as broker:
        client = WireClient(broker.bootstrap_servers)
        client.send_frame(struct.pack(">hhih", 3, 1, 1, len(name)) + name + b"\x7f\xff\xff\xff")
        assert client.closed_by_peer()
    (line,) = [record.getMessage() for record in caplog.records if "innocent" in record.getMessage()]
    assert "\n" not in line and "\x1b" not in line and len(line) < 800
