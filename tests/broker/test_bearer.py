"""OAUTHBEARER on the broker: tokens and what is wrong with them, clients that log in by one, sessions that end."""

import base64
import hmac
import http.server
import json
import ssl
import threading
import time

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

import kohort
from kohort.broker.bearer import JWKS_URL, MISSED_AGAIN_MS, InvalidToken, Tokens
from kohort.broker.certificates import TestAuthority
from kohort.broker.config import BrokerConfig
from kohort.broker.jwks import MOST_BYTES, KeysRefresh
from kohort.config_key import ConfigError
from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from wire import WireClient

RSA, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())
SECRET = b"s" * 32
NOW_MS = 1_000_000_000_000


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def signature(algorithm, data, key=RSA):
    if algorithm == "RS256":
        return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if algorithm == "ES256":
        r, s = decode_dss_signature(EC.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    if algorithm == "HS256":
        return hmac.digest(key if isinstance(key, bytes) else SECRET, data, "sha256")
    return b""


def token(algorithm="RS256", key=RSA, header=None, **claims):
    body = {"sub": "alice", "exp": NOW_MS / 1000 + 60} | claims
    parts = [{"alg": algorithm} | (header or {}), {name: value for name, value in body.items() if value is not None}]
    signed = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{encoded(signature(algorithm, signed.encode(), key))}"


@pytest.fixture(scope="module")
def jwks(tmp_path_factory):
    public, curve = RSA.public_key().public_numbers(), EC.public_key().public_numbers()
    keys = [
        {"kty": "RSA", "kid": "one", "n": number(public.n), "e": number(public.e)},
        {"kty": "EC", "crv": "P-256", "kid": "two", "x": number(curve.x), "y": number(curve.y)},
        {"kty": "oct", "kid": "three", "k": encoded(SECRET)},
        {"kty": "RSA", "use": "enc", "n": "AQ", "e": "AQ"},
    ]
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return path


def tokens(jwks, **more):
    given = {JWKS_URL: f"file://{jwks}"} | {f"sasl.oauthbearer.{k.replace('_', '.')}": v for k, v in more.items()}
    return Tokens(BrokerConfig(given))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "HS256"])
def test_a_token_says_who_it_is_and_until_when(jwks, algorithm):
    found = tokens(jwks).check(token(algorithm), NOW_MS)
    assert found == ("alice", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "bad",
    [
        token("none"),
        token(key=OTHER),
        token(header={"kid": "two"}),
        token("HS256", key=RSA.public_key().public_numbers().n.to_bytes(256, "big")),
        token(exp=NOW_MS / 1000 - 31),
        token(exp=None),
        token(exp="soon"),
        token(exp=float("inf")),
        token(nbf=NOW_MS / 1000 + 31),
        token(sub=None),
        token(sub=""),
        token(sub=7),
        token()[:-4] + "AAAA",
        token() + ".x",
        "",
        "a.b.c",
        "\u00e9.\u00e9.\u00e9",
        ".".join([encoded(b"[" * 100_000)] * 3),
    ],
)
def test_a_token_that_stands_for_nobody(jwks, bad):
    with pytest.raises(InvalidToken):
        tokens(jwks).check(bad, NOW_MS)


def test_issuer_audience_and_the_name_of_the_claim(jwks):
    strict = tokens(jwks, expected_issuer="me", expected_audience="a,b", sub_claim_name="email")
    assert strict.check(token(iss="me", aud=["x", "b"], email="al@x"), NOW_MS).user == "al@x"
    assert strict.check(token(iss="me", aud="a", email="al@x"), NOW_MS).user == "al@x"
    for wrong in ({"iss": "you", "aud": "a"}, {"iss": "me", "aud": "c"}, {"iss": "me"}):
        with pytest.raises(InvalidToken):
            strict.check(token(email="al@x", **wrong), NOW_MS)


@pytest.mark.parametrize(
    "content", [None, "", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "short"}]}', '{"keys": [7]}']
)
def test_keys_that_cannot_be_read_stop_the_start(tmp_path, content):
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="jwks"):
        tokens(path)
    with pytest.raises(ConfigError, match="file:///path"):
        Tokens(BrokerConfig({JWKS_URL: "http://example.test/jwks"}))


class Provider(http.server.BaseHTTPRequestHandler):
    """Serves what `answer` is: (status, body)."""

    answer: tuple[int, bytes] = (200, b"")

    def do_GET(self):
        status, body = type(self).answer
        self.send_response(status)
        self.send_header("Location", "https://localhost/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """The address of keys over https, signed by an authority that the system trusts."""
    authority = TestAuthority(tmp_path)
    server = http.server.HTTPServer(("localhost", 0), Provider)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("provider", "localhost"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    yield f"https://localhost:{server.server_port}/keys?of=me"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_of_an_https_address(jwks, provider, monkeypatch):
    Provider.answer = 200, jwks.read_bytes()
    known = Tokens(BrokerConfig({JWKS_URL: provider}))
    assert known.check(token(), NOW_MS).user == "alice"
    for status, body in ((302, b""), (500, b"{}"), (200, b"not json"), (200, b" " * (MOST_BYTES + 1))):
        Provider.answer = status, body
        with pytest.raises(ConfigError, match="no keys that can be read"):
            known.reload()
        assert known.check(token(), NOW_MS).user == "alice", "the old ones stay"
    monkeypatch.delenv("SSL_CERT_FILE")
    Provider.answer = 200, jwks.read_bytes()
    with pytest.raises(ConfigError, match="certificate"):
        Tokens(BrokerConfig({JWKS_URL: provider}))


def test_keys_of_an_address_are_asked_for_again_when_they_are_old_or_one_is_missing(jwks, provider):
    Provider.answer = 200, jwks.read_bytes()
    config = BrokerConfig({JWKS_URL: provider, "sasl.oauthbearer.jwks.endpoint.refresh.ms": 60_000})
    known = Tokens(config)
    assert not known.is_stale(NOW_MS) and not known.is_stale(NOW_MS + 59_999)
    assert known.is_stale(NOW_MS + 60_000) and not known.is_stale(NOW_MS + 200_000), "one asks at a time"
    KeysRefresh(known).finish(ConfigError("unreachable"), 0)
    assert not known.is_stale(NOW_MS + 80_000)
    with pytest.raises(InvalidToken):
        known.check(token(header={"kid": "new"}), NOW_MS)
    assert not known.is_stale(NOW_MS + 60_000 + MISSED_AGAIN_MS - 1)
    assert known.is_stale(NOW_MS + 60_000 + MISSED_AGAIN_MS)


@pytest.fixture
def broker(jwks):
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        JWKS_URL: f"file://{jwks}",
    }
    with kohort.Broker(config=config) as made:
        yield made


def test_librdkafka_logs_in_by_a_token_or_not_at_all(broker):
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient

    def client(given):
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (given, time.time() + 300),
        }
        made = AdminClient(settings)
        made.poll(0)
        return made

    end = time.time() + 300
    assert client(token(exp=end)).list_topics(timeout=30).brokers
    with pytest.raises(confluent_kafka.KafkaException):
        client(token(exp=end, key=OTHER)).list_topics(timeout=2)


def test_a_session_ends_with_its_token(broker):
    client = WireClient(broker.bootstrap_servers)
    client.call(messages.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    first = f"n,,\x01auth=Bearer {token(exp=time.time() + 300)}\x01\x01".encode()
    answer = client.call(messages.SaslAuthenticateRequest(auth_bytes=first), 2)
    assert answer.error_code == 0 and 200_000 < answer.session_lifetime_ms <= 300_000
    assert client.call(messages.MetadataRequest(topics=[]), 9).brokers


@pytest.mark.parametrize(
    "message", [b"", b"\xff", b"n,,\x01auth=Bearer x", b"n,,\x01\x01", b"y,,\x01auth=Bearer x\x01\x01"]
)
def test_messages_that_are_none_get_a_reason_and_the_end(broker, message):
    client = WireClient(broker.bootstrap_servers)
    client.call(messages.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    answer = client.call(messages.SaslAuthenticateRequest(auth_bytes=message), 2)
    assert answer.error_code == 0 and b"invalid_token" in answer.auth_bytes
    answer = client.call(messages.SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED and client.closed_by_peer()
