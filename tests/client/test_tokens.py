"""Bearer tokens: asked for once, kept for most of their life, and what the broker is told."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kohort.client import tokens
from kohort.client.config import Config
from kohort.client.errors import AuthenticationError, ConfigError
from kohort.client.sasl import Credentials, exchange
from kohort.client.tokens import credentials

ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


class OAuthServer(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.lifetime_s = 3600.0


class Handler(BaseHTTPRequestHandler):
    server: OAuthServer

    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        user = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append({"user": user, **form})
        good = user == "me:secret"
        token = {"access_token": f"token {len(self.server.asked)}", "expires_in": self.server.lifetime_s}
        body = json.dumps(token if good else {"error": "invalid_client"}).encode()
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    server = OAuthServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def config(**settings: Any) -> Config:
    base = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return Config({**base, **settings})


def client(oauth: OAuthServer, secret: str = "secret") -> Config:
    return config(
        **{
            ENDPOINT: f"http://127.0.0.1:{oauth.server_port}/token",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": secret,
            "sasl.oauthbearer.scope": "kafka",
        }
    )


def test_a_token_is_asked_for_once_and_again_when_most_of_its_life_is_over(
    oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = client(oauth)
    assert [credentials(given), credentials(given)] == [Credentials("OAUTHBEARER", "(a bearer token)", "token 1")] * 2
    assert oauth.asked == [{"user": "me:secret", "grant_type": ["client_credentials"], "scope": ["kafka"]}]
    later = time.monotonic() + 0.9 * oauth.lifetime_s
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert tokens.bearer_token(given) == "token 2"


def test_a_refusal_of_the_token_server_is_told(oauth: OAuthServer) -> None:
    with pytest.raises(AuthenticationError, match=r"gave client 'me' no token: HTTP 401.*invalid_client"):
        credentials(client(oauth, "wrong"))


def a_function() -> tuple[str, float]:
    return "made by hand", time.time() + 100


def test_a_function_of_the_user_or_its_name() -> None:
    provider = "sasl.oauthbearer.token.provider"
    assert tokens.bearer_token(config(**{provider: lambda: "from a lambda"})) == "from a lambda"
    assert tokens.token_of(a_function)[0] == "made by hand"
    assert tokens.function_of("json:dumps") is json.dumps
    with pytest.raises(ConfigError, match=r"package\.module:function"):
        tokens.function_of("no_such_module:f")
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer"):
        config()


def test_the_exchange_and_a_brokers_refusal() -> None:
    talk = exchange(Credentials("OAUTHBEARER", "", "TOKEN"), "nonce")
    assert next(talk) == b"n,,\x01auth=Bearer TOKEN\x01\x01"
    with pytest.raises(StopIteration):
        talk.send(b"")
    refused = exchange(Credentials("OAUTHBEARER", "", "TOKEN"), "nonce")
    next(refused)
    assert refused.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        refused.send(b"")


def test_amazons_tokens_are_signed_with_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Amazon's own library, which signs and asks nobody."""
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigError, match="set AWS_REGION"):
        tokens.aws_msk_iam()
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not a secret")
    provider = "kohort.client.tokens:aws_msk_iam"
    found = credentials(config(**{"sasl.oauthbearer.token.provider": provider}))
    assert found is not None
    url = base64.urlsafe_b64decode(found.password + "=" * (-len(found.password) % 4)).decode()
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "X-Amz-Credential=AKIAEXAMPLE" in url and "X-Amz-Signature=" in url
    _, ends_at = tokens.aws_msk_iam()
    assert 60 < ends_at - time.time() < 24 * 3600
