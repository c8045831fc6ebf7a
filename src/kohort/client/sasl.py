"""SASL PLAIN and SCRAM (RFC 5802) over SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any, Protocol

from kohort.client.config import Config
from kohort.client.errors import AuthenticationError
from kohort.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest


class _Connection(Protocol):
    name: str

    async def request(self, request: Any, timeout_ms: int) -> Any: ...


async def authenticate(connection: _Connection, config: Config) -> None:
    """Nothing where security.protocol has no SASL; AuthenticationError where the broker refuses."""
    if not config.security_protocol.startswith("SASL"):
        return
    mechanism = config.sasl_mechanism
    handshake = await connection.request(SaslHandshakeRequest(mechanism=mechanism), config.request_timeout_ms)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationError(f"{connection.name} does not offer sasl.mechanism={mechanism}, only: {offered}")
    if mechanism == "PLAIN":
        token = f"\0{config.sasl_username}\0{config.sasl_password}".encode()
        await _exchange(connection, config, token)
        return
    scram = Scram(mechanism, config.sasl_username, config.sasl_password, secrets.token_urlsafe(24))
    server_first = await _exchange(connection, config, scram.first())
    server_final = await _exchange(connection, config, scram.final(server_first))
    scram.check(server_final)


async def _exchange(connection: _Connection, config: Config, token: bytes) -> bytes:
    answer = await connection.request(SaslAuthenticateRequest(auth_bytes=token), config.request_timeout_ms)
    if answer.error_code:
        raise AuthenticationError(
            f"{connection.name} refused sasl.username={config.sasl_username}: {answer.error_message}"
        )
    return bytes(answer.auth_bytes)


class Scram:
    """The client's side of one SCRAM exchange."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._signature = b""

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._hash).digest()

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        if not fields["r"].startswith(self._nonce):
            raise AuthenticationError("the broker answered another SCRAM exchange")
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash().name, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = self._hmac(self._hash(client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        fields = dict(part.split("=", 1) for part in server_final.decode().split(","))
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._signature):
            raise AuthenticationError("the broker does not know the password it claims to know")
